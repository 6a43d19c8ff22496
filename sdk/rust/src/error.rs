//! Why a tool has no answer.

use std::error::Error;
use std::fmt;

/// What a tool returns: [`std::result::Result`] with a [`ToolError`].
pub type Result<T, E = ToolError> = std::result::Result<T, E>;

/// Why a tool has no answer. The kinds differ in what may help, not in what broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments fit the schema and still make no sense. The model can call again with other arguments.
    InvalidArguments,
    /// Something the tool needs is not granted. Calling again does not help until the policy changes.
    Denied,
    /// A system outside did not answer or asked to wait. The same call may work later.
    Unavailable,
    /// The work was done and the result is a failure, such as a file that does not exist.
    Failed,
}

/// Why a tool has no answer, in words that the model reads.
///
/// Every [`std::error::Error`] becomes one by `?`, with its whole chain of causes as the text. Its kind is
/// [`ErrorKind::Failed`], or [`ErrorKind::Denied`] for an [`std::io::Error`] of the kind `PermissionDenied`, as the host
/// reports everything that the policy does not grant.
///
/// Like `anyhow::Error`, it is no [`std::error::Error`] itself; that is what allows the conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    kind: ErrorKind,
    message: String,
}

impl ToolError {
    /// The arguments make no sense: say which one, why, and what would.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::InvalidArguments, message)
    }

    /// Something is not granted: name it.
    pub fn denied(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// A system outside did not answer: the same call may work later.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The result is a failure.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// What may help.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the model reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Puts words before the message: `what: message`.
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

/// Words for an error that is passed on.
pub trait ResultExt<T> {
    /// Puts words before the error: `what: error`.
    ///
    /// # Errors
    /// The same failure as before, as a [`ToolError`].
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<ToolError>> ResultExt<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }
}

/// One copy for all error types.
fn from_error(error: &(dyn Error + 'static)) -> ToolError {
    let mut message = error.to_string();
    let mut kind = kind_of(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Many errors already print their cause.
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
    fn an_error_carries_its_whole_chain_of_causes() {
        let error = ToolError::from(Outer(std::io::Error::other("disk on fire")));
        assert_eq!(error.to_string(), "cannot read the list: disk on fire");
        assert_eq!(error.kind(), ErrorKind::Failed);
    }

    #[test]
    fn a_denied_permission_anywhere_in_the_chain_makes_the_error_denied() {
        let error = ToolError::from(Outer(std::io::ErrorKind::PermissionDenied.into()));
        assert_eq!(error.kind(), ErrorKind::Denied);
    }

    #[test]
    fn context_goes_before_the_message_and_keeps_the_kind() {
        let failed: std::result::Result<(), _> = Err(ToolError::unavailable("asked to wait"));
        let error = failed.context("`a.txt`").unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Unavailable, "`a.txt`: asked to wait")
        );
    }
}
