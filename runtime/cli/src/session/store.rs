//! The session store of the user.

use std::path::PathBuf;
use std::sync::Arc;

use toolcell_core::SessionStore;
use toolcell_store::SqliteSessions;

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Returns the path of the session store.
fn path_of(environment: &Environment) -> Option<PathBuf> {
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
    let fail = || Failure::new(Exit::Config, "the session store cannot be used");
    let path = path_of(environment).ok_or_else(|| fail().why("there is no home directory"))?;
    let open = || -> anyhow::Result<SqliteSessions> {
        if let Some(dir) = path.parent() {
            toolcell_fs::private_dir(dir)?;
        }
        Ok(SqliteSessions::open(&path)?)
    };
    match open() {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(fail().why(text!("`{}`", environment.shown(&path))).because(error)),
    }
}
