//! Requests and responses of hooks around a summary.
//!
//! A hook sees the messages, and chooses them by their index: what it keeps stays as it is, with the data of the provider
//! that it never sees. Only texts that it adds are limited and redacted.

use toolcell_core::hook::{Effects, HookError, HookPoint, HookVerdict, SummaryAnswer};
use toolcell_core::{Content, Message, Part, Redactor};
use wasmtime::Store;

use super::MAX_PROMPT;
use super::linked::HookGuest;
use super::request::{HookRequest, contents, of_core};
use super::response::{HookResponse, clean, reason_len, verdict};
use crate::bindings::{self, hooks, summary_hooks};
use crate::cell::state::CellState;
use crate::tool::content_len;

/// Request before a summary: the messages to summarise.
pub(super) struct BeforeSummary<'a>(pub(super) &'a [Message]);

/// Request after a summary.
pub(super) struct AfterSummary<'a> {
    pub(super) replaced: &'a [Message],
    pub(super) messages: &'a [Message],
}

/// Validated response, whose choices refer to the messages of the request.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    verdict: HookVerdict,
    messages: Option<Vec<Choice>>,
    effects: Effects,
}

#[derive(Debug, PartialEq)]
enum Choice {
    Given(u32),
    Replaced(u32),
    New(Message),
}

impl HookRequest for BeforeSummary<'_> {
    const POINT: HookPoint = HookPoint::BeforeSummary;
    type Wire = summary_hooks::PendingSummary;
    type Response = summary_hooks::SummaryAnswer;

    fn into_wire(self) -> Self::Wire {
        summary_hooks::PendingSummary {
            messages: self.0.iter().map(message).collect(),
            context: Vec::new(),
        }
    }

    fn bytes(wire: &Self::Wire) -> usize {
        wire.messages.iter().map(message_len).sum()
    }

    async fn call_export(
        wire: &Self::Wire,
        turn: &hooks::Turn,
        guest: &HookGuest,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<Self::Response, String>> {
        summaries(guest)?.call_before_summary(store, wire, turn).await
    }
}

impl HookRequest for AfterSummary<'_> {
    const POINT: HookPoint = HookPoint::AfterSummary;
    type Wire = summary_hooks::FinishedSummary;
    type Response = summary_hooks::SummaryAnswer;

    fn into_wire(self) -> Self::Wire {
        summary_hooks::FinishedSummary {
            replaced: self.replaced.iter().map(message).collect(),
            messages: self.messages.iter().map(message).collect(),
            context: Vec::new(),
        }
    }

    fn bytes(wire: &Self::Wire) -> usize {
        wire.replaced.iter().chain(&wire.messages).map(message_len).sum()
    }

    async fn call_export(
        wire: &Self::Wire,
        turn: &hooks::Turn,
        guest: &HookGuest,
        store: &mut Store<CellState>,
    ) -> wasmtime::Result<Result<Self::Response, String>> {
        summaries(guest)?.call_after_summary(store, wire, turn).await
    }
}

fn summaries(guest: &HookGuest) -> wasmtime::Result<&summary_hooks::Guest> {
    let missing = || wasmtime::Error::msg("the hook does not export `toolcell:tool/summary-hooks`");
    guest.summaries.as_ref().ok_or_else(missing)
}

impl HookResponse for summary_hooks::SummaryAnswer {
    type Answer = Chosen;

    fn bytes(&self) -> usize {
        let choices = self
            .messages
            .as_ref()
            .map_or(0, |choices| size_of_val(choices.as_slice()) + added_len(choices));
        choices + reason_len(&self.verdict) + self.effects.bytes()
    }

    fn json_texts(&self) -> Vec<&str> {
        self.effects.json_texts()
    }

    fn validate(self, redactor: &Redactor) -> Result<Chosen, String> {
        let bytes = self.messages.as_deref().map_or(0, added_len);
        if bytes > MAX_PROMPT {
            return Err(format!(
                "it adds {bytes} bytes to the conversation, more than the limit of {MAX_PROMPT}"
            ));
        }
        let text = |text: String| match text.trim().is_empty() {
            true => Err("it adds a message without text".to_owned()),
            false => Ok(clean(text, redactor)),
        };
        let choice = |choice| {
            Ok(match choice {
                summary_hooks::Choice::Given(index) => Choice::Given(index),
                summary_hooks::Choice::Replaced(index) => Choice::Replaced(index),
                summary_hooks::Choice::User(new) => Choice::New(Message::user(text(new)?)),
                summary_hooks::Choice::Assistant(new) => Choice::New(Message::assistant(text(new)?)),
            })
        };
        let messages = self.messages.map(|choices| choices.into_iter().map(choice));
        Ok(Chosen {
            verdict: verdict(self.verdict, redactor),
            messages: messages.map(Iterator::collect::<Result<_, String>>).transpose()?,
            effects: self.effects.validate(redactor)?,
        })
    }

    fn effects(answer: &mut Chosen) -> &mut Effects {
        &mut answer.effects
    }
}

impl Chosen {
    /// Returns the answer with the chosen messages of a request.
    ///
    /// # Errors
    /// If a message does not exist or is chosen twice, or if there is none.
    pub(super) fn of(self, given: Vec<Message>, replaced: Vec<Message>) -> Result<SummaryAnswer, HookError> {
        match self
            .messages
            .map(|choices| pick(choices, given, replaced))
            .transpose()
        {
            Ok(messages) => Ok(SummaryAnswer {
                verdict: self.verdict,
                messages,
                effects: self.effects,
            }),
            Err(reason) => Err(HookError {
                message: format!("its response is invalid: {reason}"),
                receipt: self.effects.receipt,
            }),
        }
    }
}

fn pick(choices: Vec<Choice>, given: Vec<Message>, replaced: Vec<Message>) -> Result<Vec<Message>, String> {
    let [mut given, mut replaced] =
        [given, replaced].map(|list| list.into_iter().map(Some).collect::<Vec<_>>());
    let take = |list: &mut [Option<Message>], index: u32, name: &str| {
        let len = list.len();
        let slot = usize::try_from(index).ok().and_then(|index| list.get_mut(index));
        let slot = slot.ok_or_else(|| format!("it chooses message {index} of `{name}`, which has {len}"))?;
        slot.take()
            .ok_or_else(|| format!("it chooses message {index} of `{name}` twice"))
    };
    let chosen = choices.into_iter().map(|choice| match choice {
        Choice::Given(index) => take(&mut given, index, "messages"),
        Choice::Replaced(index) => take(&mut replaced, index, "replaced"),
        Choice::New(message) => Ok(message),
    });
    let chosen: Vec<Message> = chosen.collect::<Result<_, _>>()?;
    match chosen.is_empty() {
        true => Err("it chooses no message; a hook that wants no summary cancels it".into()),
        false => Ok(chosen),
    }
}

fn message(message: &Message) -> summary_hooks::Message {
    match message {
        Message::User { content } => summary_hooks::Message::User(contents(content.clone())),
        Message::Assistant { parts } => {
            let content = parts.iter().filter_map(|part| match part {
                Part::Text { text, .. } => Some(bindings::Content::Text(text.clone())),
                Part::File { blob, .. } => Some(of_core(Content::Blob(blob.clone()))),
                Part::Reasoning { .. } | Part::Call(_) => None,
            });
            let calls = message.calls().map(|call| summary_hooks::RequestedCall {
                id: call.id.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.clone(),
            });
            summary_hooks::Message::Assistant(summary_hooks::Response {
                content: content.collect(),
                calls: calls.collect(),
            })
        }
        Message::Tool {
            call_id,
            name,
            content,
            is_error,
        } => summary_hooks::Message::Tool(summary_hooks::CallResult {
            id: call_id.clone(),
            tool: name.clone(),
            content: contents(content.clone()),
            is_error: *is_error,
        }),
    }
}

fn message_len(message: &summary_hooks::Message) -> usize {
    let contents = |contents: &[bindings::Content]| contents.iter().map(content_len).sum::<usize>();
    match message {
        summary_hooks::Message::User(content) => contents(content),
        summary_hooks::Message::Assistant(response) => {
            let calls = response.calls.iter();
            let calls = calls.map(|call| call.id.len() + call.tool.len() + call.arguments.len());
            contents(&response.content) + calls.sum::<usize>()
        }
        summary_hooks::Message::Tool(result) => {
            result.id.len() + result.tool.len() + contents(&result.content)
        }
    }
}

/// Returns the number of bytes that a response adds to the conversation.
fn added_len(choices: &[summary_hooks::Choice]) -> usize {
    let added = choices.iter().map(|choice| match choice {
        summary_hooks::Choice::User(text) | summary_hooks::Choice::Assistant(text) => text.len(),
        summary_hooks::Choice::Given(_) | summary_hooks::Choice::Replaced(_) => 0,
    });
    added.sum()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use toolcell_core::message::CallRequest;
    use toolcell_core::{Blob, Receipt};

    use super::*;

    fn answer(messages: Option<Vec<summary_hooks::Choice>>) -> summary_hooks::SummaryAnswer {
        summary_hooks::SummaryAnswer {
            verdict: hooks::Verdict::Proceed,
            messages,
            effects: hooks::Effects {
                notices: Vec::new(),
                values: Vec::new(),
                other: Vec::new(),
            },
        }
    }

    fn user(text: &str) -> summary_hooks::Choice {
        summary_hooks::Choice::User(text.into())
    }

    /// Texts that a response chooses of three given messages and two replaced ones.
    fn chosen(choices: Vec<summary_hooks::Choice>) -> Result<Vec<String>, String> {
        let list = |texts: &[&str]| texts.iter().map(|text| Message::user(*text)).collect();
        let answer = answer(Some(choices)).validate(&Redactor::new([]))?;
        let answer = answer.of(list(&["a", "b", "c"]), list(&["x", "y"]));
        let messages = answer.map_err(|error| error.message)?.messages;
        Ok(messages.unwrap().iter().map(Message::text).collect())
    }

    #[test]
    fn messages_are_chosen_by_their_index_and_at_most_once() {
        use summary_hooks::Choice::{Assistant, Given, Replaced};
        assert_eq!(
            chosen(vec![
                Given(2),
                user("new"),
                Assistant("said".into()),
                Replaced(1),
                Given(0)
            ]),
            Ok(["c", "new", "said", "y", "a"].map(str::to_owned).to_vec())
        );
        for (choices, reason) in [
            (vec![Given(3)], "it chooses message 3 of `messages`, which has 3"),
            (
                vec![Replaced(2)],
                "it chooses message 2 of `replaced`, which has 2",
            ),
            (
                vec![Given(1), Given(1)],
                "it chooses message 1 of `messages` twice",
            ),
            (
                vec![Given(u32::MAX)],
                "it chooses message 4294967295 of `messages`",
            ),
            (vec![], "it chooses no message"),
            (vec![user(" \n")], "it adds a message without text"),
            (vec![Assistant(String::new())], "it adds a message without text"),
        ] {
            let error = chosen(choices).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn response_without_a_choice_leaves_the_messages() {
        let answer = answer(None).validate(&Redactor::new([])).unwrap();
        let answer = answer.of(vec![Message::user("a")], Vec::new()).unwrap();
        assert_eq!(answer, SummaryAnswer::default());
    }

    #[test]
    fn invalid_choice_keeps_the_receipt_of_the_hook() {
        let mut answer = answer(Some(vec![summary_hooks::Choice::Given(0)]))
            .validate(&Redactor::new([]))
            .unwrap();
        answer.effects.receipt = Some(Box::new(Receipt::default()));
        let error = answer.of(Vec::new(), Vec::new()).unwrap_err();
        assert!(error.receipt.is_some());
    }

    #[test]
    fn new_texts_of_a_summary_are_limited_and_redacted() {
        let redactor = Redactor::new([("p", "hunter2-hunter2")]);
        let half = "x".repeat(MAX_PROMPT / 2);
        let choices = |more: &str| Some(vec![user(&half), user(&format!("{half}{more}"))]);
        assert!(answer(choices("")).validate(&redactor).is_ok());
        let error = answer(choices("x")).validate(&redactor).unwrap_err();
        assert!(error.contains("adds 262145 bytes to the conversation"), "{error}");

        let mut told = answer(Some(vec![user("a hunter2-hunter2 b")]));
        told.verdict = hooks::Verdict::Cancel("hunter2-hunter2".into());
        let shown = format!("{:?}", told.validate(&redactor).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(shown.matches("[redacted:p]").count(), 2, "{shown}");
    }

    #[test]
    fn size_of_a_response_counts_texts_and_choices() {
        let bytes = |messages| answer(messages).bytes();
        assert_eq!(bytes(None), 0);
        let one = bytes(Some(vec![summary_hooks::Choice::Given(0)]));
        assert!(one > 0, "a million of choices is not free");
        assert_eq!(bytes(Some(vec![user(&"x".repeat(100))])), one + 100);
    }

    #[test]
    fn guest_sees_messages_without_reasoning_and_is_charged_for_them() {
        let response = Message::Assistant {
            parts: vec![
                Part::Reasoning {
                    text: "secret thoughts".into(),
                    opaque: Value::Null,
                },
                Part::text("four"),
                Part::File {
                    blob: Blob {
                        media_type: "a/b".into(),
                        data: vec![0; 5],
                    },
                    opaque: Value::Null,
                },
                Part::Call(CallRequest {
                    id: "1".into(),
                    name: "to".into(),
                    arguments: "{}".into(),
                    opaque: Value::Null,
                }),
            ],
        };
        let result = Message::Tool {
            call_id: "1".into(),
            name: "to".into(),
            content: vec![Content::text("result")],
            is_error: true,
        };
        let messages = [response, result];
        let wire = BeforeSummary(&messages).into_wire();
        assert_eq!(
            BeforeSummary::bytes(&wire),
            4 + (3 + 5) + (1 + 2 + 2) + (1 + 2 + 6)
        );
        let shown = format!("{wire:?}");
        assert!(!shown.contains("thoughts"), "{shown}");
        assert!(
            shown.contains("four") && shown.contains("is-error: true"),
            "{shown}"
        );

        let after = AfterSummary {
            replaced: &messages,
            messages: &[Message::user("summary")],
        };
        let wire = after.into_wire();
        assert_eq!(AfterSummary::bytes(&wire), 26 + 7);
    }
}
