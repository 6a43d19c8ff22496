//! Errors of tools.

use std::error::Error;
use std::fmt;

/// Result of a tool: [`std::result::Result`] with a [`ToolError`].
pub type Result<T, E = ToolError> = std::result::Result<T, E>;

/// Kind of a [`ToolError`], by what the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Arguments that fit the schema but are invalid. The model can call again with other arguments.
    InvalidArguments,
    /// Missing grant. Calling again does not help until the policy changes.
    Denied,
    /// An external system did not answer or asked to wait. The same call may succeed later.
    Unavailable,
    /// The operation failed, for example because a file does not exist.
    Failed,
}

/// Error of a tool, with a message for the model.
///
/// Every [`std::error::Error`] is converted by `?`, with its whole chain of causes as the message. Its kind is
/// [`ErrorKind::Failed`], or [`ErrorKind::Denied`] for an [`std::io::Error`] of kind `PermissionDenied`, which the host
/// returns for anything that the policy does not grant.
///
/// Like `anyhow::Error`, it does not implement [`std::error::Error`] itself, which would conflict with the conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    kind: ErrorKind,
    message: String,
}

impl ToolError {
    /// Invalid arguments: the message should name the argument, the reason and valid values.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::InvalidArguments, message)
    }

    /// Missing grant: the message should name it.
    pub fn denied(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// An external system did not answer: the same call may succeed later.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The operation failed.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Message for the model.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prefixes the message: `what: message`.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string(),
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        from_error(&error)
    }
}

/// Context for converted errors.
pub trait ResultExt<T> {
    /// Prefixes the error: `what: error`.
    ///
    /// # Errors
    /// The same error as a [`ToolError`].
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<ToolError>> ResultExt<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }
}

/// Not generic, so that all error types share one copy of the code.
pub(crate) fn from_error(error: &(dyn Error + 'static)) -> ToolError {
    let mut message = error.to_string();
    let mut kind = kind_of(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Many errors already include their cause.
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        if kind_of(error) == ErrorKind::Denied {
            kind = ErrorKind::Denied;
        }
        cause = error.source();
    }
    ToolError { kind, message }
}

fn kind_of(error: &(dyn Error + 'static)) -> ErrorKind {
    match error.downcast_ref::<std::io::Error>() {
        Some(error) if error.kind() == std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot read the list")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn error_includes_its_chain_of_causes() {
        let error = ToolError::from(Outer(std::io::Error::other("disk on fire")));
        assert_eq!(error.to_string(), "cannot read the list: disk on fire");
        assert_eq!(error.kind(), ErrorKind::Failed);
    }

    #[test]
    fn permission_denied_in_the_chain_gives_kind_denied() {
        let error = ToolError::from(Outer(std::io::ErrorKind::PermissionDenied.into()));
        assert_eq!(error.kind(), ErrorKind::Denied);
    }

    #[test]
    fn context_prefixes_the_message_and_keeps_the_kind() {
        let failed: std::result::Result<(), _> = Err(ToolError::unavailable("asked to wait"));
        let error = failed.context("`a.txt`").unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Unavailable, "`a.txt`: asked to wait")
        );
    }
}
