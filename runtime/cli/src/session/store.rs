//! The session store of the user.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use toolcell_core::SessionStore;
use toolcell_store::SqliteSessions;

use crate::databases::Database;
use crate::environment::Environment;
use crate::error::Failure;

/// Returns the path of the session store.
pub(crate) fn path_of(environment: &Environment) -> Option<PathBuf> {
    environment
        .state_dir
        .as_ref()
        .map(|dir| dir.join("sessions.sqlite"))
}

/// Opens the user's session store.
///
/// # Errors
/// Returns an error if there is no state directory or the file cannot be used.
pub(crate) fn open(environment: &Environment) -> Result<Arc<dyn SessionStore>, Failure> {
    Ok(Arc::new(open_file(environment)?))
}

/// Opens the file of the session store.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_file(environment: &Environment) -> Result<SqliteSessions, Failure> {
    let open = || -> anyhow::Result<SqliteSessions> {
        let path = path_of(environment).context("there is no home directory")?;
        if let Some(dir) = path.parent() {
            toolcell_fs::private_dir(dir)?;
        }
        Ok(SqliteSessions::open(&path)?)
    };
    open().map_err(|error| Database::Sessions.unusable(environment, error))
}
