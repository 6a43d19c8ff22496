//! `toolcell scratch`: review of changes made with `--scratch`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use toolcell_sandbox::overlay::{Change, ChangeKind, CommitError, CommitOptions, OnConflict};

use crate::config::own_directories::denials_of_all;
use crate::config::{self, Overrides};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::scratch::overlay::{self, Changed};
use crate::scratch::pending;
use crate::ui::interrupt::Interrupts;
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
  toolcell scratch diff /tmp/scratch --names

Exit codes:
    0   all changes were shown
    1   an overlay was moved or replaced, and is left out
    2   there is no such scratch directory")]
pub(crate) struct Diff {
    /// The scratch directory.
    dir: PathBuf,

    /// List changes of files that start programs as well, which are left out otherwise.
    #[arg(long)]
    dangerous: bool,

    /// List only the names of changed files.
    #[arg(long)]
    names: bool,

    /// Print one JSON array of changes.
    #[arg(long, conflicts_with = "names")]
    json: bool,
}

/// Commit the changes.
///
/// Refused if others changed the same files in the meantime. What is denied to every tool, links that
/// lead out of the directory, and files that start programs (.git, CI, editor and shell configuration) are left out and named.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell scratch commit /tmp/scratch
  toolcell scratch commit /tmp/scratch notes.md src

Exit codes:
    0   the changes were committed
    1   others changed the same files in the meantime, an overlay was moved or replaced, or a change was not committed
    2   there is no such scratch directory
  130   cancelled; the changes committed until then are listed, and the rest is left")]
pub(crate) struct Commit {
    /// The scratch directory.
    dir: PathBuf,

    /// Files and directories of yours whose changes are committed. Defaults to all.
    files: Vec<PathBuf>,

    /// Commit even if others changed the same files; their changes are lost.
    #[arg(long)]
    overwrite: bool,

    /// Also files that start programs, as in a run with --dangerous.
    #[arg(long)]
    dangerous: bool,
}

/// Discard the changes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell scratch discard /tmp/scratch
  toolcell scratch discard /tmp/scratch notes.md

Exit codes:
    0   the changes were discarded
    1   an overlay was moved or replaced, and was left as it is
    2   there is no such scratch directory")]
pub(crate) struct Discard {
    /// The scratch directory.
    dir: PathBuf,

    /// Files and directories of yours whose changes are discarded. Defaults to all.
    files: Vec<PathBuf>,
}

impl Scratch {
    pub(crate) fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let options = self.options(overrides, environment)?;
        let interrupts = Interrupts::watch(console.clone());
        // To throw changes away is no work to be cancelled in its middle.
        let is_cancellable = !matches!(self, Self::Discard(_));
        let _guard = is_cancellable.then(|| interrupts.cancel_next(options.cancellation.clone()));
        // The signals are heard meanwhile.
        tokio::task::block_in_place(|| self.work(&options, environment, console))
    }

    /// Returns the options: denials and cancellation.
    fn options(&self, overrides: Overrides, environment: &Environment) -> Result<CommitOptions, Failure> {
        let dangerous = match self {
            // What is thrown away need not be judged.
            Self::Discard(_) => return Ok(CommitOptions::default()),
            Self::Diff(diff) => diff.dangerous,
            Self::Commit(commit) => commit.dangerous,
        };
        let settings = config::load(environment, overrides)?;
        Ok(CommitOptions {
            denials: denials_of_all(&settings, dangerous, environment)?,
            ..CommitOptions::default()
        })
    }

    fn dir(&self) -> &Path {
        match self {
            Self::Diff(Diff { dir, .. })
            | Self::Commit(Commit { dir, .. })
            | Self::Discard(Discard { dir, .. }) => dir,
        }
    }

    fn files(&self) -> &[PathBuf] {
        match self {
            Self::Diff(_) => &[],
            Self::Commit(Commit { files, .. }) | Self::Discard(Discard { files, .. }) => files,
        }
    }

    fn work(
        &self,
        options: &CommitOptions,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let dir = environment.path(&self.dir().to_string_lossy(), &environment.cwd);
        let fail = |exit| {
            let shown = environment.shown(&dir);
            Failure::new(exit, text!("the scratch directory `{}` cannot be used", shown))
        };
        let found = overlay::read(&dir, environment, options).map_err(|e| fail(Exit::Usage).because(e))?;
        let overlay::Found {
            mut all,
            foreign,
            replaced,
        } = found;
        not_cancelled(options)?;
        let files = self.files();
        if !files.is_empty() {
            choose(&mut all, files, environment)?;
        }
        if let (Self::Commit(_), Some((directory, overlay))) = (self, replaced.first()) {
            // All or nothing.
            let failure = fail(Exit::Failed);
            return Err(overlay::replaced(failure, directory, overlay, environment));
        }
        for directory in foreign {
            console.note(text!(
                "changes of `{}` are not touched: you did not make them with Toolcell",
                environment.shown(&directory)
            ));
        }
        let exit = match replaced.as_slice() {
            [] => Exit::Ok,
            _ => Exit::Failed,
        };
        for (directory, overlay) in &replaced {
            let failure = Failure::new(Exit::Failed, text!("an overlay was left out"));
            console.report(&overlay::replaced(failure, directory, overlay, environment));
        }
        if let Self::Diff(Diff { json: true, .. }) = &self {
            print_json(&all, console)?;
            return Ok(exit);
        }
        if let Self::Commit(Commit { overwrite: false, .. }) = &self {
            // All or nothing: a conflict in one directory stops the commit of all.
            refuse_conflicts(&all, environment)?;
        }
        let lines = matches!(self, Self::Diff(Diff { names: false, .. })).then_some(&options.cancellation);
        console.write(|s| {
            pending::list(&mut s.out, &all, environment, usize::MAX, lines)?;
            s.out.flush()
        })?;
        not_cancelled(options)?;
        let done = match self {
            Self::Diff(_) => "pending",
            Self::Commit(commit) => {
                commit.carry_out(&all, options, environment, console, &fail)?;
                "committed"
            }
            Self::Discard(_) => {
                for changed in &all {
                    let discarded = match files.is_empty() {
                        true => changed.discard(),
                        false => changed.discard_only(&changed.paths()),
                    };
                    discarded.map_err(|e| fail(Exit::Failed).because(e))?;
                }
                "discarded"
            }
        };
        let changes = match pending::count(&all) {
            1 => text!("1 change"),
            many => text!("{} changes", many),
        };
        console.note(text!("{} {}", changes, done));
        Ok(exit)
    }
}

impl Commit {
    /// Carries the changes of all directories out, as far as they can be.
    fn carry_out(
        &self,
        all: &[Changed],
        options: &CommitOptions,
        environment: &Environment,
        console: &Console,
        fail: &dyn Fn(Exit) -> Failure,
    ) -> Result<(), Failure> {
        let on_conflict = match self.overwrite {
            true => OnConflict::Overwrite,
            false => OnConflict::Refuse,
        };
        let mut skipped = 0;
        let mut carried: Vec<(&Changed, Vec<Change>)> = Vec::new();
        for changed in all {
            // Unreadable overlays are reported above.
            if changed.is_unreadable() {
                skipped += 1;
                continue;
            }
            let options = CommitOptions {
                only: (!self.files.is_empty()).then(|| changed.paths()),
                ..options.clone()
            };
            match changed.commit(on_conflict, &options) {
                Ok(done) => {
                    skipped += done.skipped.len();
                    console.write(|s| {
                        let new = done
                            .skipped
                            .iter()
                            .filter(|one| !changed.knows(one))
                            .collect::<Vec<_>>();
                        pending::list_skipped(&mut s.err, &changed.directory, &new, environment)
                    })?;
                    carried.push((changed, done.found));
                }
                Err(CommitError::Cancelled(done)) => {
                    carried.push((changed, done.found));
                    return Err(cancelled(&carried, pending::count(all), environment));
                }
                Err(error) => {
                    return Err(fail(Exit::Failed)
                        .because(error)
                        .hint("the remaining changes are still there; it is safe to run the command again"));
                }
            }
        }
        if skipped == 0 {
            return Ok(());
        }
        let failure = Failure::new(Exit::Failed, text!("{} entries were not committed", skipped))
            .why("each is listed above; all others were committed")
            .hint("the remaining changes are still there; `toolcell scratch discard` removes them");
        Err(if self.dangerous {
            failure
        } else {
            failure.hint(
                "look at files that start programs, and commit them with `--dangerous` if you want them",
            )
        })
    }
}

/// Leaves the changes of these files, and of what is below them.
///
/// # Errors
/// One of them has no changes.
fn choose(all: &mut Vec<Changed>, files: &[PathBuf], environment: &Environment) -> Result<(), Failure> {
    let mut chosen = Vec::new();
    for file in files {
        let path = environment.path(&file.to_string_lossy(), &environment.cwd);
        // Directories that are granted are known without links.
        let real = path.parent().and_then(|above| above.canonicalize().ok());
        let real = real.and_then(|above| Some(above.join(path.file_name()?)));
        let path = real.unwrap_or(path);
        let is_changed = all.iter().any(|changed| {
            let mut full = changed
                .changes
                .iter()
                .map(|change| changed.directory.join(&change.path));
            full.any(|full| full.starts_with(&path))
        });
        if !is_changed {
            let failure = Failure::new(
                Exit::Usage,
                text!("`{}` has no changes", environment.shown(&path)),
            );
            return Err(failure.hint("to list them: toolcell scratch diff DIR --names"));
        }
        chosen.push(path);
    }
    for changed in all.iter_mut() {
        let directory = changed.directory.clone();
        let is_chosen = |path: &PathBuf| {
            let full = directory.join(path);
            chosen.iter().any(|chosen| full.starts_with(chosen))
        };
        changed.changes.retain(|change| is_chosen(&change.path));
        changed.conflicts.retain(is_chosen);
        changed.skipped.retain(|one| is_chosen(&one.path));
    }
    all.retain(|changed| !changed.changes.is_empty());
    Ok(())
}

/// Most paths that are named when a commit is cancelled.
const MAX_NAMED: usize = 20;

/// Failure that lists the changes committed before the user cancelled.
fn cancelled(carried: &[(&Changed, Vec<Change>)], count: usize, environment: &Environment) -> Failure {
    let paths: Vec<PathBuf> = carried
        .iter()
        .flat_map(|(changed, done)| done.iter().map(|change| changed.directory.join(&change.path)))
        .collect();
    let mut failure = Failure::new(
        Exit::Cancelled,
        text!("cancelled: {} of {} changes were committed", paths.len(), count),
    );
    for path in paths.iter().take(MAX_NAMED) {
        failure = failure.why(text!("`{}` was committed", environment.shown(path)));
    }
    let more = paths.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        failure = failure.why(text!("and {} more were", more));
    }
    failure.hint("the remaining changes are still there; it is safe to run the command again")
}

/// # Errors
/// The user cancelled.
fn not_cancelled(options: &CommitOptions) -> Result<(), Failure> {
    match options.cancellation.is_cancelled() {
        true => Err(Failure::new(Exit::Cancelled, "cancelled; nothing was committed")),
        false => Ok(()),
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

fn print_json(all: &[Changed], console: &Console) -> Result<(), Failure> {
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
    Ok(print_line(console, &changes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_commit_lists_committed_changes() {
        let environment = Environment::for_tests(Path::new("/home/ada"), &[]);
        let changed = Changed::for_tests("/home/ada/project");
        let done = (0..25).map(|number| Change {
            path: format!("f{number:02}").into(),
            kind: ChangeKind::Added,
        });
        let failure = cancelled(&[(&changed, done.collect())], 30, &environment);
        assert_eq!(failure.exit, Exit::Cancelled);
        let shown = failure.to_string();
        for part in [
            "cancelled: 25 of 30 changes were committed",
            "project/f19` was committed",
            "and 5 more were",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(!shown.contains("f20"), "{shown}");
    }

    #[test]
    fn nothing_is_carried_out_once_it_is_cancelled() {
        let options = CommitOptions::default();
        not_cancelled(&options).unwrap();
        options.cancellation.cancel();
        assert_eq!(not_cancelled(&options).unwrap_err().exit, Exit::Cancelled);
    }
}
