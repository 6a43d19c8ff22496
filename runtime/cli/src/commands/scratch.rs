//! `toolcell scratch`: review of changes made with `--scratch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use toolcell_sandbox::overlay::{ChangeKind, OnConflict};

use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::scratch::overlay::{self, Changed};
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::text;

/// Review, commit or discard the changes that tools made with `--scratch`.
#[derive(Debug, Subcommand)]
pub(crate) enum Scratch {
    Diff(Diff),
    Commit(Commit),
    Discard(Discard),
}

/// Show the pending changes line by line.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell run \"Tidy up notes.md\" --grant write=. --scratch /tmp/scratch
  toolcell scratch diff /tmp/scratch
  toolcell scratch diff /tmp/scratch --names")]
pub(crate) struct Diff {
    /// The scratch directory.
    dir: PathBuf,

    /// List only the names of changed files.
    #[arg(long)]
    names: bool,

    /// Print one JSON array of changes.
    #[arg(long, conflicts_with = "names")]
    json: bool,
}

/// Commit the changes.
///
/// Refused if others changed the same files in the meantime.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell scratch commit /tmp/scratch

Exit codes:
    0   the changes were committed
    1   others changed the same files in the meantime, or a change could not be committed
    2   there is no such scratch directory")]
pub(crate) struct Commit {
    /// The scratch directory.
    dir: PathBuf,

    /// Commit even if others changed the same files; their changes are lost.
    #[arg(long)]
    overwrite: bool,
}

/// Discard the changes.
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
        let (Self::Diff(Diff { dir, .. })
        | Self::Commit(Commit { dir, .. })
        | Self::Discard(Discard { dir })) = &self;
        let dir = environment.path(&dir.to_string_lossy(), &environment.cwd);
        let fail = |exit| {
            let shown = environment.shown(&dir);
            Failure::new(exit, text!("the scratch directory `{}` cannot be used", shown))
        };
        let overlay::Found { all, foreign } =
            overlay::read(&dir, environment).map_err(|e| fail(Exit::Usage).because(e))?;
        for directory in foreign {
            console.note(text!(
                "changes of `{}` are not touched: you did not make them with Toolcell",
                environment.shown(&directory)
            ));
        }
        if let Self::Diff(Diff { json: true, .. }) = &self {
            return print_json(&all);
        }
        if let Self::Commit(Commit { overwrite: false, .. }) = &self {
            // All or nothing: a conflict in one directory stops the commit of all.
            refuse_conflicts(&all, environment)?;
        }
        let lines = matches!(self, Self::Diff(Diff { names: false, .. }));
        console.write(|s| {
            overlay::list(&mut s.out, &all, environment, usize::MAX, lines)?;
            s.out.flush()
        })?;
        let mut skipped = 0;
        for changed in &all {
            match &self {
                Self::Diff(_) => {}
                Self::Commit(commit) => {
                    let on_conflict = if commit.overwrite {
                        OnConflict::Overwrite
                    } else {
                        OnConflict::Refuse
                    };
                    // Unreadable overlays are reported above.
                    if changed.is_unreadable() {
                        skipped += 1;
                        continue;
                    }
                    let done = changed.commit(on_conflict).map_err(|e| {
                        fail(Exit::Failed).because(e).hint(
                            "the remaining changes are still there; it is safe to run the command again",
                        )
                    })?;
                    skipped += done.skipped.len();
                    console.write(|s| {
                        let new = done
                            .skipped
                            .iter()
                            .filter(|one| !changed.knows(one))
                            .collect::<Vec<_>>();
                        overlay::list_skipped(&mut s.err, &changed.directory, &new, environment)
                    })?;
                }
                Self::Discard(_) => changed.discard().map_err(|e| fail(Exit::Failed).because(e))?,
            }
        }
        if skipped > 0 {
            return Err(
                Failure::new(Exit::Failed, text!("{} entries were not committed", skipped))
                    .why("each is listed above; all others were committed")
                    .hint("the remaining changes are still there; `toolcell scratch discard` removes them"),
            );
        }
        let done = match &self {
            Self::Diff(_) => "pending",
            Self::Commit(_) => "committed",
            Self::Discard(_) => "discarded",
        };
        let changes = match overlay::count(&all) {
            1 => text!("1 change"),
            many => text!("{} changes", many),
        };
        console.note(text!("{} {}", changes, done));
        Ok(Exit::Ok)
    }
}

fn refuse_conflicts(all: &[Changed], environment: &Environment) -> Result<(), Failure> {
    let conflicts: Vec<String> = all
        .iter()
        .flat_map(|changed| {
            let full = |path: &PathBuf| environment.shown(&changed.directory.join(path));
            changed.conflicts.iter().map(full)
        })
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let mut failure = Failure::new(Exit::Failed, "nothing was committed");
    for path in conflicts {
        failure = failure.why(text!("`{}` changed in the meantime", path));
    }
    Err(failure.hint("review with `toolcell scratch diff`; `--overwrite` commits the changes anyway"))
}

fn print_json(all: &[Changed]) -> Result<Exit, Failure> {
    let changes: Vec<_> = all
        .iter()
        .flat_map(|changed| {
            changed.changes.iter().map(|change| {
                json!({
                    // Names that are not UTF-8 are converted lossily.
                    "directory": changed.directory.to_string_lossy(),
                    "path": change.path.to_string_lossy(),
                    "kind": match change.kind {
                        ChangeKind::Added => "added",
                        ChangeKind::Changed => "changed",
                        ChangeKind::Deleted => "deleted",
                        _ => "other",
                    },
                    "conflict": changed.is_conflict(&change.path),
                })
            })
        })
        .collect();
    print_line(&changes)?;
    Ok(Exit::Ok)
}
