//! Result of a successful call.

use serde::Serialize;
use serde_json::Value;

use crate::ToolError;

/// Result with several parts, in the order in which the model gets them.
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
    /// Content for the model, in order.
    pub content: Vec<Content>,
    /// Structured value that fits the tool's output schema.
    pub structured: Option<Value>,
}

/// Part of a result.
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
    /// Link to a resource.
    Link {
        /// URI of the resource.
        uri: String,
        /// Display name.
        name: String,
        /// Media type, if known.
        media_type: Option<String>,
    },
}

impl Output {
    /// Creates an empty result.
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

    /// Sets the structured value. Declare its type with `#[tool(output = Type)]`, so that the tool has an output
    /// schema.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`](crate::ErrorKind::Failed) if the value cannot be serialised as JSON (a map with non-string
    /// keys).
    pub fn structured(mut self, value: &impl Serialize) -> Result<Self, ToolError> {
        self.structured = Some(serde_json::to_value(value)?);
        Ok(self)
    }

    /// Concatenates the text parts, separated by line ends.
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
