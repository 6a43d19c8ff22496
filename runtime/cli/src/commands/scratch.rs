//! `toolcell scratch`: what tools changed with `--scratch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::environment::Environment;
use crate::render::Console;
use crate::report::{Exit, Failure};
use crate::scratch;

/// Look at what tools changed with `--scratch`, carry it out, or throw it away.
#[derive(Debug, Subcommand)]
pub(crate) enum Scratch {
    Diff(Diff),
    Commit(Commit),
    Discard(Discard),
}

/// List what would change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell run \"Tidy up notes.md\" --grant write=. --scratch /tmp/scratch
  toolcell scratch diff /tmp/scratch")]
pub(crate) struct Diff {
    /// The scratch directory.
    dir: PathBuf,
}

/// Carry the changes out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell scratch commit /tmp/scratch")]
pub(crate) struct Commit {
    /// The scratch directory.
    dir: PathBuf,
}

/// Throw the changes away.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell scratch discard /tmp/scratch")]
pub(crate) struct Discard {
    /// The scratch directory.
    dir: PathBuf,
}

impl Scratch {
    pub(crate) fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let (Self::Diff(Diff { dir }) | Self::Commit(Commit { dir }) | Self::Discard(Discard { dir })) =
            &self;
        let dir = environment.path(&dir.to_string_lossy(), &environment.cwd);
        let fail = || {
            Failure::new(
                Exit::Usage,
                format!(
                    "the scratch directory `{}` cannot be used",
                    environment.shown(&dir)
                ),
            )
        };
        let all = scratch::read(&dir).map_err(|e| fail().because(e))?;
        console.write(|s| {
            scratch::list(&mut s.out, &all, environment, usize::MAX)?;
            s.out.flush()
        })?;
        for changed in &all {
            match &self {
                Self::Diff(_) => {}
                Self::Commit(_) => changed.commit().map_err(|e| {
                    fail()
                        .because(e)
                        .hint("what is left is still there; doing it again is safe")
                })?,
                Self::Discard(_) => changed.discard().map_err(|e| fail().because(e))?,
            }
        }
        let count = scratch::count(&all);
        let done = match &self {
            Self::Diff(_) => "would be carried out",
            Self::Commit(_) => "are carried out",
            Self::Discard(_) => "are thrown away",
        };
        console.note(&format!("{count} changes {done}"));
        Ok(Exit::Ok)
    }
}
