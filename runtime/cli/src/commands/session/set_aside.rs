//! `toolcell session set-aside`.

use clap::Args;

use crate::databases::Database;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::session::in_use;
use crate::ui::render::Console;

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
        if let Some(user) = in_use::any(environment)? {
            return Err(user.failure().without_hints().hint("end it first"));
        }
        Database::Sessions.set_aside(environment, console)?;
        Ok(Exit::Ok)
    }
}
