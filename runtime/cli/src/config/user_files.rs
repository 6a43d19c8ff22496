//! Files of the user and of projects: lists of the state directory, and why a file is not used.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use toolcell_fs::{FileError, Refusal, Rules};

use crate::environment::Environment;
use crate::error::Failure;

/// Largest list of the state directory that is read, in bytes.
const MAX_LIST_BYTES: u64 = 4 << 20;

/// Name of the user's configuration file, in the directory for configuration.
pub(crate) const USER_FILE: &str = "config.toml";

/// Where the person's file lies, whether it exists or not.
pub(crate) fn user_file(environment: &Environment) -> Option<PathBuf> {
    environment.config_dir.as_ref().map(|dir| dir.join(USER_FILE))
}

/// Where the person's file lies, as a person reads it.
pub(crate) fn user_file_shown(environment: &Environment) -> String {
    user_file(environment).map_or_else(
        || "your own configuration".into(),
        |path| environment.shown(&path),
    )
}

/// Reads a list that is kept in the state directory; a file that does not exist holds none.
///
/// # Errors
/// When the file cannot be used, or holds something else.
pub(crate) fn read_list<T: DeserializeOwned>(file: &Path) -> io::Result<Vec<T>> {
    match toolcell_fs::read(file, &Rules::own(MAX_LIST_BYTES)) {
        Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Puts a whole list in the place of the old one, so that no reader sees half of it. Nobody else reads it.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_list<T: Serialize>(file: &Path, list: &[T]) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        toolcell_fs::private_dir(dir)?;
    }
    let text = serde_json::to_vec_pretty(list).map_err(io::Error::other)?;
    Ok(toolcell_fs::replace(file, &text, toolcell_fs::PRIVATE)?)
}

/// Adds the reason and, where there is one, the way out.
pub(crate) fn because(failure: Failure, error: FileError) -> Failure {
    let refusal = match error {
        FileError::Refused { reason, .. } => reason,
        // What failed is said already, with the path as the user knows it.
        FileError::Io { source, .. } => return failure.because(source),
        error => return failure.because(error),
    };
    let failure = failure.why(refusal.to_string());
    match refusal {
        Refusal::Link => failure.hint("it could lead anywhere: put the file itself in its place"),
        Refusal::OtherOwner(_) => failure.hint(
            "only your own files and those of root are used here: make it your own (`chown`), or work in another directory",
        ),
        Refusal::WritableByAll => failure.hint("close it to other users: chmod o-w"),
        Refusal::HardLink(_) => failure.hint("copy it, and put the copy in its place"),
        Refusal::NotUtf8(_) => failure.hint("save it as UTF-8"),
        _ => failure,
    }
}
