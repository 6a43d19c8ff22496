//! Files that a database library opens by path.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{FileError, Refusal};
use crate::write::{self, PRIVATE};

/// Ensures that a database and the files that SQLite keeps beside it are regular files of this user; creates the
/// database with owner-only permissions if it does not exist. Returns its path without symbolic links, to be opened
/// without following any.
///
/// # Errors
/// If one of them is not a regular file, belongs to another user, or cannot be created.
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
    // An existing file is not opened: closing it would release the locks that this process holds on it
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
    // The database, and the files that SQLite keeps beside it (<https://www.sqlite.org/tempfiles.html>).
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
