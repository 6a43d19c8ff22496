//! The session store of the user.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use toolcell_core::SessionStore;
use toolcell_store::SqliteSessions;

use crate::environment::Environment;
use crate::error::{Exit, FREE_SPACE, Failure};
use crate::ui::terminal::text;

/// Hint for a store that cannot be read any more.
const SET_ASIDE: &str = "to begin with a new file, and keep this one beside it: toolcell session set-aside";

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
    let path = path_of(environment).ok_or_else(|| {
        Failure::new(Exit::Config, "the saved sessions cannot be used").why("there is no home directory")
    })?;
    let open = || -> anyhow::Result<SqliteSessions> {
        if let Some(dir) = path.parent() {
            toolcell_fs::private_dir(dir)?;
        }
        Ok(SqliteSessions::open(&path)?)
    };
    open().map_err(|error| {
        let what = text!(
            "the saved sessions in `{}` cannot be used",
            environment.shown(&path)
        );
        let (why, hint) = defect(error.as_ref());
        let exit = if why.is_some() { Exit::Io } else { Exit::Config };
        let failure = Failure::new(exit, what);
        let failure = match why {
            Some(why) => failure.why(why),
            None => failure,
        };
        failure.because(error).hints(hint)
    })
}

/// Says in plain words why the file of the sessions cannot be used, and what to do, if that is known.
pub(crate) fn defect(error: &(dyn Error + 'static)) -> (Option<&'static str>, Option<&'static str>) {
    if toolcell_store::is_damaged(error) {
        let why = "the file is damaged, or of another program or version";
        return (Some(why), Some(SET_ASIDE));
    }
    if toolcell_store::is_full(error) {
        return (Some("the disk is full"), Some(FREE_SPACE));
    }
    (None, None)
}
