//! What an overlay holds, and what becomes of it.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry};

/// One difference between a directory and its overlay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Path below the directory.
    pub path: PathBuf,
    /// What is different.
    pub kind: ChangeKind,
}

/// What is different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChangeKind {
    /// Something that is not in the directory. What lies in an added directory is listed as well.
    Added,
    /// A file with other contents, or something of another kind.
    Changed,
    /// Something that is not in the overlay any more, with everything below it.
    Deleted,
}

/// Lists what an overlay would change in a directory, in order of the paths. A file that was written and is the same as
/// before is no change.
///
/// # Errors
/// When one of the directories cannot be read. An overlay that does not exist holds no changes.
pub fn changes(directory: &Path, overlay: &Path) -> io::Result<Vec<Change>> {
    let Some(overlay) = open_existing(overlay)? else {
        return Ok(Vec::new());
    };
    let lower = Dir::open_ambient_dir(directory, ambient_authority())?;
    let mut found = Vec::new();
    if let Some(gone) = part(&overlay, "gone")? {
        deleted(
            &gone,
            &lower,
            &part(&overlay, "upper")?,
            Path::new(""),
            &mut found,
        )?;
    }
    if let Some(upper) = part(&overlay, "upper")? {
        changed(&upper, &lower, Path::new(""), &mut found)?;
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// What to do with changes that somebody else made in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Nothing is carried out.
    Refuse,
    /// They are lost.
    Overwrite,
}

/// Why changes were not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Somebody else changed what would be changed or removed. Nothing was carried out.
    #[error("{} changed in the meantime: {}", .0.len(), .0.iter().map(|p| format!("`{}`", p.display())).collect::<Vec<_>>().join(", "))]
    Conflicts(Vec<PathBuf>),
    /// A file of the directory cannot be written or one of the overlay cannot be read. What was not done stays in the
    /// overlay, and doing it again is safe.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Carries out the changes of an overlay in its directory, empties the overlay, and says what was done. A file takes the
/// place of another at once. What somebody else changes while this runs is not noticed.
///
/// # Errors
/// See [`CommitError`].
pub fn commit(directory: &Path, overlay: &Path, on_conflict: OnConflict) -> Result<Vec<Change>, CommitError> {
    if on_conflict == OnConflict::Refuse {
        let found = super::conflicts(directory, overlay)?;
        if !found.is_empty() {
            return Err(CommitError::Conflicts(found));
        }
    }
    let done = changes(directory, overlay)?;
    let Some(layers) = open_existing(overlay)? else {
        return Ok(done);
    };
    let lower = Dir::open_ambient_dir(directory, ambient_authority())?;
    if let Some(gone) = part(&layers, "gone")? {
        remove_marked(&gone, &lower, Path::new(""))?;
    }
    // What was deleted is gone now, and new things of the same names must not go with it the next time.
    remove_part(&layers, "gone")?;
    if let Some(upper) = part(&layers, "upper")? {
        carry(&upper, &lower, Path::new(""))?;
    }
    discard(overlay)?;
    Ok(done)
}

/// Throws the changes of an overlay away. The directory of the overlay itself stays.
///
/// # Errors
/// When something of the overlay cannot be removed.
pub fn discard(overlay: &Path) -> io::Result<()> {
    if let Some(layers) = open_existing(overlay)? {
        for name in super::PARTS {
            remove_part(&layers, name)?;
        }
    }
    Ok(())
}

pub(super) fn open_existing(path: &Path) -> io::Result<Option<Dir>> {
    match Dir::open_ambient_dir(path, ambient_authority()) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn part(overlay: &Dir, name: &str) -> io::Result<Option<Dir>> {
    match overlay.open_dir(name) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_part(overlay: &Dir, name: &str) -> io::Result<()> {
    match overlay.remove_dir_all(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Lists what is marked as removed and has nothing in its place.
fn deleted(
    gone: &Dir,
    lower: &Dir,
    upper: &Option<Dir>,
    at: &Path,
    found: &mut Vec<Change>,
) -> io::Result<()> {
    for (entry, path) in entries(gone, at)? {
        if entry.file_type()?.is_dir() {
            deleted(gone, lower, upper, &path, found)?;
            continue;
        }
        let is_replaced = upper
            .as_ref()
            .is_some_and(|upper| upper.symlink_metadata(&path).is_ok());
        let Ok(old) = lower.symlink_metadata(&path) else {
            continue;
        };
        if !is_replaced {
            found.push(Change {
                path,
                kind: ChangeKind::Deleted,
            });
        } else if old.is_dir() {
            // The directory was made anew: what it held and does not hold any more is deleted.
            lost(lower, upper.as_ref(), &path, found)?;
        }
    }
    Ok(())
}

/// Lists what a removed directory held and its successor does not.
fn lost(lower: &Dir, upper: Option<&Dir>, at: &Path, found: &mut Vec<Change>) -> io::Result<()> {
    for (entry, path) in entries(lower, at)? {
        let new = upper.and_then(|upper| upper.symlink_metadata(&path).ok());
        match new {
            None => found.push(Change {
                path,
                kind: ChangeKind::Deleted,
            }),
            Some(new) if new.is_dir() && entry.file_type()?.is_dir() => lost(lower, upper, &path, found)?,
            Some(_) => {}
        }
    }
    Ok(())
}

/// Lists what the upper layer adds and changes.
fn changed(upper: &Dir, lower: &Dir, at: &Path, found: &mut Vec<Change>) -> io::Result<()> {
    for (entry, path) in entries(upper, at)? {
        let new = entry.metadata()?;
        let old = lower.symlink_metadata(&path).ok();
        let kind = match &old {
            None => Some(ChangeKind::Added),
            Some(old) if old.is_dir() && new.is_dir() => None,
            Some(old) if old.is_file() && new.is_file() => {
                let same = old.len() == new.len() && is_same(lower.open(&path)?, upper.open(&path)?)?;
                (!same).then_some(ChangeKind::Changed)
            }
            Some(old) if old.is_symlink() && new.is_symlink() => {
                let same = lower.read_link_contents(&path)? == upper.read_link_contents(&path)?;
                (!same).then_some(ChangeKind::Changed)
            }
            Some(_) => Some(ChangeKind::Changed),
        };
        if let Some(kind) = kind {
            found.push(Change {
                path: path.clone(),
                kind,
            });
        }
        if new.is_dir() {
            changed(upper, lower, &path, found)?;
        }
    }
    Ok(())
}

/// Whether two files hold the same. Each is read in pieces, for they may be longer than the memory.
fn is_same(a: impl io::Read, b: impl io::Read) -> io::Result<bool> {
    const PIECE: usize = 64 << 10;
    let (mut a, mut b) = (
        BufReader::with_capacity(PIECE, a),
        BufReader::with_capacity(PIECE, b),
    );
    loop {
        let (one, other) = (a.fill_buf()?, b.fill_buf()?);
        let length = one.len().min(other.len());
        if length == 0 {
            return Ok(one.len() == other.len());
        }
        if one[..length] != other[..length] {
            return Ok(false);
        }
        a.consume(length);
        b.consume(length);
    }
}

fn remove_marked(gone: &Dir, lower: &Dir, at: &Path) -> io::Result<()> {
    for (entry, path) in entries(gone, at)? {
        if entry.file_type()?.is_dir() {
            remove_marked(gone, lower, &path)?;
        } else {
            remove(lower, &path)?;
        }
    }
    Ok(())
}

/// Moves everything of the upper layer down.
fn carry(upper: &Dir, lower: &Dir, at: &Path) -> io::Result<()> {
    for (entry, path) in entries(upper, at)? {
        let kind = entry.file_type()?;
        let old = lower.symlink_metadata(&path).ok();
        if kind.is_dir() {
            if old.as_ref().is_some_and(|old| !old.is_dir()) {
                remove(lower, &path)?;
            }
            lower.create_dir_all(&path)?;
            carry(upper, lower, &path)?;
            continue;
        }
        if old.is_some_and(|old| old.is_dir()) {
            remove(lower, &path)?;
        }
        // Beside its place first, so that nobody sees half a file.
        let beside = beside(lower, &path)?;
        let put = || -> io::Result<()> {
            if kind.is_symlink() {
                lower.symlink_contents(upper.read_link_contents(&path)?, &beside)?;
            } else {
                upper.copy(&path, lower, &beside)?;
            }
            lower.rename(&beside, lower, &path)
        };
        put().inspect_err(|_| {
            let _ = lower.remove_file(&beside);
        })?;
    }
    Ok(())
}

/// A name beside a path that nothing has. What has a name like it was made by somebody else, and stays.
fn beside(dir: &Dir, path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    let name = format!(".toolcell-commit-{:032x}", u128::from_ne_bytes(random));
    let beside = path.with_file_name(name);
    match dir.symlink_metadata(&beside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(beside),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
    }
}

fn remove(dir: &Dir, path: &Path) -> io::Result<()> {
    match dir.symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => dir.remove_dir_all(path),
        Ok(_) => dir.remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The entries of a directory with their paths from the root.
pub(super) fn entries(root: &Dir, at: &Path) -> io::Result<Vec<(DirEntry, PathBuf)>> {
    let here = if at.as_os_str().is_empty() {
        Path::new(".")
    } else {
        at
    };
    root.read_dir(here)?
        .map(|entry| entry.map(|entry| (at.join(entry.file_name()), entry)))
        .map(|entry| entry.map(|(path, entry)| (entry, path)))
        .collect()
}
