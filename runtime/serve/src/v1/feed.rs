//! Text of a turn for the client that waits for it. It is kept once, and read at the client's pace.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{Event, EventSink};

use super::Wishes;
use crate::answer::Failure;
use crate::host::TurnEnd;

/// Text and end of a turn.
pub(super) struct Feed {
    wishes: Wishes,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    text: String,
    /// Length of the text when the step began.
    step: usize,
    /// True if a paragraph ends before the next text.
    needs_break: bool,
    changes: u64,
    end: Option<Result<TurnEnd, Failure>>,
}

impl State {
    fn push(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.needs_break) && !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(text);
    }

    fn paragraph(&mut self, text: &str) {
        self.needs_break = true;
        self.push(text);
        self.needs_break = true;
    }
}

impl Feed {
    pub(super) fn new(wishes: Wishes) -> Arc<Self> {
        Arc::new(Self {
            wishes,
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

    pub(super) fn finish(&self, end: Result<TurnEnd, Failure>) {
        self.change(|state| {
            if let Ok(TurnEnd {
                outcome: Some(TurnOutcome::Asked { question, .. }),
                ..
            }) = &end
                && !state.text.ends_with(question.as_str())
            {
                state.paragraph(question);
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
                let text = state.text.get(known..).unwrap_or_default();
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
        let wishes = self.wishes;
        match event {
            Event::StepStarted { .. } => self.change(|state| {
                state.needs_break = true;
                state.step = state.text.len();
            }),
            Event::TextDelta { text } => self.change(|state| state.push(text)),
            Event::StepFinished { message, .. } => self.change(|state| {
                // Of a provider that does not stream.
                if state.text.len() == state.step {
                    state.push(&message.text());
                }
            }),
            Event::Notice { text, .. } if wishes.notices => {
                self.change(|state| state.paragraph(&format!("[Toolcell]: {text}")));
            }
            Event::CallStarted { tool, .. } if wishes.calls => {
                self.change(|state| state.paragraph(&format!("[Toolcell]: `{tool}` runs")));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::event::NoticeLevel;

    use super::*;

    fn events(wishes: Wishes) -> String {
        let feed = Feed::new(wishes);
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
                text: "n".into(),
            },
            Event::StepStarted { step: 2 },
            Event::TextDelta { text: "c".into() },
        ] {
            feed.event(&event);
        }
        feed.state.lock().unwrap().text.clone()
    }

    #[test]
    fn notices_and_calls_are_told_if_the_client_asks() {
        assert_eq!(events(Wishes::default()), "ab\n\nc");
        let all = Wishes {
            notices: true,
            calls: true,
        };
        assert_eq!(events(all), "ab\n\n[Toolcell]: `t` runs\n\n[Toolcell]: n\n\nc");
    }
}
