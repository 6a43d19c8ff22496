//! Messages of a conversation, in one format for every provider.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Blob, Content};

/// One message of a conversation. The system prompt is separate: [`crate::provider::Request::instructions`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Message of the user or of the embedder.
    User {
        /// Text, pictures and files.
        content: Vec<Content>,
    },
    /// Response of the model in one step.
    Assistant {
        /// Parts in the order in which the model produced them; providers require this order.
        parts: Vec<Part>,
    },
    /// Result of one call. Each call of an assistant message has exactly one, directly after that message, in the order
    /// of the calls.
    Tool {
        /// Identifier of the call.
        call_id: String,
        /// Name of the tool, as written by the model.
        name: String,
        /// Content for the model.
        content: Vec<Content>,
        /// True if the call failed.
        is_error: bool,
    },
}

/// One part of a model's response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text for the user.
    Text {
        /// The text itself.
        text: String,
        /// Provider-specific data that must be sent back unchanged with this text.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opaque: Value,
    },
    /// Reasoning of the model, as far as the provider returns it.
    Reasoning {
        /// Readable reasoning; may be empty.
        text: String,
        /// Provider-specific data that must be sent back unchanged (signatures, encrypted content).
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opaque: Value,
    },
    /// A picture or another file that the model made.
    File {
        /// The file.
        #[serde(flatten)]
        blob: Blob,
        /// Provider-specific data that must be sent back unchanged with this file.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opaque: Value,
    },
    /// A call requested by the model.
    Call(CallRequest),
}

/// A call as requested by a model, not validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    /// Identifier, generated if the provider sent none. Unique in the conversation.
    pub id: String,
    /// Name of the tool, as written by the model; the tool may not exist.
    pub name: String,
    /// Arguments as written by the model; may be invalid JSON.
    pub arguments: String,
    /// Provider-specific data that must be sent back unchanged with this call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub opaque: Value,
}

impl Part {
    /// Creates a text part without provider data.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            opaque: Value::Null,
        }
    }
}

impl From<&str> for Message {
    /// Creates a user message.
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Message {
    /// Creates a user message.
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

impl Message {
    /// Creates a user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User {
            content: vec![Content::text(text)],
        }
    }

    /// Creates an assistant message of one text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant {
            parts: vec![Part::text(text)],
        }
    }

    /// Returns the calls requested by this message, in order.
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

    /// Returns the pictures and other files that a model made, in order.
    pub fn files(&self) -> impl Iterator<Item = &Blob> {
        let parts: &[Part] = match self {
            Self::Assistant { parts } => parts,
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            Part::File { blob, .. } => Some(blob),
            _ => None,
        })
    }

    /// Returns the visible text of this message. The texts of a user begin on lines of their own: the prompt, and what was
    /// attached to it. Those of a model and of a tool are pieces of one text.
    pub fn text(&self) -> String {
        fn texts(content: &[Content]) -> impl Iterator<Item = &str> {
            content.iter().filter_map(|part| match part {
                Content::Text { text } => Some(text.as_str()),
                _ => None,
            })
        }
        match self {
            Self::User { content } => texts(content).fold(String::new(), |mut all, text| {
                if !all.is_empty() && !all.ends_with('\n') {
                    all.push('\n');
                }
                all + text
            }),
            Self::Tool { content, .. } => texts(content).collect(),
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
    fn calls_of_an_answer_come_in_order() {
        let ids =
            |message: &Message| -> Vec<String> { message.calls().map(|call| call.id.clone()).collect() };
        assert_eq!(ids(&answer()), ["1", "2"]);
        assert!(ids(&Message::user("x")).is_empty());
    }

    #[test]
    fn file_of_an_answer_is_base64_in_json_and_no_text() {
        let blob = Blob {
            media_type: "image/png".into(),
            data: vec![255, 0],
        };
        let file = Part::File {
            blob: blob.clone(),
            opaque: Value::Null,
        };
        let message = Message::Assistant {
            parts: vec![Part::text("a"), file],
        };
        let json = serde_json::to_value(&message).unwrap();
        let expected = serde_json::json!({"type": "file", "media_type": "image/png", "data": "/wA="});
        assert_eq!(json["parts"][1], expected);
        assert_eq!(serde_json::from_value::<Message>(json).unwrap(), message);
        assert_eq!((message.text().as_str(), message.files().count()), ("a", 1));
        assert_eq!(message.files().next(), Some(&blob));
    }

    #[test]
    fn text_of_a_message_is_what_a_reader_sees() {
        assert_eq!(answer().text(), "ab");
        let link = crate::Link {
            uri: "https://example.com".into(),
            name: "n".into(),
            media_type: None,
        };
        let content = vec![Content::text("x"), Content::Link(link), Content::text("y")];
        assert_eq!(Message::User { content }.text(), "x\ny");
    }
}
