//! What a path is in a directory, and what an overlay makes of it.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::commit::{open_existing, part};

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A symbolic link, and where it leads.
    Link(PathBuf),
    /// A file.
    File {
        /// Its length in bytes.
        len: u64,
        /// What is in it; `None` if it is longer than was asked for.
        bytes: Option<Vec<u8>>,
    },
    /// Something else, such as a pipe.
    Other,
}

/// What a path of a [`Change`](super::Change) is in the directory, and what it is to be. Of files that are longer than
/// `most` bytes only the length is told. No link is followed.
///
/// # Errors
/// When something that is there cannot be read.
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
    let metadata = match dir.symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Version::Nothing);
        }
        Err(error) => return Err(error),
    };
    if metadata.is_dir() {
        return Ok(Version::Directory);
    }
    if metadata.is_symlink() {
        return dir.read_link_contents(path).map(Version::Link);
    }
    if !metadata.is_file() {
        return Ok(Version::Other);
    }
    let mut bytes = Vec::new();
    let len = metadata.len();
    if len > most {
        return Ok(Version::File { len, bytes: None });
    }
    dir.open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(Version::File {
        len,
        bytes: Some(bytes),
    })
}
