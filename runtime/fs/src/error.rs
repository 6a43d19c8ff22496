//! Why a file is not used.

use std::io;
use std::path::{Path, PathBuf};

/// A file or directory that is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses the operation.
    #[error("could not {action} `{}`", path.display())]
    Io {
        /// The operation, such as `open`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is there and must not be used.
    #[error("`{}` is not used: {reason}", path.display())]
    Refused {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: Refusal,
    },
}

/// What is wrong with a file or directory that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A symbolic link where none is followed.
    #[error("it is a symbolic link")]
    Link,
    /// A directory, pipe, socket or device in the place of a file.
    #[error("it is no regular file but {0}")]
    NotAFile(&'static str),
    /// Something else in the place of a directory.
    #[error("it is no directory but {0}")]
    NotADirectory(&'static str),
    /// It belongs to a user who is not trusted with it.
    #[error("it belongs to another user (uid {0})")]
    OtherOwner(u32),
    /// Every user of the machine may write to it.
    #[error("every user of this machine may write to it")]
    WritableByAll,
    /// The file has a second name, which may be anywhere.
    #[error("it is a hard link: the same file has {0} names")]
    HardLink(u64),
    /// It has more bytes than are read.
    #[error("it has more than {}", size(*.0))]
    TooLarge(u64),
    /// The bytes are not UTF-8 from this one on.
    #[error("byte {0} is no UTF-8")]
    NotUtf8(usize),
}

/// A limit in the largest unit in which it is a whole number.
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

    /// `true` when there is no file or directory of that name.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// What is wrong with the file, where it is there and must not be used.
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
