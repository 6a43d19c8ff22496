//! Some of the changes of an overlay, carried out or discarded by their paths.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;

use super::changes::{Change, ChangeKind};
use super::commit::{clean, lock};
use super::compare::{open_existing, part};
use super::entry::is_missing;

/// Returns the paths of the changes at or below the chosen paths, and of the directories that these need.
pub(super) fn chosen(only: &BTreeSet<PathBuf>, all: &[Change]) -> HashSet<PathBuf> {
    let is_chosen = |change: &&Change| change.path.ancestors().any(|path| only.contains(path));
    let mut chosen: HashSet<PathBuf> = (all.iter().filter(is_chosen))
        .map(|change| change.path.clone())
        .collect();
    let needed: HashSet<PathBuf> = (chosen.iter())
        .flat_map(|path| path.ancestors().skip(1))
        .map(Path::to_owned)
        .collect();
    let is_made = |change: &&Change| change.kind != ChangeKind::Deleted && needed.contains(&change.path);
    let made = all.iter().filter(is_made).map(|change| change.path.clone());
    chosen.extend(made);
    chosen
}

/// True if a conflict concerns one of the chosen paths.
pub(super) fn concerns(conflict: &Path, chosen: &HashSet<PathBuf>) -> bool {
    conflict.ancestors().any(|path| chosen.contains(path))
        || chosen.iter().any(|path| path.starts_with(conflict))
}

/// Removes an entry with everything below it.
fn remove(dir: &Dir, path: &Path) -> io::Result<()> {
    let removed = match dir.symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => dir.remove_dir_all(path),
        Ok(_) => dir.remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if is_missing(&error) => Ok(()),
        removed => removed,
    }
}

/// Forgets what files were that have been carried out: a later change of them starts from what they are now.
pub(super) fn forget(layers: &Dir, done: &HashSet<PathBuf>) -> io::Result<()> {
    let Some(base) = part(layers, "base")? else {
        return Ok(());
    };
    done.iter().try_for_each(|path| remove(&base, path))
}

/// Discards the changes at and below some paths, and keeps the others.
///
/// # Errors
/// A path is none below the directory, is of a change that belongs to the removal of a directory above it, or a part of the overlay
/// cannot be removed.
pub fn discard_only(directory: &Path, overlay: &Path, paths: &BTreeSet<PathBuf>) -> io::Result<()> {
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_below = |path: &PathBuf| !path.as_os_str().is_empty() && path.components().all(is_name);
    if !paths.iter().all(is_below) {
        let reason = "the path of a change is relative, and has no `..`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let Some(layers) = open_existing(overlay)? else {
        return Ok(());
    };
    let _lock = lock(&layers)?;
    match clean(&layers, directory) {
        Err(error) if is_missing(&error) => {}
        cleaned => cleaned?,
    }
    let [upper, gone, base] = ["upper", "gone", "base"].map(|name| part(&layers, name));
    let (upper, gone, base) = (upper?, gone?, base?);
    // All or nothing.
    for path in paths {
        let mut above = path
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty());
        let removed = above.find(|above| {
            let mark = gone.as_ref().and_then(|gone| gone.symlink_metadata(above).ok());
            mark.is_some_and(|mark| !mark.is_dir()) && !paths.contains(*above)
        });
        if let Some(removed) = removed {
            let reason = format!("it was removed with `{}`: discard that change", removed.display());
            return Err(io::Error::other(reason));
        }
    }
    for path in paths {
        for layer in [&upper, &gone, &base].into_iter().flatten() {
            remove(layer, path)?;
        }
    }
    Ok(())
}
