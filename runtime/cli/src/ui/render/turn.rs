//! Rendering of turn events as text: the model's text on standard output, everything else on standard error.

mod answer;
mod nested;
pub(crate) mod streamed;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolcell_core::event::{Event, EventSink, NoticeLevel, TurnOutcome};
use toolcell_core::{ApprovalCause, Blob, CallResult, Receipt};

use super::calls::{CallNames, arguments_of, log, said};
use super::output::Output;
use super::{Activity, Console, content, receipt, usage};
use crate::config::units::Span;
use crate::ui::hints::AllowHints;
use crate::ui::terminal::{BAD, FAINT, GOOD, GUTTER, NAME, Own, STRONG, Text, WARN, inert_line, text};

/// Hint for the first refusal without a terminal.
const UNATTENDED: &str = "run it at a terminal to be asked, or decide in advance with `[approval] rules` in your own \
                          configuration";

/// The same if the data-flow guard asks.
const UNATTENDED_FLOW: &str = "run it at a terminal to be asked, or choose what the data-flow guard does: `[approval] flow` in \
                               your own configuration, or --flow";

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
    /// Running calls with their names.
    running: BTreeMap<String, (Text, Activity)>,
    calls: u32,
    names: CallNames,
    /// Text of the current step that was already streamed.
    streamed: String,
    /// Text of the last step with one before the current step.
    last_text: String,
    reasoning_open: bool,
    shown_unattended: bool,
    /// Cause of the last question.
    cause: Option<ApprovalCause>,
    /// Denials of hooks that were already shown.
    shown_denials: BTreeSet<String>,
}

impl State {
    /// Name of a running call if others run as well.
    fn several_running(&self, id: &str) -> Option<&Text> {
        let (name, _) = self.running.get(id)?;
        (self.running.len() > 1).then_some(name)
    }
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
                state.names.clear();
                state.streamed.clear();
                state.last_text.clear();
            }
            Event::StepStarted { .. } => {
                if !state.streamed.trim().is_empty() {
                    state.last_text = std::mem::take(&mut state.streamed);
                }
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
                if let Event::StepFinished { message, .. } = event {
                    state.names.step("", message);
                }
                if let (true, Event::StepFinished { message, .. }) = (self.is_recorded, event) {
                    let text = message.text();
                    if !text.is_empty() {
                        state.streamed.clone_from(&text);
                        self.stream(&text)?;
                    }
                }
                self.end_text(&mut state)?;
                if let Event::StepFinished { message, .. } = event {
                    for file in message.files() {
                        self.file_of_model(file)?;
                    }
                }
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
                state.names.tool("", id, tool);
                let name = state.names.of("", id, tool);
                self.console.write(|s| {
                    s.err.styled(NAME, "● ")?;
                    s.err.styled(STRONG, name.clone())?;
                    s.err.text(" ")?;
                    s.err.line(arguments_of(arguments))
                })?;
                let activity = self.console.activity(text!("running {}", name));
                state.running.insert(id.clone(), (name, activity));
            }
            Event::CallRetried {
                id, delay_ms, reason, ..
            } => {
                let pause = Span(Duration::from_millis(*delay_ms));
                let of = state.several_running(id).map(|name| text!("{}: ", *name));
                self.mark(
                    WARN,
                    "↻",
                    text!(
                        "{}retrying in {}: {}{}",
                        of.unwrap_or_default(),
                        pause,
                        Own(GUTTER),
                        reason
                    ),
                )?;
            }
            Event::CallProgress { id, progress } => {
                if let Some((name, activity)) = state.running.get(id) {
                    let of = progress
                        .total
                        .map(|total| format!("/{total}"))
                        .unwrap_or_default();
                    let done = text!("running {}: {}{}", name.clone(), progress.done, of);
                    activity.relabel(match &progress.message {
                        Some(message) => text!("{} {}{}", done, Own(GUTTER), message),
                        None => done,
                    });
                }
            }
            Event::CallLog { id, line } => log(&self.console, state.several_running(id), line)?,
            Event::CallSuspended { id, .. } => {
                // It is counted when it starts again.
                state.calls = state.calls.saturating_sub(1);
                let name = state.running.remove(id).map(|(name, _)| name);
                let name = name.unwrap_or_else(|| "the agent".into());
                self.mark(
                    FAINT,
                    "…",
                    text!("{} waits for a decision about one of its calls", name),
                )?;
            }
            Event::CallFinished { id, tool, result } => {
                state.running.remove(id);
                self.call_finished(&state.names.of("", id, tool), tool, result)?;
            }
            Event::HookFinished { hook, receipt, .. } => {
                for denied in self.new_denials(&mut state, hook, receipt) {
                    self.mark(WARN, "!", denied)?;
                }
            }
            Event::Nested { id, event } => self.nested(&mut state, event, id, 1)?,
            Event::ApprovalRequested { id, tool, cause, .. } => {
                state.names.tool("", id, tool);
                state.cause = Some(*cause);
            }
            Event::ApprovalDecided { id, approved, reason } => {
                let decided = state.names.decided("", id, *approved, reason.as_ref());
                if *approved {
                    self.mark(GOOD, "✓", decided)?;
                } else {
                    self.mark(WARN, "✗", decided)?;
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
                if state.started.is_none() {
                    // A summary between two turns is one of its own.
                    state.started = Some(Instant::now());
                    state.calls = 0;
                }
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
            Event::Notice { level, hook, text } => {
                let (style, mark) = match level {
                    NoticeLevel::Info => (FAINT, "·"),
                    NoticeLevel::Warning => (WARN, "!"),
                    _ => (BAD, "!"),
                };
                self.mark(style, mark, notice(hook.as_deref(), text))?;
            }
            Event::TurnFinished {
                outcome,
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
                self.answer(&state, text, result.as_ref())?;
                self.end_text(&mut state)?;
                if let TurnOutcome::Asked { suggestions, .. } = outcome
                    && !self.only_answer
                {
                    for suggestion in suggestions {
                        self.plain(&format!("- {}", inert_line(suggestion)))?;
                        self.end_text(&mut state)?;
                    }
                }
                let mut parts = vec![
                    count(*steps, "step", "steps"),
                    count(state.calls, "call", "calls"),
                ];
                parts.extend(usage::parts(used, *cost_micros));
                let took = state
                    .started
                    .take()
                    .filter(|_| !self.is_recorded)
                    .map(|started| Span(started.elapsed()));
                parts.extend(took.map(|took| text!("{}", took)));
                self.console.note(Text::join(parts, " · "));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns denials of a hook that were not shown yet.
    fn new_denials(&self, state: &mut State, hook: &str, receipt: &Receipt) -> Vec<Text> {
        let mut denials = self.hints.of_hook(hook, receipt);
        let shown = &mut state.shown_denials;
        denials.retain(|denied| shown.len() < Receipt::MAX_ENTRIES && shown.insert(denied.inert()));
        denials
    }

    fn stream(&self, text: &str) -> io::Result<()> {
        self.console.write(|s| s.answer(text))
    }

    /// Writes text for programs, or a line of ours with words of others: no Markdown.
    fn plain(&self, text: &str) -> io::Result<()> {
        self.console.write(|s| s.plain(text))
    }

    fn end_reasoning(&self, state: &mut State) -> io::Result<()> {
        if std::mem::take(&mut state.reasoning_open) {
            self.console.write(|s| s.err.end_line())?;
        }
        Ok(())
    }

    fn end_text(&self, state: &mut State) -> io::Result<()> {
        self.end_reasoning(state)?;
        self.console.write(|s| s.end_answer())
    }

    /// Tells of a file, unless the line that says where it was saved does so.
    fn file_of_model(&self, file: &Blob) -> io::Result<()> {
        self.console.write(|s| {
            if s.saves_files {
                return Ok(());
            }
            s.end_open_line()?;
            s.err.styled(FAINT, "· ")?;
            s.err.text(content::file_of_model(file))?;
            if !self.is_recorded {
                s.err.text("; --save DIR writes it to a directory")?;
            }
            s.err.end_line()
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

    fn call_finished(&self, name: &Text, tool: &str, result: &CallResult) -> io::Result<()> {
        let (error, receipt) = (result.error.as_ref(), result.receipt.as_ref());
        self.console.write(|s| {
            match error {
                None => {
                    s.err.styled(GOOD, "✓ ")?;
                    s.err.line(said(name, content::summary(&result.content)))?;
                }
                Some(error) => {
                    s.err.styled(BAD, "✗ ")?;
                    s.err.line(said(name, error.to_string()).excerpt(MAX_ERROR))?;
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

/// Text of a notice. Words of a hook stand behind its name, which our own words give: they cannot pass for a notice of Toolcell
/// about a hook.
pub(crate) fn notice(hook: Option<&str>, text: &str) -> Text {
    match hook {
        Some(hook) => text!("the hook `{}` says: {}{}", hook, Own(GUTTER), text),
        None => Text::foreign(text),
    }
}

/// Puts the gutter before a message that begins with foreign text and follows a mark of Toolcell.
fn set_apart(text: Text) -> Text {
    if text.begins_foreign() {
        return text!("{}{}", Own(GUTTER), text);
    }
    text
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
