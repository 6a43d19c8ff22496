//! Files that a database library opens by their path.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{FileError, Refusal};
use crate::write::{self, PRIVATE};

/// Makes sure that a database is a regular file of this user, and so are the files that SQLite keeps beside it; makes it
/// where it does not exist, for its owner alone. Returns its path without symbolic links, for opening without following
/// any.
///
/// # Errors
/// When one of them is something else, belongs to somebody else, or cannot be made.
pub fn database(path: &Path) -> Result<PathBuf, FileError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let directory = directory
        .canonicalize()
        .map_err(FileError::io("open", directory))?;
    let name = path
        .file_name()
        .ok_or_else(|| FileError::refused(path, Refusal::NotAFile("a directory")))?;
    let real = directory.join(name);
    // A file that is there is not opened: closing it again would give up the locks that this process holds on it
    // (<https://www.sqlite.org/howtocorrupt.html>, 2.2).
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(&real);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FileError::io("make", path)(error));
        }
        _ => {}
    }
    // The database, and what SQLite keeps beside it (<https://www.sqlite.org/tempfiles.html>).
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut beside = OsString::from(&real);
        beside.push(ending);
        let beside = PathBuf::from(beside);
        match fs::symlink_metadata(&beside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => {
                let metadata = found.map_err(FileError::io("examine", &beside))?;
                write::own(&metadata).map_err(|reason| FileError::refused(&beside, reason))?;
            }
        }
    }
    Ok(real)
}
