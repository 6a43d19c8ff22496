//! Text of a turn for the client that waits for it. It is kept once, and read at the client's pace.

mod imitation;
pub(super) mod text;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use toolcell_core::event::NoticeLevel;
use toolcell_core::{Event, EventSink, ToolError};

use self::imitation::Search;
use self::text::Text;
use super::beginning::Beginning;
use super::{MAX_NAME, Wishes};
use crate::answer::{Failure, excerpt};
use crate::host::TurnEnd;

/// Beginning of a line of Toolcell in the text of an answer.
const MARK: &str = "[Toolcell]";

/// Follows what looks like it in the text of the model.
const BY_MODEL: &str = " (written by the model)";

/// Maximum length of a notice, in characters.
const MAX_NOTICE: usize = 2_000;

/// Maximum length of the name of a hook, in characters.
const MAX_HOOK: usize = 100;

/// Form of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// What the model writes, in all steps.
    Text(Wishes),
    /// JSON, by a schema: only the answer that fits it.
    Json,
}

impl Form {
    pub(super) fn of(has_schema: bool, wishes: Wishes) -> Self {
        match has_schema {
            true => Self::Json,
            false => Self::Text(wishes),
        }
    }
}

/// Text and end of a turn.
pub(super) struct Feed {
    form: Form,
    beginning: Mutex<Option<Beginning>>,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    text: Text,
    /// Length of the text when the step began.
    step: usize,
    /// Search for lines in the text of the model that look like those of Toolcell.
    search: Search,
    changes: u64,
    end: Option<Result<TurnEnd, Failure>>,
}

impl State {
    /// Adds text of the model. Where lines of Toolcell are among it, one that looks like them is marked, and directional overrides are
    /// shown by their numbers: they would turn the mark around, too.
    fn push_model(&mut self, text: &str, wishes: Wishes) {
        if !wishes.notices && !wishes.calls {
            return self.text.push(text);
        }
        let mut written = 0;
        for (at, character) in text.char_indices() {
            let end = at + character.len_utf8();
            if matches!(character, '\u{202d}' | '\u{202e}') {
                self.text.push(&text[written..at]);
                self.text.push(&excerpt(&text[at..end], 1));
                written = end;
            } else if self.search.add(character) {
                self.text.push(&text[written..end]);
                self.text.push(BY_MODEL);
                written = end;
            }
        }
        self.text.push(&text[written..]);
    }
}

impl Feed {
    /// Creates the feed of a turn that begins; further ones can begin after its first event in the journal.
    pub(super) fn new(form: Form, beginning: Option<Beginning>) -> Arc<Self> {
        Arc::new(Self {
            form,
            beginning: Mutex::new(beginning),
            state: Mutex::default(),
            changed: watch::Sender::new(0),
        })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.changes += 1;
        let changes = state.changes;
        drop(state);
        self.changed.send_replace(changes);
    }

    fn has_begun(&self) {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        drop(beginning.take());
    }

    pub(super) fn finish(&self, end: Result<TurnEnd, Failure>) {
        self.has_begun();
        self.change(|state| {
            if let (Ok(end), Form::Text(wishes)) = (&end, self.form) {
                state.text.end_paragraph();
                state.push_model(&end.text, wishes);
            }
            state.end = Some(end);
        });
    }

    /// Returns the text after `known` bytes, and the end if there is one; waits until there is either.
    pub(super) async fn next(&self, known: usize) -> (String, Option<Result<TurnEnd, Failure>>) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                let text = state.text.as_str().get(known..).unwrap_or_default();
                if !text.is_empty() || state.end.is_some() {
                    return (text.to_owned(), state.end.clone());
                }
            }
            if changed.changed().await.is_err() {
                let failure = Failure::failed("the turn ended");
                return (String::new(), Some(Err(failure)));
            }
        }
    }

    /// Waits for the end, and returns the whole text with it.
    pub(super) async fn whole(&self) -> (String, Result<TurnEnd, Failure>) {
        let mut all = String::new();
        loop {
            let (text, end) = self.next(all.len()).await;
            all.push_str(&text);
            if let Some(end) = end {
                return (all, end);
            }
        }
    }
}

impl EventSink for Feed {
    fn event(&self, event: &Event) {
        if !event.is_transient() {
            self.has_begun();
        }
        let wishes = match (self.form, event) {
            (Form::Text(wishes), _) => wishes,
            (Form::Json, Event::TurnFinished { text, .. }) => {
                return self.change(|state| state.text.push(text.trim()));
            }
            (Form::Json, _) => return,
        };
        match event {
            Event::StepStarted { .. } => self.change(|state| {
                state.text.end_paragraph();
                state.step = state.text.as_str().len();
            }),
            Event::TextDelta { text } => self.change(|state| state.push_model(text, wishes)),
            Event::StepFinished { message, .. } => self.change(|state| {
                // Of a provider that does not stream.
                if state.text.as_str().len() == state.step {
                    state.push_model(&message.text(), wishes);
                }
            }),
            Event::Notice { level, hook, text } if wishes.notices => {
                let level = match level {
                    NoticeLevel::Info => "",
                    NoticeLevel::Warning => "warning: ",
                    _ => "error: ",
                };
                let by = hook
                    .as_deref()
                    .map(|hook| format!("the hook `{}` says: ", excerpt(hook, MAX_HOOK)))
                    .unwrap_or_default();
                let text = excerpt(text, MAX_NOTICE);
                self.change(|state| state.text.paragraph(&format!("{MARK}: {level}{by}{text}")));
            }
            Event::CallStarted { tool, .. } if wishes.calls => {
                let tool = name_of(tool);
                self.change(|state| state.text.paragraph(&format!("{MARK}: call of `{tool}`")));
            }
            Event::CallFinished { tool, result, .. } if wishes.calls => {
                if let Some(error) = &result.error {
                    let told = told(&name_of(tool), error, result.not_run);
                    self.change(|state| state.text.paragraph(&format!("{MARK}: {told}")));
                }
            }
            _ => {}
        }
    }
}

/// Returns the name of a tool, which the model wrote, so that it cannot end its quotation.
fn name_of(tool: &str) -> String {
    excerpt(tool, MAX_NAME).replace('`', "'")
}

/// Tells what became of a call that gave no result. Words of tools are for the model.
fn told(tool: &str, error: &ToolError, is_not_run: bool) -> String {
    match error {
        ToolError::UnknownTool { .. } => format!("there is no tool `{tool}`"),
        ToolError::Denied { .. } => format!("the call of `{tool}` was refused"),
        ToolError::Cancelled => format!("the call of `{tool}` was cancelled"),
        ToolError::InvalidArguments { .. } if is_not_run => {
            format!("the call of `{tool}` did not run: its arguments are invalid")
        }
        _ if is_not_run => format!("the call of `{tool}` did not run"),
        _ => format!("the call of `{tool}` failed"),
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::CallResult;

    use super::*;

    fn events(wishes: Wishes) -> String {
        let feed = Feed::new(Form::Text(wishes), None);
        for event in [
            Event::StepStarted { step: 1 },
            Event::TextDelta { text: "a".into() },
            Event::TextDelta { text: "b".into() },
            Event::CallStarted {
                id: "1".into(),
                tool: "t".into(),
                arguments: serde_json::json!({}),
            },
            Event::Notice {
                level: NoticeLevel::Info,
                hook: None,
                text: "n".into(),
            },
            Event::StepStarted { step: 2 },
            Event::TextDelta { text: "c".into() },
        ] {
            feed.event(&event);
        }
        feed.state.lock().unwrap().text.as_str().to_owned()
    }

    #[test]
    fn notices_and_calls_are_told_if_the_client_asks() {
        assert_eq!(events(Wishes::default()), "ab\n\nc");
        let all = Wishes {
            notices: true,
            calls: true,
        };
        assert_eq!(events(all), "ab\n\n[Toolcell]: call of `t`\n\n[Toolcell]: n\n\nc");
    }

    #[test]
    fn call_without_a_result_tells_what_became_of_it() {
        let calls = Wishes {
            notices: false,
            calls: true,
        };
        let unknown = ToolError::UnknownTool {
            name: "t".into(),
            near: Vec::new(),
        };
        let failed = ToolError::Failed { message: "x".into() };
        for (result, told) in [
            (CallResult::text("x"), None),
            (CallResult::refused(unknown), Some("there is no tool `t'`")),
            (
                CallResult::refused(ToolError::denied("x", None)),
                Some("the call of `t'` was refused"),
            ),
            (CallResult::failed(failed), Some("the call of `t'` failed")),
        ] {
            let feed = Feed::new(Form::Text(calls), None);
            feed.event(&Event::CallFinished {
                id: "1".into(),
                tool: "t`".into(),
                result,
            });
            let text = feed.state.lock().unwrap().text.as_str().to_owned();
            let expected = told.map(|told| format!("[Toolcell]: {told}"));
            assert_eq!(text, expected.unwrap_or_default());
        }
    }

    #[test]
    fn notice_has_its_level_on_one_line() {
        let feed = Feed::new(
            Form::Text(Wishes {
                notices: true,
                calls: false,
            }),
            None,
        );
        feed.event(&Event::Notice {
            level: NoticeLevel::Warning,
            hook: None,
            text: "a\n[Toolcell]: b\u{202e}".into(),
        });
        let text = feed.state.lock().unwrap().text.as_str().to_owned();
        assert_eq!(text, "[Toolcell]: warning: a\\n[Toolcell]: b\\u{202e}");
    }

    #[test]
    fn notice_of_a_hook_names_the_hook() {
        let feed = Feed::new(
            Form::Text(Wishes {
                notices: true,
                calls: false,
            }),
            None,
        );
        feed.event(&Event::Notice {
            level: NoticeLevel::Warning,
            hook: Some("h".into()),
            text: "the hook `guard` failed".into(),
        });
        let text = feed.state.lock().unwrap().text.as_str().to_owned();
        assert_eq!(
            text,
            "[Toolcell]: warning: the hook `h` says: the hook `guard` failed"
        );
    }

    #[test]
    fn model_cannot_write_a_line_of_toolcell() {
        let written = |wishes: Wishes, deltas: &[&str]| {
            let feed = Feed::new(Form::Text(wishes), None);
            for text in deltas {
                feed.event(&Event::TextDelta { text: (*text).into() });
            }
            feed.state.lock().unwrap().text.as_str().to_owned()
        };
        let all = Wishes {
            notices: true,
            calls: true,
        };
        for deltas in [
            &["[Toolcell]: `x` runs"][..],
            &["Hi.\n", "[Tool", "cell", "]", ": `x` runs"],
            &["Hi.\n \u{200b}> **[toolCELL]: x"],
        ] {
            assert_eq!(written(Wishes::default(), deltas), deltas.concat());
            let text = written(all, deltas);
            assert!(
                text.to_lowercase()
                    .contains("[toolcell] (written by the model): "),
                "{text}"
            );
        }
        assert_eq!(written(all, &["as it says [1]", "]"]), "as it says [1]]");
        assert_eq!(
            written(all, &["a\u{202e}[llec", "looT]\u{202c}"]),
            "a\\u{202e}[lleclooT] (written by the model)\u{202c}"
        );
    }

    #[test]
    fn text_of_brackets_takes_linear_time() {
        // A search of the line for each of them would take hours.
        let feed = Feed::new(
            Form::Text(Wishes {
                notices: true,
                calls: true,
            }),
            None,
        );
        let text = "]".repeat(2_000_000);
        feed.event(&Event::TextDelta { text: text.clone() });
        feed.event(&Event::TextDelta {
            text: "[".repeat(2_000_000),
        });
        assert!(feed.state.lock().unwrap().text.as_str().starts_with(&text));
    }

    #[test]
    fn answer_by_a_schema_is_the_last_text_alone() {
        let feed = Feed::new(Form::Json, None);
        for event in [
            Event::TextDelta { text: "no".into() },
            Event::StepStarted { step: 2 },
            Event::TextDelta { text: " {}\n".into() },
            Event::TurnFinished {
                outcome: toolcell_core::event::TurnOutcome::Completed,
                text: " {}\n".into(),
                result: Some(serde_json::json!({})),
                steps: 2,
                usage: Default::default(),
                wall_ms: 0,
                cost_micros: None,
            },
        ] {
            feed.event(&event);
        }
        assert_eq!(feed.state.lock().unwrap().text.as_str(), "{}");
    }
}
