//! Differences between an overlay and its directory.

use std::io;
use std::path::PathBuf;

/// One difference between a directory and its overlay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Path below the directory.
    pub path: PathBuf,
    /// Kind of the difference.
    pub kind: ChangeKind,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChangeKind {
    /// Something that is not in the directory. What lies in an added directory is listed as well.
    Added,
    /// A file with other contents, or something of another kind.
    Changed,
    /// Something that is not in the overlay any more, with everything below it.
    Deleted,
}

/// Changes, and what could not be looked at or carried out. One bad entry never hides or stops the others.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// The changes, in order of their paths.
    pub found: Vec<Change>,
    /// Skipped entries, ordered by path.
    pub skipped: Vec<Skipped>,
}

/// An entry that could not be looked at, is not carried out, or could not be.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// Path below the directory.
    pub path: PathBuf,
    /// Reason for skipping it.
    pub reason: io::Error,
}

impl Skipped {
    /// An entry at this path, and why it is skipped.
    pub fn new(path: PathBuf, reason: io::Error) -> Self {
        Self { path, reason }
    }
}
