//! Pending changes in scratch directories, as the user sees them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;
use toolcell_sandbox::overlay::{ChangeKind, CommitOptions, Skipped};

use crate::config::own_directories::denials_of_all;
use crate::config::{Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::Failure;
use crate::scratch::diff;
use crate::scratch::overlay::{Changed, read};
use crate::ui::escape;
use crate::ui::render::Console;
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Own, Screen, Shown, WARN, text};

/// Maximum number of changes listed when a command ends; `toolcell scratch diff` lists all.
const MAX_LISTED: usize = 20;

/// Scratch directory of a command.
pub(crate) struct Scratch {
    /// Path as the user wrote it.
    written: String,
    path: PathBuf,
    environment: Environment,
    options: CommitOptions,
}

impl Scratch {
    /// Returns the scratch directories named by the command line or the configuration of these tools.
    ///
    /// # Errors
    /// A denial of the configuration cannot be resolved.
    pub(crate) fn of<'a>(
        tools: impl IntoIterator<Item = &'a ToolSettings>,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Vec<Self>, Failure> {
        let options = CommitOptions {
            denials: denials_of_all(settings, false, environment)?,
            ..CommitOptions::default()
        };
        let written: BTreeSet<String> = tools
            .into_iter()
            .filter_map(|tool| settings.scratch_of(tool))
            .map(|dir| dir.value.clone())
            .collect();
        let of = |written: String| Self {
            path: environment.path(&written, &environment.cwd),
            written,
            environment: environment.clone(),
            options: options.clone(),
        };
        Ok(written.into_iter().map(of).collect())
    }

    /// Prints the pending changes and the commands to handle them, or that there are none.
    pub(crate) fn print_summary(&self, console: &Console) {
        if !self.print_changes(console) {
            console.note(text!("there are no changes in `{}`", self.written));
        }
    }

    /// Prints the pending changes and the commands to handle them; returns false if there are none.
    pub(crate) fn print_changes(&self, console: &Console) -> bool {
        let all = match read(&self.path, &self.environment, &self.options) {
            Ok(found) => found.all,
            // The directory is created when a tool gets a writable directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                console.note(text!(
                    "the changes in `{}` cannot be read: {}",
                    self.written,
                    error
                ));
                return true;
            }
        };
        let is_skipped = all.iter().any(|changed| !changed.skipped.is_empty());
        let changes = match count(&all) {
            0 if !is_skipped => return false,
            1 => text!("1 change is pending"),
            many => text!("{} changes are pending", many),
        };
        // A closed standard error is not an error.
        let _ = console.write(|streams| {
            streams.end_open_line()?;
            let err = &mut streams.err;
            err.line(text!("{} in `{}`, not committed yet", changes, self.written))?;
            list(err, &all, &self.environment, MAX_LISTED, None)?;
            for (what, command) in [
                ("    review: ", "diff"),
                ("    commit: ", "commit"),
                ("   discard: ", "discard"),
            ] {
                err.styled(FAINT, what)?;
                err.line(text!(
                    "toolcell scratch {} {}",
                    Own(command),
                    escape::shell(&self.written)
                ))?;
            }
            err.flush()
        });
        true
    }
}

/// Lists at most `most` changes, with their diffs until `lines` is cancelled, and the number of further ones.
pub(crate) fn list<W: Write>(
    screen: &mut Screen<W>,
    all: &[Changed],
    environment: &Environment,
    most: usize,
    lines: Option<&CancellationToken>,
) -> io::Result<()> {
    let mut left = most;
    let is_told = |changed: &&Changed| !changed.changes.is_empty() || !changed.skipped.is_empty();
    for changed in all.iter().filter(is_told) {
        screen.styled(NAME, text!("in `{}`", environment.shown(&changed.directory)))?;
        screen.end_line()?;
        for change in changed.changes.iter().take(left) {
            if lines.is_some_and(CancellationToken::is_cancelled) {
                return Ok(());
            }
            let (style, mark) = match change.kind {
                ChangeKind::Added => (GOOD, "  + "),
                ChangeKind::Changed => (WARN, "  ~ "),
                ChangeKind::Deleted => (BAD, "  - "),
                _ => (FAINT, "  ? "),
            };
            screen.styled(style, mark)?;
            screen.text(text!("{}", Shown(&change.path.to_string_lossy())))?;
            if changed.is_conflict(&change.path) {
                screen.styled(BAD, "  (changed by others in the meantime)")?;
            }
            screen.end_line()?;
            if lines.is_some() {
                diff::lines(screen, &changed.directory, &changed.overlay, change)?;
            }
        }
        let skipped: Vec<&Skipped> = changed.skipped.iter().collect();
        list_skipped(screen, &changed.directory, &skipped, environment)?;
        left = left.saturating_sub(changed.changes.len());
    }
    let hidden = count(all).saturating_sub(most);
    if hidden > 0 {
        screen.line(text!("  … and {} more", hidden))?;
    }
    Ok(())
}

/// Returns the total number of changes.
pub(crate) fn count(all: &[Changed]) -> usize {
    all.iter().map(|changed| changed.changes.len()).sum()
}

/// Lists skipped entries, at most [`MAX_LISTED`] per directory.
pub(crate) fn list_skipped<W: Write>(
    screen: &mut Screen<W>,
    directory: &Path,
    skipped: &[&Skipped],
    environment: &Environment,
) -> io::Result<()> {
    for one in skipped.iter().take(MAX_LISTED) {
        let path = environment.shown(&directory.join(&one.path));
        screen.styled(WARN, "  ! ")?;
        screen.line(text!("`{}` is skipped: {}", path, one.reason))?;
    }
    let more = skipped.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        screen.styled(WARN, "  ! ")?;
        screen.line(text!("and {} more are skipped", more))?;
    }
    Ok(())
}
