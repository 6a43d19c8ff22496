//! Original and changed version of a path in an overlay.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::compare::{open_existing, part};
use super::entry::Entry;

/// Entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// No entry.
    Nothing,
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Link(PathBuf),
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
        /// Contents; `None` if longer than the requested maximum.
        bytes: Option<Vec<u8>>,
    },
    /// Another type of entry, such as a pipe.
    Other,
}

/// Returns the entry at the path of a [`Change`](super::Change) in the directory, and its new version. The contents of
/// files longer than `most` bytes are omitted. No link is followed.
///
/// # Errors
/// If an existing entry cannot be read.
pub fn versions(directory: &Path, overlay: &Path, path: &Path, most: u64) -> io::Result<(Version, Version)> {
    let lower = Dir::open_ambient_dir(directory, ambient_authority())?;
    let upper = match open_existing(overlay)? {
        Some(layers) => part(&layers, "upper")?,
        None => None,
    };
    let new = match upper {
        Some(upper) => version(&upper, path, most)?,
        None => Version::Nothing,
    };
    Ok((version(&lower, path, most)?, new))
}

fn version(dir: &Dir, path: &Path, most: u64) -> io::Result<Version> {
    let Some(entry) = Entry::find(dir, path)? else {
        return Ok(Version::Nothing);
    };
    let metadata = &entry.metadata;
    if metadata.is_dir() {
        return Ok(Version::Directory);
    }
    if metadata.is_symlink() {
        return entry.link().map(Version::Link);
    }
    if !metadata.is_file() {
        return Ok(Version::Other);
    }
    let mut bytes = Vec::new();
    let len = metadata.len();
    if len > most {
        return Ok(Version::File { len, bytes: None });
    }
    entry.open()?.take(most).read_to_end(&mut bytes)?;
    Ok(Version::File {
        len,
        bytes: Some(bytes),
    })
}
