//! Scratch directories of the configuration, whose changes the user reviews in the browser.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcell_sandbox::overlay::{ChangeKind, CommitError, CommitOptions, OnConflict};
use toolcell_serve::{Refusal, ScratchDecision};

use crate::config::Settings;
use crate::config::own_directories::denials_of_all;
use crate::environment::Environment;
use crate::error::Failure;
use crate::scratch::diff;
use crate::scratch::overlay::{self, Changed, Found};

/// Maximum number of changes in an answer. The rest is counted.
const MAX_CHANGES: usize = 5_000;

/// Maximum size of all diffs in an answer, in bytes.
const MAX_DIFFS: usize = 8 << 20;

/// Time after which files are listed without being compared: each comparison takes up to half a second.
const COMPARE_TIME: Duration = Duration::from_secs(5);

/// Maximum number of paths in a message.
const MAX_NAMED: usize = 10;

/// Scratch directories by the names that the page shows.
#[derive(Clone)]
pub(super) struct ScratchDirectories {
    directories: BTreeMap<String, PathBuf>,
    options: CommitOptions,
    environment: Environment,
}

impl ScratchDirectories {
    /// # Errors
    /// A denial of the configuration cannot be resolved.
    pub(super) fn of(settings: &Settings, environment: &Environment) -> Result<Self, Failure> {
        let written = settings
            .tools
            .values()
            .filter_map(|tool| settings.scratch_of(tool));
        let paths: BTreeSet<PathBuf> = written
            .map(|dir| environment.path(&dir.value, &environment.cwd))
            .collect();
        let mut directories = BTreeMap::new();
        for path in paths {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_else(|| "scratch".into());
            let mut unique = name.clone();
            for number in 2.. {
                if !directories.contains_key(&unique) {
                    break;
                }
                unique = format!("{name}-{number}");
            }
            directories.insert(unique, path);
        }
        Ok(Self {
            directories,
            options: CommitOptions {
                // Files that start programs are committed in a terminal only.
                denials: denials_of_all(settings, false, environment)?,
                ..CommitOptions::default()
            },
            environment: environment.clone(),
        })
    }

    fn read(&self, path: &Path) -> Result<Found, Refusal> {
        match overlay::read(path, &self.environment, &self.options) {
            Ok(found) => Ok(found),
            // It is made when a tool gets a writable directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::default()),
            Err(error) => Err(Refusal::Conflict(format!(
                "the scratch directory cannot be read: {error}"
            ))),
        }
    }

    pub(super) fn list(&self) -> Value {
        let all = self.directories.iter().map(|(name, path)| {
            let found = self.read(path);
            let count = |found: Found| {
                found
                    .all
                    .iter()
                    .map(|changed| changed.changes.len())
                    .sum::<usize>()
            };
            json!({
                "name": name,
                "directory": self.environment.shown(path),
                "files": found.map_or(0, count),
            })
        });
        json!({ "scratch": all.collect::<Vec<_>>() })
    }

    pub(super) fn show(&self, name: &str) -> Result<Option<Value>, Refusal> {
        let Some(path) = self.directories.get(name) else {
            return Ok(None);
        };
        let found = self.read(path)?;
        let total: usize = found.all.iter().map(|changed| changed.changes.len()).sum();
        let (mut files, mut skipped, mut room) = (Vec::new(), Vec::new(), MAX_DIFFS);
        let begun = Instant::now();
        for changed in &found.all {
            for change in &changed.changes {
                if files.len() == MAX_CHANGES {
                    break;
                }
                let mut file = json!({
                    "path": full(changed, &change.path),
                    "change": match change.kind {
                        ChangeKind::Added => "added",
                        ChangeKind::Deleted => "deleted",
                        _ => "changed",
                    },
                    "conflict": changed.is_conflict(&change.path),
                });
                let shown = match begun.elapsed() < COMPARE_TIME {
                    true => diff::plain(changed, change),
                    false => diff::Plain::default(),
                };
                match shown.diff.filter(|diff| diff.len() <= room) {
                    Some(diff) => {
                        room -= diff.len();
                        file["diff"] = json!(diff);
                    }
                    None => {
                        file["about"] = json!(shown.about.unwrap_or_else(|| {
                            "too long, or one of too many, to be compared here".into()
                        }));
                    }
                }
                files.push(file);
            }
            skipped.extend(
                changed
                    .skipped
                    .iter()
                    .map(|one| json!({"path": full(changed, &one.path), "reason": one.reason.to_string()})),
            );
        }
        skipped.extend(found.replaced.iter().map(|(directory, _)| {
            let reason = "the overlay of this directory was moved or replaced";
            json!({"path": directory.to_string_lossy(), "reason": reason})
        }));
        Ok(Some(json!({
            "name": name,
            "directory": self.environment.shown(path),
            "more": total - files.len(),
            "files": files,
            "skipped": skipped,
        })))
    }

    /// Commits or discards the changes of some files, or all changes.
    pub(super) fn decide(
        &self,
        name: &str,
        decision: ScratchDecision,
        files: Option<Vec<String>>,
    ) -> Result<Option<Value>, Refusal> {
        let Some(path) = self.directories.get(name) else {
            return Ok(None);
        };
        let found = self.read(path)?;
        if let Some((directory, _)) = found.replaced.first() {
            let directory = directory.display();
            return Err(Refusal::Conflict(format!(
                "the overlay of `{directory}` was moved or replaced since Toolcell made it; nothing was done"
            )));
        }
        let chosen = chosen(&found, files)?;
        let done = match decision {
            ScratchDecision::Commit => self.commit(&found, &chosen)?,
            ScratchDecision::Discard => discard(&found, &chosen)?,
        };
        Ok(Some(done))
    }

    fn commit(&self, found: &Found, chosen: &Chosen) -> Result<Value, Refusal> {
        // All or nothing: a conflict in one directory stops the commit of all.
        let conflicts: Vec<String> = (found.all.iter().zip(chosen))
            .flat_map(|(changed, only)| {
                let is_chosen = |path: &&PathBuf| {
                    only.as_ref().is_none_or(|only| {
                        only.iter()
                            .any(|one| one.starts_with(path) || path.starts_with(one))
                    })
                };
                changed
                    .conflicts
                    .iter()
                    .filter(is_chosen)
                    .map(|path| full(changed, path))
            })
            .collect();
        if !conflicts.is_empty() {
            return Err(conflict(&conflicts));
        }
        let (mut count, mut skipped) = (0, Vec::new());
        for (changed, only) in found.all.iter().zip(chosen) {
            if only.as_ref().is_some_and(BTreeSet::is_empty) || changed.is_unreadable() {
                continue;
            }
            let options = CommitOptions {
                only: only.clone(),
                ..self.options.clone()
            };
            let done = changed
                .commit(OnConflict::Refuse, &options)
                .map_err(|error| match error {
                    CommitError::Conflicts(paths) => {
                        let paths: Vec<String> = paths.iter().map(|path| full(changed, path)).collect();
                        conflict(&paths)
                    }
                    error => Refusal::Failed(format!(
                        "{error}; what was not committed is still there, and it is safe to commit again"
                    )),
                })?;
            count += done.found.len();
            skipped.extend(
                done.skipped
                    .iter()
                    .map(|one| json!({"path": full(changed, &one.path), "reason": one.reason.to_string()})),
            );
        }
        Ok(json!({ "files": count, "skipped": skipped }))
    }
}

/// Paths of the chosen changes for each overlay; `None` for all of them.
type Chosen = Vec<Option<BTreeSet<PathBuf>>>;

/// Path of a change as it is shown.
fn full(changed: &Changed, path: &Path) -> String {
    changed.directory.join(path).to_string_lossy().into_owned()
}

fn chosen(found: &Found, files: Option<Vec<String>>) -> Result<Chosen, Refusal> {
    let Some(files) = files else {
        return Ok(vec![None; found.all.len()]);
    };
    let mut left: BTreeSet<String> = files.into_iter().collect();
    let mut chosen = Vec::new();
    let mut named = BTreeSet::new();
    for changed in &found.all {
        let mut only = BTreeSet::new();
        for change in &changed.changes {
            let shown = full(changed, &change.path);
            if !left.contains(&shown) && !named.contains(&shown) {
                continue;
            }
            left.remove(&shown);
            if !named.insert(shown.clone()) {
                return Err(Refusal::Conflict(format!(
                    "two changes have the path `{shown}`, whose names are not UTF-8; use `toolcell scratch`"
                )));
            }
            only.insert(change.path.clone());
        }
        chosen.push(Some(only));
    }
    match left.first() {
        None => Ok(chosen),
        Some(gone) => Err(Refusal::Conflict(format!("`{gone}` is not changed any more"))),
    }
}

fn conflict(paths: &[String]) -> Refusal {
    let named: Vec<String> = paths
        .iter()
        .take(MAX_NAMED)
        .map(|path| format!("`{path}`"))
        .collect();
    let more = match paths.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Refusal::Conflict(format!(
        "others changed {}{more} in the meantime; nothing was committed",
        named.join(", ")
    ))
}

fn discard(found: &Found, chosen: &Chosen) -> Result<Value, Refusal> {
    let mut count = 0;
    for (changed, only) in found.all.iter().zip(chosen) {
        let discarded = match only {
            None => changed.discard(),
            Some(only) if only.is_empty() => continue,
            Some(only) => changed.discard_only(only),
        };
        discarded.map_err(|error| Refusal::Conflict(format!("not discarded: {error}")))?;
        count += only.as_ref().map_or(changed.changes.len(), BTreeSet::len);
    }
    Ok(json!({ "files": count, "skipped": [] }))
}
