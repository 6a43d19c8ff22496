//! The answer of a tool that did what it was asked.

use serde::Serialize;
use serde_json::Value;

use crate::ToolError;

/// An answer of several parts, in the order in which the model reads them.
///
/// ```
/// use toolcell_sdk::Output;
///
/// let output = Output::new()
///     .text("The plan of the house, and where it came from:")
///     .blob("image/png", b"\x89PNG...")
///     .link("https://example.org/plan", "the original");
/// assert_eq!(output.content.len(), 3);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// What the model reads, in order.
    pub content: Vec<Content>,
    /// A value that fits the tool's output schema.
    pub structured: Option<Value>,
}

/// One part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Plain text or Markdown.
    Text(String),
    /// Bytes with a media type, such as a picture.
    Blob {
        /// Media type, such as `image/png`.
        media_type: String,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Something to be read elsewhere.
    Link {
        /// Where it is.
        uri: String,
        /// What it is called.
        name: String,
        /// Media type, if known.
        media_type: Option<String>,
    },
}

impl Output {
    /// An answer without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.content.push(Content::Text(text.into()));
        self
    }

    /// Adds bytes of a media type.
    #[must_use]
    pub fn blob(mut self, media_type: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.content.push(Content::Blob {
            media_type: media_type.into(),
            data: data.into(),
        });
        self
    }

    /// Adds a link of unknown media type.
    #[must_use]
    pub fn link(mut self, uri: impl Into<String>, name: impl Into<String>) -> Self {
        self.content.push(Content::Link {
            uri: uri.into(),
            name: name.into(),
            media_type: None,
        });
        self
    }

    /// Sets the structured value. Name its type with `#[tool(output = Type)]`, so that the tool has an output schema.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`](crate::ErrorKind::Failed) if the value cannot be written as JSON (a map whose keys are no
    /// text).
    pub fn structured(mut self, value: &impl Serialize) -> Result<Self, ToolError> {
        self.structured = Some(serde_json::to_value(value)?);
        Ok(self)
    }

    /// The text parts, one below the other.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for part in &self.content {
            if let Content::Text(part) = part {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(part);
            }
        }
        text
    }
}
