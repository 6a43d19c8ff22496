//! The result of a call, in one shape from the tool to the events of the session.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Content, Receipt, ToolError};

/// Result of one call. A tool returns it, the loop hands it on as it is, and events, reports and hooks carry it.
///
/// A tool answers with [`CallResult::text`], another value of this type, or an error; `?` works in a function that
/// returns `Result<CallResult, ToolError>`, of which [`From`] makes a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Content for the model, in order; for a failed call the text of its error.
    pub content: Vec<Content>,
    /// A JSON value that fits the tool's output schema, if the tool has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Error of the call; `None` when it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
    /// Resources that the call used; `None` if it did not run in a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// True if the call was refused or cancelled before the tool ran.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_run: bool,
}

impl CallResult {
    /// A success with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::text(text)],
            ..Self::default()
        }
    }

    /// A failure, with the words of the error that the model reads.
    pub fn failed(error: ToolError) -> Self {
        Self {
            error: Some(error.clone()),
            ..Self::text(error.for_model())
        }
    }

    /// A failure of a call that did not run.
    pub fn refused(error: ToolError) -> Self {
        let content = match &error {
            ToolError::Cancelled => {
                Content::text("Error: the call was cancelled before it began; nothing was done.")
            }
            error => Content::text(error.for_model()),
        };
        Self {
            content: vec![content],
            error: Some(error),
            not_run: true,
            ..Self::default()
        }
    }

    /// The same result with a receipt.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Receipt) -> Self {
        self.receipt = Some(receipt);
        self
    }

    /// Number of bytes that the model reads.
    pub fn byte_len(&self) -> usize {
        self.content.iter().map(Content::byte_len).sum()
    }

    /// The result of a call that succeeded, or the error of one that failed.
    ///
    /// # Errors
    /// [`CallResult::error`].
    pub fn into_result(self) -> Result<Self, ToolError> {
        match self.error {
            None => Ok(self),
            Some(error) => Err(error),
        }
    }
}

impl From<Result<Self, ToolError>> for CallResult {
    fn from(result: Result<Self, ToolError>) -> Self {
        result.unwrap_or_else(Self::failed)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_is_displayed_as_its_error() {
        let error = ToolError::denied("no", Some("the line for the user".into()));
        let result = CallResult::from(Err(error.clone()));
        assert_eq!(result.content, [Content::text(error.for_model())]);
        assert_eq!(
            (result.byte_len(), result.not_run),
            (error.for_model().len(), false)
        );
        assert_eq!(result.into_result(), Err(error.clone()));
        let refused = CallResult::refused(error.clone());
        assert_eq!((refused.not_run, refused.into_result()), (true, Err(error)));
        let not_begun = CallResult::refused(ToolError::Cancelled);
        let told = "Error: the call was cancelled before it began; nothing was done.";
        assert_eq!(not_begun.content, [Content::text(told)]);
        assert_eq!(CallResult::text("x").into_result(), Ok(CallResult::text("x")));
    }

    #[test]
    fn receipt_is_added_to_a_result() {
        let receipt = Receipt {
            fuel: 7,
            ..Receipt::default()
        };
        let result = CallResult::text("x").with_receipt(receipt.clone());
        assert_eq!((result.byte_len(), result.receipt), (1, Some(receipt)));
    }
}
