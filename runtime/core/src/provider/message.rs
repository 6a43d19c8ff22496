//! A conversation, in one shape for every provider.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Content;

/// One message of a conversation. The system prompt is not one: it is [`crate::provider::Request::instructions`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What the person (or the program that embeds the loop) says.
    User {
        /// Text, pictures and files.
        content: Vec<Content>,
    },
    /// What the model answered in one step.
    Assistant {
        /// In the order in which the model produced them; providers demand the order back.
        parts: Vec<Part>,
    },
    /// The result of one call. Each call of an assistant message has exactly one, directly after that message, in the
    /// order of the calls.
    Tool {
        /// Identifier of the call.
        call_id: String,
        /// Name of the tool, as the model wrote it.
        name: String,
        /// What the model reads.
        content: Vec<Content>,
        /// Whether the call failed.
        is_error: bool,
    },
}

/// One part of a model's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text for the person.
    Text {
        /// The text.
        text: String,
        /// What the provider must get back unchanged with this text, in that provider's own shape.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opaque: Value,
    },
    /// The model's reasoning, as far as the provider shows it.
    Reasoning {
        /// What can be shown; may be empty.
        text: String,
        /// What the provider must get back unchanged (signatures, encrypted content), in that provider's own shape.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opaque: Value,
    },
    /// A call that the model asks for.
    Call(CallRequest),
}

/// A call as a model asked for it; nothing of it is checked yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    /// Identifier, made up where the provider gave none. Unique in the conversation.
    pub id: String,
    /// Name of the tool, as the model wrote it; perhaps no tool has it.
    pub name: String,
    /// The arguments as the model wrote them; perhaps no JSON at all.
    pub arguments: String,
    /// What the provider must get back unchanged with this call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

impl Part {
    /// A text with nothing that a provider wants back.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            opaque: Value::Null,
        }
    }
}

impl From<&str> for Message {
    /// A message of the person.
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    /// A message of the person.
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

impl Message {
    /// A message of the person.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User {
            content: vec![Content::text(text)],
        }
    }

    /// An answer of text alone.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant {
            parts: vec![Part::text(text)],
        }
    }

    /// The calls that this message asks for, in order.
    pub fn calls(&self) -> impl Iterator<Item = &CallRequest> {
        let parts: &[Part] = match self {
            Self::Assistant { parts } => parts,
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// All text of this message that is meant for a reader, joined without a separator.
    pub fn text(&self) -> String {
        let of_content = |content: &[Content]| -> String {
            content
                .iter()
                .filter_map(|c| match c {
                    Content::Text { text } => Some(text.as_str()),
                    _ => None,
                })
                .collect()
        };
        match self {
            Self::User { content } | Self::Tool { content, .. } => of_content(content),
            Self::Assistant { parts } => parts
                .iter()
                .filter_map(|p| match p {
                    Part::Text { text, .. } => Some(text.as_str()),
                    _ => None,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> CallRequest {
        CallRequest {
            id: id.into(),
            name: "t".into(),
            arguments: "{}".into(),
            opaque: Value::Null,
        }
    }

    fn answer() -> Message {
        let reasoning = Part::Reasoning {
            text: "hm".into(),
            opaque: Value::Null,
        };
        Message::Assistant {
            parts: vec![
                reasoning,
                Part::text("a"),
                Part::Call(call("1")),
                Part::text("b"),
                Part::Call(call("2")),
            ],
        }
    }

    #[test]
    fn the_calls_of_an_answer_come_in_order() {
        let ids =
            |message: &Message| -> Vec<String> { message.calls().map(|call| call.id.clone()).collect() };
        assert_eq!(ids(&answer()), ["1", "2"]);
        assert!(ids(&Message::user("x")).is_empty());
    }

    #[test]
    fn the_text_of_a_message_is_what_a_reader_sees() {
        assert_eq!(answer().text(), "ab");
        let link = crate::Link {
            uri: "https://example.com".into(),
            name: "n".into(),
            media_type: None,
        };
        let content = vec![Content::text("x"), Content::Link(link), Content::text("y")];
        assert_eq!(Message::User { content }.text(), "xy");
    }
}
