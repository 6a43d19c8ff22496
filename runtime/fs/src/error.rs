//! Errors of file access.

use std::io;
use std::path::{Path, PathBuf};

/// Error of accessing a file or directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system rejects the operation.
    #[error("could not {action} `{}`", path.display())]
    Io {
        /// Operation, such as `open`.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file exists and must not be used.
    #[error("refusing to use `{}`: {reason}", path.display())]
    Refused {
        /// Path of the file or directory.
        path: PathBuf,
        /// Reason of the refusal.
        #[source]
        reason: Refusal,
    },
}

/// Reason why an existing file or directory is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A symbolic link where none is allowed.
    #[error("it is a symbolic link")]
    Link,
    /// A directory, pipe, socket or device instead of a file.
    #[error("it is not a regular file but {0}")]
    NotAFile(&'static str),
    /// Another kind of file instead of a directory.
    #[error("it is not a directory but {0}")]
    NotADirectory(&'static str),
    /// It belongs to an untrusted user.
    #[error("it belongs to another user (uid {0})")]
    OtherOwner(u32),
    /// It is writable by every user of the machine.
    #[error("it is writable by every user of this machine")]
    WritableByAll,
    /// The file has several hard links, which may be anywhere.
    #[error("it is a hard link: the same file has {0} names")]
    HardLink(u64),
    /// The size exceeds the limit, in bytes.
    #[error("it is larger than {}", size(*.0))]
    TooLarge(u64),
    /// The content is invalid UTF-8 from this byte on.
    #[error("invalid UTF-8 at byte {0}")]
    NotUtf8(usize),
}

/// Formats a size in the largest unit in which it is an integer.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes > 0 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

impl FileError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn refused(path: &Path, reason: Refusal) -> Self {
        Self::Refused {
            path: path.to_owned(),
            reason,
        }
    }

    /// Returns `true` if the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the reason of the refusal if the file exists and must not be used.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            Self::Io { .. } => None,
        }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        let kind = match &error {
            FileError::Io { source, .. } => source.kind(),
            FileError::Refused { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn refused_file_keeps_its_reason_as_source() {
        let refused = || FileError::Refused {
            path: "/etc/x".into(),
            reason: Refusal::Link,
        };
        let error = refused();
        let source = error.source().unwrap().downcast_ref::<Refusal>();
        assert_eq!(
            (source, error.refusal()),
            (Some(&Refusal::Link), Some(Refusal::Link))
        );
        let error = io::Error::from(refused());
        assert_eq!(error.kind(), io::ErrorKind::Other);
        let inner = error.get_ref().unwrap().downcast_ref::<FileError>().unwrap();
        assert_eq!(inner.refusal(), Some(Refusal::Link));
    }
}
