//! Hook points around a summary: messages that a hook keeps, drops, reorders and adds.

use super::{Turn, Verdict, wire};
use crate::Content;
use crate::generated::hook::exports::toolcell::tool::summary_hooks as contract;

/// Older part of a conversation, which the model is about to summarise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PendingSummary {
    /// Messages that the model summarises, as left by earlier hooks. May be changed. All of them will be replaced by the
    /// summary, also those that are removed here.
    pub messages: Vec<Message>,
}

/// Summary that the model has written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FinishedSummary {
    /// Messages of the conversation that will be replaced. A hook can move some of them to `messages`.
    pub replaced: Vec<Message>,
    /// Messages that replace them, as left by earlier hooks: at first a heading of the user and the summary of the model.
    /// May be changed.
    pub messages: Vec<Message>,
}

/// Message of a conversation. A message that was received stays as it is; it can be kept once, moved or removed.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    role: Role,
    content: Vec<Content>,
    calls: Vec<RequestedCall>,
    result: Option<ResultOf>,
    origin: Origin,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool: the message is the result of a call.
    Tool,
}

/// Call requested by a message of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedCall {
    /// Identifier of the call, unique in the conversation.
    pub id: String,
    /// Name of the tool. It may not exist.
    pub tool: String,
    /// Arguments as written by the model, which may be invalid JSON.
    pub arguments: String,
}

/// Call that a message is the result of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResultOf {
    call: String,
    tool: String,
    is_error: bool,
}

/// Source of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Given(u32),
    Replaced(u32),
    New,
}

impl Message {
    /// Creates a message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, text.into())
    }

    /// Creates a message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, text.into())
    }

    fn new(role: Role, text: String) -> Self {
        Self {
            role,
            content: vec![Content::Text(text)],
            calls: Vec::new(),
            result: None,
            origin: Origin::New,
        }
    }

    /// Author of the message.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Texts, pictures and files. Reasoning of the model is left out.
    pub fn content(&self) -> &[Content] {
        &self.content
    }

    /// Text of the message.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Calls that a message of the model requests. Their results follow as messages. A call that is kept without its
    /// result counts as interrupted, and a result without its call is left out.
    pub fn calls(&self) -> &[RequestedCall] {
        &self.calls
    }

    /// Identifier of the call that this is the result of.
    pub fn call_id(&self) -> Option<&str> {
        self.result.as_ref().map(|of| of.call.as_str())
    }

    /// Name of the tool that this is the result of.
    pub fn tool(&self) -> Option<&str> {
        self.result.as_ref().map(|of| of.tool.as_str())
    }

    /// True if it is the result of a failed call.
    pub fn is_error(&self) -> bool {
        self.result.as_ref().is_some_and(|of| of.is_error)
    }

    fn received(message: contract::Message, origin: Origin) -> Self {
        let mut received = Self {
            role: Role::User,
            content: Vec::new(),
            calls: Vec::new(),
            result: None,
            origin,
        };
        match message {
            contract::Message::User(content) => received.content = wire::contents(content),
            contract::Message::Assistant(response) => {
                received.role = Role::Assistant;
                received.content = wire::contents(response.content);
                let call = |call: contract::RequestedCall| RequestedCall {
                    id: call.id,
                    tool: call.tool,
                    arguments: call.arguments,
                };
                received.calls = response.calls.into_iter().map(call).collect();
            }
            contract::Message::Tool(result) => {
                received.role = Role::Tool;
                received.content = wire::contents(result.content);
                received.result = Some(ResultOf {
                    call: result.id,
                    tool: result.tool,
                    is_error: result.is_error,
                });
            }
        }
        received
    }

    fn choice(self) -> contract::Choice {
        match (self.origin, self.role) {
            (Origin::Given(index), _) => contract::Choice::Given(index),
            (Origin::Replaced(index), _) => contract::Choice::Replaced(index),
            (Origin::New, Role::Assistant) => contract::Choice::Assistant(self.text()),
            (Origin::New, Role::User | Role::Tool) => contract::Choice::User(self.text()),
        }
    }
}

impl PendingSummary {
    pub(super) fn received(asked: contract::PendingSummary) -> Self {
        Self {
            messages: received(asked.messages, Origin::Given),
        }
    }
}

impl FinishedSummary {
    pub(super) fn received(asked: contract::FinishedSummary) -> Self {
        Self {
            replaced: received(asked.replaced, Origin::Replaced),
            messages: received(asked.messages, Origin::Given),
        }
    }
}

fn received(messages: Vec<contract::Message>, origin: fn(u32) -> Origin) -> Vec<Message> {
    let numbered = (0..).zip(messages);
    numbered
        .map(|(index, message)| Message::received(message, origin(index)))
        .collect()
}

pub(super) fn answer(
    decided: Verdict,
    messages: Vec<Message>,
    was: &[Message],
    turn: Turn,
) -> contract::SummaryAnswer {
    let changed = messages != was;
    contract::SummaryAnswer {
        verdict: wire::verdict(decided),
        messages: changed.then(|| messages.into_iter().map(Message::choice).collect()),
        effects: wire::effects(turn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::hook::exports::toolcell::tool::hooks;
    use crate::generated::tool::toolcell::tool::types;

    fn text(text: &str) -> Vec<types::Content> {
        vec![types::Content::Text(text.into())]
    }

    fn asked() -> FinishedSummary {
        let call = contract::RequestedCall {
            id: "1".into(),
            tool: "t".into(),
            arguments: "{}".into(),
        };
        let response = contract::Response {
            content: text("I call"),
            calls: vec![call],
        };
        let result = contract::CallResult {
            id: "1".into(),
            tool: "t".into(),
            content: text("result"),
            is_error: true,
        };
        FinishedSummary::received(contract::FinishedSummary {
            replaced: vec![
                contract::Message::User(text("question")),
                contract::Message::Assistant(response),
                contract::Message::Tool(result),
            ],
            messages: vec![
                contract::Message::User(text("heading")),
                contract::Message::User(text("summary")),
            ],
            context: Vec::new(),
        })
    }

    #[test]
    fn received_messages_show_calls_and_their_results() {
        let asked = asked();
        let [question, response, result] = asked.replaced.as_slice() else {
            panic!("{asked:?}");
        };
        assert_eq!(
            (question.role(), question.text().as_str()),
            (Role::User, "question")
        );
        assert_eq!((response.role(), response.calls().len()), (Role::Assistant, 1));
        assert_eq!(response.calls()[0].tool, "t");
        assert_eq!((result.role(), result.call_id()), (Role::Tool, Some("1")));
        assert_eq!((result.tool(), result.is_error()), (Some("t"), true));
        assert_eq!((question.call_id(), question.is_error()), (None, false));
    }

    #[test]
    fn kept_messages_are_sent_by_index_and_new_ones_as_text() {
        let FinishedSummary {
            mut replaced,
            mut messages,
        } = asked();
        let was = messages.clone();
        let unchanged = answer(Verdict::Proceed, messages.clone(), &was, Turn::default());
        assert!(unchanged.messages.is_none());

        messages.remove(0);
        messages.push(replaced.remove(2));
        messages.push(Message::assistant("mine"));
        messages.push(Message::user("yours"));
        let sent = answer(Verdict::cancel("no"), messages, &was, Turn::default());
        assert!(matches!(sent.verdict, hooks::Verdict::Cancel(_)));
        let sent = sent.messages.unwrap_or_default();
        let [
            contract::Choice::Given(1),
            contract::Choice::Replaced(2),
            contract::Choice::Assistant(mine),
            contract::Choice::User(yours),
        ] = sent.as_slice()
        else {
            panic!("{sent:?}");
        };
        assert_eq!((mine.as_str(), yours.as_str()), ("mine", "yours"));
    }
}
