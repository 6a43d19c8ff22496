//! Rendering of turn events as text: the model's text on standard output, everything else on standard error.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use toolcell_core::event::{Event, EventSink, NoticeLevel};
use toolcell_core::tool::{LogLevel, LogLine, LogSource};
use toolcell_core::{ApprovalCause, CallResult, Receipt};

use super::output::Output;
use super::{Activity, Console, content, receipt, usage};
use crate::config::units::Span;
use crate::ui::hints::AllowHints;
use crate::ui::terminal::{BAD, FAINT, GOOD, GUTTER, NAME, Name, Own, STRONG, Text, WARN, text};

/// Hint for the first refusal without a terminal.
const UNATTENDED: &str = "run it at a terminal to be asked, or decide in advance with `[approval] rules` in your own \
                          configuration";

/// The same if the data-flow guard asks.
const UNATTENDED_FLOW: &str = "run it at a terminal to be asked, or choose what the data-flow guard does: `[approval] flow` in \
                               your own configuration, or --flow";

/// Maximum depth of subagents with additional indentation.
const MAX_SHOWN_DEPTH: usize = 8;

/// Maximum length of a tool error, in characters; longer ones lose their middle.
const MAX_ERROR: usize = 2_000;

/// Event sink that renders a running or recorded turn.
pub(crate) struct TurnView {
    console: Console,
    hints: Arc<AllowHints>,
    output: Output,
    /// True for a recorded turn: its text is complete, and messages of the user are shown.
    is_recorded: bool,
    /// True if a user can be asked.
    is_attended: bool,
    /// True if only the final answer is shown: one by a schema, whose earlier attempts are not for standard output.
    only_answer: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    model: String,
    started: Option<Instant>,
    waiting: Option<Activity>,
    running: BTreeMap<String, Activity>,
    calls: u32,
    /// Text of the current step that was already streamed.
    streamed: String,
    reasoning_open: bool,
    shown_unattended: bool,
    /// Cause of the last question.
    cause: Option<ApprovalCause>,
    /// Denials of hooks that were already shown.
    shown_denials: BTreeSet<String>,
}

impl TurnView {
    /// Creates a view on `console` that notes in `output` when standard output cannot be written to.
    pub(crate) fn new(console: Console, hints: Arc<AllowHints>, output: Output) -> Self {
        Self {
            console,
            hints,
            output,
            is_recorded: false,
            is_attended: true,
            only_answer: false,
            state: Mutex::default(),
        }
    }

    /// Sets if a user can be asked about calls; otherwise the first refusal has a hint.
    pub(crate) fn attended(mut self, is_attended: bool) -> Self {
        self.is_attended = is_attended;
        self
    }

    /// Sets if only the final answer is shown, as text that a program can read.
    pub(crate) fn only_answer(mut self, only_answer: bool) -> Self {
        self.only_answer = only_answer;
        self
    }

    /// Creates a view of recorded turns.
    pub(crate) fn of_recorded(console: Console, hints: Arc<AllowHints>, output: Output) -> Self {
        Self {
            is_recorded: true,
            ..Self::new(console, hints, output)
        }
    }

    fn show(&self, event: &Event) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::TurnStarted { model, message, .. } => {
                if self.is_recorded {
                    self.console.write(|s| {
                        s.out.styled(NAME, "› ")?;
                        s.out.styled(STRONG, message.text())?;
                        s.out.end_line()
                    })?;
                }
                state.model.clone_from(model);
                state.started = Some(Instant::now());
                state.calls = 0;
            }
            Event::StepStarted { .. } => {
                state.streamed.clear();
                if self.is_recorded {
                    return Ok(());
                }
                state.waiting = Some(self.console.activity(text!("waiting for {}", state.model)));
            }
            Event::TextDelta { .. } if self.only_answer => {}
            Event::TextDelta { text } => {
                state.waiting = None;
                self.end_reasoning(&mut state)?;
                state.streamed.push_str(text);
                self.stream(text)?;
            }
            Event::ReasoningDelta { text } => {
                state.waiting = None;
                state.reasoning_open = true;
                self.console.write(|s| {
                    s.end_open_line()?;
                    s.err.styled(FAINT, text.clone())?;
                    s.err.flush()
                })?;
            }
            Event::StepFinished { .. } | Event::StepInterrupted { .. } => {
                state.waiting = None;
                if let (true, Event::StepFinished { message, .. }) = (self.is_recorded, event) {
                    let text = message.text();
                    if !text.is_empty() {
                        state.streamed.clone_from(&text);
                        self.stream(&text)?;
                    }
                }
                self.end_text(&mut state)?;
                // If there was no text, the outcome is sufficient.
                if let Event::StepInterrupted {
                    reason,
                    message: Some(_),
                    ..
                } = event
                {
                    self.mark(
                        WARN,
                        "!",
                        text!("the answer was interrupted: {}{}", Own(GUTTER), reason),
                    )?;
                }
            }
            Event::Retry { delay_ms, reason, .. } => {
                let pause = Span(Duration::from_millis(*delay_ms));
                self.mark(
                    WARN,
                    "↻",
                    text!("retrying in {}: {}{}", pause, Own(GUTTER), reason),
                )?;
            }
            Event::CallStarted { id, tool, arguments } => {
                state.waiting = None;
                self.end_text(&mut state)?;
                state.calls += 1;
                self.console.write(|s| {
                    s.err.styled(NAME, "● ")?;
                    s.err.styled(STRONG, text!("{}", Name(tool)))?;
                    s.err.text(" ")?;
                    s.err.line(arguments_of(arguments))
                })?;
                state
                    .running
                    .insert(id.clone(), self.console.activity(text!("running {}", Name(tool))));
            }
            Event::CallRetried { delay_ms, reason, .. } => {
                let pause = Span(Duration::from_millis(*delay_ms));
                self.mark(
                    WARN,
                    "↻",
                    text!("retrying in {}: {}{}", pause, Own(GUTTER), reason),
                )?;
            }
            Event::CallProgress { id, progress } => {
                if let Some(activity) = state.running.get(id) {
                    let of = progress
                        .total
                        .map(|total| format!("/{total}"))
                        .unwrap_or_default();
                    let what = progress.message.as_deref().unwrap_or("running");
                    activity.relabel(text!("{} {}{}", what, progress.done, of));
                }
            }
            Event::CallLog { line, .. } => self.log(line)?,
            Event::CallFinished { id, tool, result } => {
                state.running.remove(id);
                self.call_finished(tool, result)?;
            }
            Event::HookFinished { hook, receipt, .. } => {
                for denied in self.new_denials(&mut state, hook, receipt) {
                    self.mark(WARN, "!", denied)?;
                }
            }
            Event::Nested { event, .. } => self.nested(&mut state, event, 1)?,
            Event::ApprovalRequested { cause, .. } => state.cause = Some(*cause),
            Event::ApprovalDecided { approved, reason, .. } => {
                let reason = reason
                    .as_ref()
                    .map(|reason| text!(": {}", reason))
                    .unwrap_or_default();
                if *approved {
                    self.mark(GOOD, "✓", text!("approved{}", reason))?;
                } else {
                    self.mark(WARN, "✗", text!("not approved{}", reason))?;
                    if !self.is_attended && !std::mem::replace(&mut state.shown_unattended, true) {
                        let hint = match state.cause {
                            Some(ApprovalCause::Flow | ApprovalCause::RuleAndFlow) => UNATTENDED_FLOW,
                            _ => UNATTENDED,
                        };
                        self.console.write(|s| {
                            s.err.styled(NAME, "  hint: ")?;
                            s.err.line(hint)
                        })?;
                    }
                }
            }
            Event::PlanUpdated { plan } => {
                self.console.write(|s| {
                    s.end_open_line()?;
                    s.err.hang(0);
                    s.err.styled(FAINT, plan.to_string())?;
                    s.err.end_line()
                })?;
            }
            Event::SummaryStarted { messages, .. } => {
                state.waiting = Some(self.console.activity(text!("summarising {} messages", messages)));
            }
            Event::TurnUndone { .. } => self.mark(FAINT, "…", "the last turn was undone")?,
            Event::Compacted { removed, .. } => {
                state.waiting = None;
                self.mark(
                    FAINT,
                    "…",
                    text!("{} older messages were replaced by a summary", removed),
                )?;
            }
            Event::SummaryFailed { reason, .. } => {
                state.waiting = None;
                self.mark(
                    WARN,
                    "!",
                    text!("the conversation could not be summarised: {}", reason),
                )?;
            }
            Event::Reminder { text, .. } => {
                self.mark(FAINT, "…", text!("note to the model: {}", text))?;
            }
            Event::Notice { level, text } => match level {
                NoticeLevel::Info => self.mark(FAINT, "·", text.clone())?,
                NoticeLevel::Warning => self.mark(WARN, "!", text.clone())?,
                _ => self.mark(BAD, "!", text.clone())?,
            },
            Event::TurnFinished {
                text,
                steps,
                usage: used,
                result,
                cost_micros,
                ..
            } => {
                state.waiting = None;
                state.running.clear();
                self.end_text(&mut state)?;
                // Text that the loop created, or that arrived in one piece, was not streamed.
                if !text.trim().is_empty() && state.streamed.trim() != text.trim() {
                    self.stream(text)?;
                }
                self.end_text(&mut state)?;
                // An answer by a schema is the result itself.
                if let Some(result) = result.as_ref().filter(|result| !is_text(result, text)) {
                    self.stream(&format!("{result:#}"))?;
                    self.end_text(&mut state)?;
                }
                let mut parts = vec![
                    count(*steps, "step", "steps"),
                    count(state.calls, "call", "calls"),
                ];
                parts.extend(usage::parts(used, *cost_micros));
                let took = state
                    .started
                    .filter(|_| !self.is_recorded)
                    .map(|started| Span(started.elapsed()));
                parts.extend(took.map(|took| text!("{}", took)));
                self.console.note(Text::join(parts, " · "));
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows calls and notes of a subagent, indented by its depth.
    fn nested(&self, state: &mut State, event: &Event, depth: usize) -> io::Result<()> {
        let line = |style, mark: &'static str, rest: Text| {
            self.console.write(|s| {
                s.end_open_line()?;
                (0..depth.min(MAX_SHOWN_DEPTH)).try_for_each(|_| s.err.text("  "))?;
                s.err.hang(2 * depth.min(MAX_SHOWN_DEPTH) + 2);
                s.err.styled(style, mark)?;
                s.err.text(" ")?;
                s.err.line(set_apart(rest))
            })
        };
        match event {
            Event::Nested { event, .. } => self.nested(state, event, depth + 1),
            Event::HookFinished { hook, receipt, .. } => {
                let denials = self.new_denials(state, hook, receipt);
                denials
                    .into_iter()
                    .try_for_each(|denied| line(WARN, "!", Text::foreign(denied)))
            }
            Event::CallStarted { tool, arguments, .. } => {
                line(NAME, "●", text!("{} {}", Name(tool), arguments_of(arguments)))
            }
            Event::CallFinished { tool, result, .. } => match &result.error {
                Some(error) => line(BAD, "✗", said(tool, error.to_string())),
                None => line(GOOD, "✓", said(tool, content::summary(&result.content))),
            },
            Event::ApprovalDecided { approved: true, .. } => line(GOOD, "✓", "approved".into()),
            Event::ApprovalDecided { reason, .. } => {
                let reason = reason.as_ref().map(|reason| text!(": {}", reason));
                line(WARN, "✗", text!("not approved{}", reason.unwrap_or_default()))
            }
            Event::StepInterrupted { reason, .. } => line(
                WARN,
                "!",
                text!("the answer was interrupted: {}{}", Own(GUTTER), reason),
            ),
            Event::Notice {
                level: NoticeLevel::Warning | NoticeLevel::Error,
                text,
            } => line(WARN, "!", Text::foreign(text.clone())),
            _ => Ok(()),
        }
    }

    /// Returns denials of a hook that were not shown yet.
    fn new_denials(&self, state: &mut State, hook: &str, receipt: &Receipt) -> Vec<String> {
        let mut denials = self.hints.of_hook(hook, receipt);
        let shown = &mut state.shown_denials;
        denials.retain(|denied| shown.len() < Receipt::MAX_ENTRIES && shown.insert(denied.clone()));
        denials
    }

    fn stream(&self, text: &str) -> io::Result<()> {
        self.console.write(|s| {
            s.set_line_open(!text.ends_with('\n'));
            s.out.stream(text)
        })
    }

    fn end_reasoning(&self, state: &mut State) -> io::Result<()> {
        if std::mem::take(&mut state.reasoning_open) {
            self.console.write(|s| s.err.end_line())?;
        }
        Ok(())
    }

    fn end_text(&self, state: &mut State) -> io::Result<()> {
        self.end_reasoning(state)?;
        self.console.write(|s| {
            s.out.end_stream()?;
            s.end_open_line()
        })
    }

    fn mark(&self, style: anstyle::Style, mark: &'static str, text: impl Into<Text>) -> io::Result<()> {
        self.console.write(|s| {
            s.end_open_line()?;
            s.err.styled(style, mark)?;
            s.err.text(" ")?;
            s.err.line(set_apart(text.into()))
        })
    }

    fn log(&self, line: &LogLine) -> io::Result<()> {
        log(&self.console, line)
    }

    fn call_finished(&self, tool: &str, result: &CallResult) -> io::Result<()> {
        let (error, receipt) = (result.error.as_ref(), result.receipt.as_ref());
        self.console.write(|s| {
            match error {
                None => {
                    s.err.styled(GOOD, "✓ ")?;
                    s.err.line(said(tool, content::summary(&result.content)))?;
                }
                Some(error) => {
                    s.err.styled(BAD, "✗ ")?;
                    s.err.line(said(tool, error.to_string()).excerpt(MAX_ERROR))?;
                }
            }
            let Some(receipt) = receipt else {
                return Ok(());
            };
            s.err.styled(FAINT, text!("  {}", receipt::line(receipt)))?;
            s.err.end_line()?;
            for hint in self.hints.of(tool, receipt, error) {
                s.err.styled(NAME, "  hint: ")?;
                s.err.hang(8);
                s.err.line(hint)?;
            }
            Ok(())
        })
    }
}

/// Text of a tool behind its name and the gutter, so that it is not read as words of Toolcell.
fn said(tool: &str, text: String) -> Text {
    text!("{} {}{}", Name(tool), Own(GUTTER), text)
}

/// Puts the gutter before a message that begins with foreign text and follows a mark of Toolcell.
fn set_apart(text: Text) -> Text {
    if text.begins_foreign() {
        return text!("{}{}", Own(GUTTER), text);
    }
    text
}

/// Arguments of a call on one line. What is not JSON stands behind the gutter.
fn arguments_of(arguments: &Value) -> Text {
    let line = content::arguments(arguments);
    match arguments {
        Value::String(_) => text!("{}{}", Own(GUTTER), line),
        _ => Text::foreign(line),
    }
}

/// Writes a line of a tool's log to standard error.
pub(crate) fn log(console: &Console, line: &LogLine) -> io::Result<()> {
    let style = match line.level {
        LogLevel::Error => BAD,
        LogLevel::Warn => WARN,
        _ => FAINT,
    };
    let source = match line.source {
        LogSource::Log => "log",
        LogSource::Stdout => "stdout",
        LogSource::Stderr => "stderr",
        LogSource::Host => "host",
        LogSource::Backtrace => "backtrace",
    };
    console.write(|s| {
        s.end_open_line()?;
        s.err.hang(2 + source.len() + 1);
        s.err.text("  ")?;
        s.err.styled(style, source)?;
        s.err.text(" ")?;
        s.err.styled(style, GUTTER)?;
        s.err.line(line.message.clone())
    })
}

/// True if the result is written in the text.
fn is_text(result: &Value, text: &str) -> bool {
    serde_json::from_str::<Value>(text.trim()).is_ok_and(|value| value == *result)
}

fn count(number: u32, one: &'static str, many: &'static str) -> Text {
    text!("{} {}", number, Own(if number == 1 { one } else { many }))
}

impl EventSink for TurnView {
    fn event(&self, event: &Event) {
        // Only standard output matters: a closed standard error is ignored.
        if let Err(error) = self.show(event)
            && is_output(event)
        {
            self.output.fail(error);
        }
    }
}

fn is_output(event: &Event) -> bool {
    matches!(
        event,
        Event::TextDelta { .. } | Event::StepFinished { .. } | Event::TurnFinished { .. }
    )
}
