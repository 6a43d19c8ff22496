//! The session store of the user.

use std::path::PathBuf;
use std::sync::Arc;

use toolcell_core::SessionStore;
use toolcell_store::SqliteSessions;

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Hint for a store that cannot be read any more.
pub(crate) const SET_ASIDE: &str =
    "to begin with a new file, and keep this one beside it: toolcell session set-aside";

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
    let fail = || Failure::new(Exit::Config, "the session store cannot be used");
    let path = path_of(environment).ok_or_else(|| fail().why("there is no home directory"))?;
    let open = || -> anyhow::Result<SqliteSessions> {
        if let Some(dir) = path.parent() {
            toolcell_fs::private_dir(dir)?;
        }
        Ok(SqliteSessions::open(&path)?)
    };
    open().map_err(|error| {
        let hint = toolcell_store::is_damaged(error.as_ref()).then_some(SET_ASIDE);
        fail()
            .why(text!("`{}`", environment.shown(&path)))
            .because(error)
            .hints(hint)
    })
}
