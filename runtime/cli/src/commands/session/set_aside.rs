//! `toolcell session set-aside`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::{in_use, store};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Endings of the files of the store. The database is last: without it, the others could be taken for those of a new one.
const ENDINGS: [&str; 3] = ["-shm", "-wal", ""];

/// Rename the file of all sessions, so that the next session begins a new one.
///
/// For a file that is damaged or was made by a newer version. Nothing is deleted: the old file stays beside the new one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell session set-aside")]
pub(crate) struct SetAside {}

impl SetAside {
    pub(super) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let fail = || Failure::new(Exit::Io, "the session store could not be set aside");
        if let Some(user) = in_use::any(environment)? {
            return Err(user.failure().without_hints().hint("end it first"));
        }
        let path = store::path_of(environment).ok_or_else(|| fail().why("there is no home directory"))?;
        let to = free_name(&path).map_err(|error| fail().because(error))?;
        let mut moved = false;
        for ending in ENDINGS {
            match std::fs::rename(with(&path, ending), with(&to, ending)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => {
                    renamed.map_err(|error| fail().because(error))?;
                    moved = true;
                }
            }
        }
        if moved {
            console.note(text!("the sessions are now in `{}`", environment.shown(&to)));
        } else {
            console.note("there are no sessions");
        }
        Ok(Exit::Ok)
    }
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// A name beside the file that nothing has.
fn free_name(path: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    for number in now.. {
        let name = path.with_file_name(format!("sessions-{number}.sqlite"));
        let mut is_free = true;
        for ending in ENDINGS {
            match std::fs::symlink_metadata(with(&name, ending)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(_) => is_free = false,
            }
        }
        if is_free {
            return Ok(name);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
