//! Entries of a layer, reached by names of which none is followed where it is a link.
//!
//! What lies behind a link in one layer is not at that path: the other layer may have a directory in its place.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::{Dir, Metadata};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::files::dir::ENTER;

/// An entry that exists, and the directory that holds it.
pub(super) struct Entry {
    dir: Dir,
    name: PathBuf,
    pub(super) metadata: Metadata,
}

impl Entry {
    /// Finds the entry at a path; `None` if there is none.
    pub(super) fn find(root: &Dir, path: &Path) -> io::Result<Option<Self>> {
        let dir = match enter(root, above(path)) {
            Err(error) if is_missing(&error) => return Ok(None),
            dir => Dir::from_std_file(dir?),
        };
        let name = PathBuf::from(path.file_name().unwrap_or_default());
        match dir.symlink_metadata(&name) {
            Ok(metadata) => Ok(Some(Self { dir, name, metadata })),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file for reading. It follows no link and waits for no other program, also if the entry was replaced since.
    ///
    /// # Errors
    /// The entry is no regular file, or cannot be opened.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.dir, &self.name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns the target of a link.
    pub(super) fn link(&self) -> io::Result<PathBuf> {
        self.dir.read_link_contents(&self.name)
    }
}

/// Opens a directory below `root` by its names, none of which is followed where it is a link.
pub(super) fn enter(root: impl AsFd, path: &Path) -> io::Result<File> {
    let mut here = openat(root, ".", ENTER, Mode::empty())?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        here = match openat(&here, name, ENTER, Mode::empty()) {
            // Some systems say so of a link.
            Err(Errno::LOOP) => return Err(Errno::NOTDIR.into()),
            entered => entered?,
        };
    }
    Ok(here.into())
}

/// The path of the directory that holds a path; empty for the granted one itself.
pub(super) fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
