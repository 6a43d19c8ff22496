//! Database files of the user, of the sessions and of the buckets: why one cannot be used, and how to begin a new one.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::components::buckets;
use crate::environment::Environment;
use crate::error::{Exit, FREE_SPACE, Failure};
use crate::session::store;
use crate::ui::render::Console;
use crate::ui::terminal::{Own, text};

/// Endings of the files of a database. The database is last: without it, the others could be taken for those of a new one.
const ENDINGS: [&str; 3] = ["-shm", "-wal", ""];

/// A database file of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    /// Saved sessions.
    Sessions,
    /// Buckets of tools.
    Buckets,
}

impl Database {
    /// What the file holds.
    fn contents(self) -> &'static str {
        match self {
            Self::Sessions => "the saved sessions",
            Self::Buckets => "the buckets",
        }
    }

    /// Hint for a file that cannot be read any more.
    fn set_aside_hint(self) -> &'static str {
        match self {
            Self::Sessions => {
                "to begin with a new file, and keep this one beside it: toolcell session set-aside"
            }
            Self::Buckets => {
                "to begin with a new file, and keep this one beside it: toolcell bucket set-aside"
            }
        }
    }

    fn path(self, environment: &Environment) -> Option<PathBuf> {
        match self {
            Self::Sessions => store::path_of(environment),
            Self::Buckets => buckets::path(environment),
        }
    }

    /// Creates the failure for an error of the file.
    pub(crate) fn unusable(self, environment: &Environment, error: anyhow::Error) -> Failure {
        let contents = Own(self.contents());
        let what = match self.path(environment) {
            Some(path) => text!("{} in `{}` cannot be used", contents, environment.shown(&path)),
            None => text!("{} cannot be used", contents),
        };
        let (why, hint) = self.defect(error.as_ref());
        let exit = if why.is_some() { Exit::Io } else { Exit::Config };
        let failure = Failure::new(exit, what);
        let failure = match why {
            Some(why) => failure.why(why),
            None => failure,
        };
        failure.because(error).hints(hint)
    }

    /// Says in plain words why the file cannot be used, and what to do, if that is known.
    pub(crate) fn defect(
        self,
        error: &(dyn Error + 'static),
    ) -> (Option<&'static str>, Option<&'static str>) {
        if toolcell_store::is_damaged(error) {
            let why = "the file is damaged, or of another program or version";
            return (Some(why), Some(self.set_aside_hint()));
        }
        if toolcell_store::is_full(error) {
            return (Some("the disk is full"), Some(FREE_SPACE));
        }
        (None, None)
    }

    /// Renames the file, so that a new one begins. Nothing is deleted.
    ///
    /// # Errors
    /// Returns an error if there is no directory for it, or if it cannot be renamed.
    pub(crate) fn set_aside(self, environment: &Environment, console: &Console) -> Result<(), Failure> {
        let contents = Own(self.contents());
        let fail = || Failure::new(Exit::Io, text!("{} could not be set aside", contents));
        let path = self
            .path(environment)
            .ok_or_else(|| fail().why("there is no home directory"))?;
        match rename(&path).map_err(|error| fail().because(error))? {
            Some(to) => console.note(text!("{} are now in `{}`", contents, environment.shown(&to))),
            None => console.note(text!("`{}` does not exist", environment.shown(&path))),
        }
        Ok(())
    }
}

/// Renames the files of a database, and returns the new name; `None` if there are none.
fn rename(path: &Path) -> io::Result<Option<PathBuf>> {
    let to = free_name(path)?;
    let mut is_moved = false;
    for ending in ENDINGS {
        match std::fs::rename(with(path, ending), with(&to, ending)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => {
                renamed?;
                is_moved = true;
            }
        }
    }
    Ok(is_moved.then_some(to))
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// A name beside the file that nothing has: `sessions-1790000000.sqlite`, with the time in seconds.
fn free_name(path: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let stem = path.file_stem().unwrap_or_default();
    for number in now.. {
        let mut name = stem.to_owned();
        name.push(format!("-{number}.sqlite"));
        let name = path.with_file_name(name);
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
