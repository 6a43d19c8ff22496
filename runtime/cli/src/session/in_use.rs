//! Marks of sessions in use, so that a second process is told at once and no session in use is deleted.
//!
//! A mark is an exclusive lock on a file of the session. The system releases it when the process ends, however it ends.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toolcell_fs::FileError;

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::terminal::{Text, text};

/// Directory of the marks in the state directory.
const DIRECTORY: &str = "in-use";

/// Maximum length of a file name, in bytes; file systems allow 255.
const MAX_NAME: usize = 200;

/// Maximum size of a mark that is read, in bytes: the number of a process.
const MAX_MARK: u64 = 20;

/// Number of attempts while other processes remove their marks.
const ATTEMPTS: usize = 100;

/// Number of attempts at a session in use, and the pause between them: a process that only looks holds it for an instant.
const LOOKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);

/// Mark of a session that this process uses. Dropping it releases the session.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    file: File,
}

/// Another process that uses a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    id: String,
    /// Number of the process, if it could be read.
    process: Option<u32>,
}

/// Marks a session as in use, or returns its user.
///
/// # Errors
/// Returns an error if the mark cannot be written.
pub(crate) fn take(id: &str, environment: &Environment) -> Result<Result<Mark, User>, Failure> {
    let fail = || Failure::new(Exit::Io, text!("could not mark the session `{}` as in use", id));
    let state = environment.state_dir.as_ref();
    let directory = state
        .ok_or_else(|| fail().why("there is no home directory"))?
        .join(DIRECTORY);
    let taken = toolcell_fs::private_dir(&directory).and_then(|directory| lock(directory.join(name(id))));
    match taken {
        Ok(Lock::Taken(mark)) => Ok(Ok(mark)),
        Ok(Lock::Held(process)) => Ok(Err(User {
            id: id.to_owned(),
            process,
        })),
        Ok(Lock::Failed(error)) => Err(fail().because(error)),
        Err(error) => Err(fail().because(error)),
    }
}

/// Marks a session as in use.
///
/// # Errors
/// Returns an error if another process uses it, or the mark cannot be written.
pub(crate) fn mark(id: &str, environment: &Environment) -> Result<Mark, Failure> {
    take(id, environment)?.map_err(|user| user.failure())
}

/// Returns a process that uses a session, if there is one.
///
/// # Errors
/// Returns an error if the marks cannot be read.
pub(crate) fn any(environment: &Environment) -> Result<Option<User>, Failure> {
    let fail = || Failure::new(Exit::Io, "could not find out which sessions are in use");
    let Some(directory) = environment.state_dir.as_ref().map(|dir| dir.join(DIRECTORY)) else {
        return Ok(None);
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail().because(error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| fail().because(error))?;
        match lock(entry.path()).map_err(|error| fail().because(error))? {
            Lock::Taken(_) => {}
            Lock::Held(process) => {
                let id = entry.file_name().to_string_lossy().into_owned();
                return Ok(Some(User { id, process }));
            }
            Lock::Failed(error) => return Err(fail().because(error)),
        }
    }
    Ok(None)
}

impl User {
    /// Describes the user.
    pub(crate) fn shown(&self) -> Text {
        match self.process {
            Some(process) => text!("process {}", process),
            None => "another process".into(),
        }
    }

    /// The failure of a command that would have to wait.
    pub(crate) fn failure(&self) -> Failure {
        let id = escape::shell(&self.id);
        Failure::new(
            Exit::Conflict,
            text!("the session `{}` is in use by {}", self.id, self.shown()),
        )
        .hint(text!("to watch it: toolcell session show {} --follow", id))
        .hint(text!("to continue from a copy: toolcell session fork {}", id))
    }
}

enum Lock {
    Taken(Mark),
    Held(Option<u32>),
    Failed(std::io::Error),
}

fn lock(path: PathBuf) -> Result<Lock, FileError> {
    let mut looks = 0;
    for _ in 0..ATTEMPTS {
        let mut file = match toolcell_fs::append(&path) {
            Ok((file, _)) => file,
            // Removed by its user between two looks.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if looks < LOOKS => {
                looks += 1;
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(TryLockError::WouldBlock) => return Ok(Lock::Held(process_in(&mut file))),
            Err(TryLockError::Error(error)) => return Ok(Lock::Failed(error)),
        }
        // Another process may have removed this file and made a new one before the lock was taken.
        if !is_at(&path, &file) {
            continue;
        }
        let written = file
            .set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()));
        if let Err(error) = written {
            return Ok(Lock::Failed(error));
        }
        return Ok(Lock::Taken(Mark { path, file }));
    }
    Ok(Lock::Held(None))
}

fn is_at(path: &Path, file: &File) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

fn process_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MAX_MARK).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

/// File name of a session, whatever its identifier contains. Identifiers are UUIDs unless another program made them.
fn name(id: &str) -> String {
    let mut name = String::new();
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("_{byte:02x}"));
        }
    }
    name.truncate(MAX_NAME);
    name
}

impl Drop for Mark {
    fn drop(&mut self) {
        // A mark that stays is without a lock, and used again.
        let _ = toolcell_fs::remove_if_same(&self.path, &self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(dir: &Path) -> Environment {
        let mut environment = Environment::for_tests(dir, &[]);
        environment.state_dir = Some(dir.join("state"));
        environment
    }

    #[test]
    fn session_has_one_user_until_its_mark_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        let first = mark("a", &environment).unwrap();
        let user = take("a", &environment).unwrap().unwrap_err();
        assert_eq!(user.process, Some(std::process::id()));
        mark("b", &environment).unwrap();
        drop(first);
        let _again = mark("a", &environment).unwrap();
        assert_eq!(mark("a", &environment).unwrap_err().exit, Exit::Conflict);
    }

    #[test]
    fn mark_of_ended_process_does_not_hold_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        let left = dir.path().join("state").join(DIRECTORY);
        toolcell_fs::private_dir(&left).unwrap();
        toolcell_fs::replace(&left.join("a"), b"4242", toolcell_fs::PRIVATE).unwrap();
        drop(mark("a", &environment).unwrap());
        assert!(!left.join("a").exists());
    }

    #[test]
    fn identifier_of_any_form_stays_in_the_directory() {
        assert_eq!(name("0199f3c2-7a5e"), "0199f3c2-7a5e");
        assert_eq!(name("../é"), "_2e_2e_2f_c3_a9");
        assert_eq!(name(&"/".repeat(500)).len(), MAX_NAME);
        let dir = tempfile::tempdir().unwrap();
        drop(mark("../../x", &environment(dir.path())).unwrap());
    }
}
