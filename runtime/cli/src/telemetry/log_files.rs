//! Log files of sessions, if `[log]` names a directory: one of all events, one of the model's reasoning.

use std::path::PathBuf;
use std::sync::Arc;

use toolcell_store::LogFiles;

use crate::config::Sourced;
use crate::config::settings::LogSettings;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Log directory, and the open files of the current session.
#[derive(Debug)]
pub(crate) struct Logs {
    dir: PathBuf,
    shown: String,
    open: Option<(String, Arc<LogFiles>)>,
}

impl Logs {
    /// Creates the directory, and removes expired log files from it.
    ///
    /// # Errors
    /// Returns an error if it cannot be created or read.
    pub(crate) fn open(
        settings: Option<&LogSettings>,
        environment: &Environment,
    ) -> Result<Option<Self>, Failure> {
        let Some(LogSettings { dir, retention, .. }) = settings else {
            return Ok(None);
        };
        let cleaned = make(&dir.value).and_then(|()| match retention {
            Some(time) => LogFiles::clean(&dir.value, *time).map(drop),
            None => Ok(()),
        });
        cleaned.map_err(|error| unusable(dir, environment, error))?;
        Ok(Some(Self {
            dir: dir.value.clone(),
            shown: environment.shown(&dir.value),
            open: None,
        }))
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(crate) fn check(settings: Option<&LogSettings>, environment: &Environment) -> Result<(), Failure> {
        let dir = settings.map(|settings| &settings.dir);
        dir.map_or(Ok(()), |dir| {
            make(&dir.value).map_err(|error| unusable(dir, environment, error))
        })
    }

    /// Returns the log files of a session.
    ///
    /// # Errors
    /// Returns an error if they cannot be opened.
    pub(crate) fn of(&mut self, session: &str) -> Result<Arc<LogFiles>, Failure> {
        if let Some((open, files)) = &self.open
            && open == session
        {
            return Ok(files.clone());
        }
        let files = LogFiles::open(&self.dir, session).map_err(|error| {
            Failure::new(
                Exit::Config,
                text!(
                    "the log of session `{}` in `{}` cannot be written",
                    session,
                    self.shown
                ),
            )
            .because(error)
        })?;
        let files = Arc::new(files);
        self.open = Some((session.to_owned(), files.clone()));
        Ok(files)
    }
}

fn unusable(dir: &Sourced<PathBuf>, environment: &Environment, error: std::io::Error) -> Failure {
    Failure::new(
        Exit::Config,
        text!(
            "the log directory `{}` cannot be used",
            environment.shown(&dir.value)
        ),
    )
    .because(error)
    .why(dir.origin.point_at())
    .hint("name a writable directory, or remove `[log]`")
}

/// Creates a directory with private access: the files contain conversations.
fn make(dir: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}
