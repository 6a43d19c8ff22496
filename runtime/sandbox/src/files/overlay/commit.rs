//! Listing, committing and discarding the changes of an overlay.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry};

/// One difference between a directory and its overlay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Path below the directory.
    pub path: PathBuf,
    /// Kind of the difference.
    pub kind: ChangeKind,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChangeKind {
    /// An entry that is missing in the directory. The content of an added directory is listed as well.
    Added,
    /// A file with other contents, or an entry of another type.
    Changed,
    /// An entry that was removed in the overlay, with everything below it.
    Deleted,
}

/// Changes, and entries that could not be inspected or committed. An entry that fails never hides or stops others.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Changes, ordered by path.
    pub found: Vec<Change>,
    /// Skipped entries, ordered by path.
    pub skipped: Vec<Skipped>,
}

/// An entry that could not be inspected or committed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// Path below the directory.
    pub path: PathBuf,
    /// Reason of the failure.
    pub reason: io::Error,
}

impl Skipped {
    /// Creates the record of a skipped entry.
    pub fn new(path: PathBuf, reason: io::Error) -> Self {
        Self { path, reason }
    }
}

/// Maximum depth of directories. Overlays of tools are as deep as a path has parts; deeper ones were created by other
/// programs, and would overflow the stack.
const MAX_DEPTH: usize = 1_000;

/// Lists the changes that an overlay would make in a directory, ordered by path. A file rewritten with the same content
/// is not a change. Unreadable entries, and those that are neither file, directory nor link, are skipped.
///
/// # Errors
/// If one of the directories itself cannot be read. A missing overlay has no changes.
pub fn changes(directory: &Path, overlay: &Path) -> io::Result<Changes> {
    let mut all = Changes::default();
    let Some(overlay) = open_existing(overlay)? else {
        return Ok(all);
    };
    let lower = Dir::open_ambient_dir(directory, ambient_authority())?;
    let upper = part(&overlay, "upper")?;
    if let Some(gone) = part(&overlay, "gone")? {
        deleted(&gone, &lower, upper.as_ref(), Path::new(""), &mut all);
    }
    if let Some(upper) = &upper {
        changed(upper, &lower, Path::new(""), &mut all);
    }
    all.found.sort();
    all.found.dedup();
    all.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

impl Changes {
    fn skip(&mut self, path: &Path, reason: io::Error) {
        self.skipped.push(Skipped {
            path: path.to_owned(),
            reason,
        });
    }

    fn push(&mut self, path: &Path, kind: ChangeKind) {
        self.found.push(Change {
            path: path.to_owned(),
            kind,
        });
    }

    /// Returns `true` if this path or a parent was skipped.
    fn is_skipped(&self, path: &Path) -> bool {
        self.skipped.iter().any(|skipped| path.starts_with(&skipped.path))
    }

    /// Returns the readable entries of a directory.
    fn entries(&mut self, root: &Dir, at: &Path) -> Vec<(DirEntry, PathBuf)> {
        if at.components().nth(MAX_DEPTH).is_some() {
            self.skip(at, io::Error::other("it is too deep"));
            return Vec::new();
        }
        entries(root, at).unwrap_or_else(|error| {
            self.skip(at, error);
            Vec::new()
        })
    }
}

/// Handling of changes that were made elsewhere in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Nothing is committed.
    Refuse,
    /// They are overwritten.
    Overwrite,
}

/// Error of committing changes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Affected files were changed elsewhere in the meantime. Nothing was committed.
    #[error("{} changed in the meantime: {}", .0.len(), .0.iter().map(|p| format!("`{}`", p.display())).collect::<Vec<_>>().join(", "))]
    Conflicts(Vec<PathBuf>),
    /// A file of the directory cannot be written or one of the overlay cannot be read. Remaining changes stay in the
    /// overlay, and the commit can be repeated safely.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Applies the changes of an overlay to its directory, empties the overlay, and returns what was done. Files are
/// replaced atomically. Entries that fail are skipped and stay in the overlay, and the commit can be repeated safely.
/// Concurrent changes by other programs are not detected.
///
/// # Errors
/// See [`CommitError`].
pub fn commit(directory: &Path, overlay: &Path, on_conflict: OnConflict) -> Result<Changes, CommitError> {
    if on_conflict == OnConflict::Refuse {
        let found = super::conflicts(directory, overlay)?;
        if !found.is_empty() {
            return Err(CommitError::Conflicts(found));
        }
    }
    let mut done = changes(directory, overlay)?;
    let Some(layers) = open_existing(overlay)? else {
        return Ok(done);
    };
    let lower = Dir::open_ambient_dir(directory, ambient_authority())?;
    // Entries that could not be inspected were not shown to the user, and are not committed.
    let mut failed = Changes {
        skipped: std::mem::take(&mut done.skipped),
        ..Changes::default()
    };
    if let Some(gone) = part(&layers, "gone")? {
        remove_marked(&gone, &lower, Path::new(""), &mut failed);
    }
    if let Some(upper) = part(&layers, "upper")? {
        carry(&upper, &lower, Path::new(""), &mut failed);
    }
    if failed.skipped.is_empty() {
        discard(overlay)?;
    }
    let is_done = |path: &Path| {
        !failed
            .skipped
            .iter()
            .any(|skipped| skipped.path.starts_with(path))
    };
    done.found.retain(|change| is_done(&change.path));
    done.skipped = failed.skipped;
    Ok(done)
}

/// Discards the changes of an overlay. The directory of the overlay itself is kept.
///
/// # Errors
/// If an entry of the overlay cannot be removed.
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

/// Lists entries marked as removed that have no replacement.
fn deleted(gone: &Dir, lower: &Dir, upper: Option<&Dir>, at: &Path, all: &mut Changes) {
    for (entry, path) in all.entries(gone, at) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                deleted(gone, lower, upper, &path, all);
                continue;
            }
            Ok(_) => {}
            Err(error) => {
                all.skip(&path, error);
                continue;
            }
        }
        let is_replaced = upper.is_some_and(|upper| upper.symlink_metadata(&path).is_ok());
        let Ok(old) = lower.symlink_metadata(&path) else {
            continue;
        };
        if !is_replaced {
            all.push(&path, ChangeKind::Deleted);
        } else if old.is_dir() {
            // The directory was recreated: former entries without a counterpart are deleted.
            lost(lower, upper, &path, all);
        }
    }
}

/// Lists entries of a removed directory that its replacement does not have.
fn lost(lower: &Dir, upper: Option<&Dir>, at: &Path, all: &mut Changes) {
    for (entry, path) in all.entries(lower, at) {
        let new = upper.and_then(|upper| upper.symlink_metadata(&path).ok());
        match new {
            None => all.push(&path, ChangeKind::Deleted),
            Some(new) if new.is_dir() && entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                lost(lower, upper, &path, all);
            }
            Some(_) => {}
        }
    }
}

/// Lists entries that the upper layer adds and changes.
fn changed(upper: &Dir, lower: &Dir, at: &Path, all: &mut Changes) {
    for (_, path) in all.entries(upper, at) {
        match kind_of_change(upper, lower, &path) {
            Ok((kind, is_dir)) => {
                if let Some(kind) = kind {
                    all.push(&path, kind);
                }
                if is_dir {
                    changed(upper, lower, &path, all);
                }
            }
            Err(error) => all.skip(&path, error),
        }
    }
}

/// Returns the kind of difference at a path, and whether the upper layer has a directory there.
fn kind_of_change(upper: &Dir, lower: &Dir, path: &Path) -> io::Result<(Option<ChangeKind>, bool)> {
    let new = upper.symlink_metadata(path)?;
    if !new.is_dir() && !new.is_file() && !new.is_symlink() {
        return Err(nothing_to_carry());
    }
    let old = lower.symlink_metadata(path).ok();
    let kind = match &old {
        None => Some(ChangeKind::Added),
        Some(old) if old.is_dir() && new.is_dir() => None,
        Some(old) if old.is_file() && new.is_file() => {
            let same = old.len() == new.len() && is_same(lower.open(path)?, upper.open(path)?)?;
            (!same).then_some(ChangeKind::Changed)
        }
        Some(old) if old.is_symlink() && new.is_symlink() => {
            let same = lower.read_link_contents(path)? == upper.read_link_contents(path)?;
            (!same).then_some(ChangeKind::Changed)
        }
        Some(_) => Some(ChangeKind::Changed),
    };
    Ok((kind, new.is_dir()))
}

/// Returns the error of skipping a pipe, a socket or a device: opening one could block for ever.
fn nothing_to_carry() -> io::Error {
    io::Error::other("it is not a file, directory or link")
}

/// Compares two files in pieces, because they may exceed the memory.
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

/// Removes marked entries with their marks: otherwise new entries of the same name would be removed the next time.
fn remove_marked(gone: &Dir, lower: &Dir, at: &Path, failed: &mut Changes) {
    for (entry, path) in failed.entries(gone, at) {
        if failed.is_skipped(&path) {
            continue;
        }
        let removed = entry.file_type().and_then(|kind| {
            if kind.is_dir() {
                remove_marked(gone, lower, &path, failed);
                // A directory that is not empty contains the marks of skipped entries.
                let _ = gone.remove_dir(&path);
                return Ok(());
            }
            remove(lower, &path)?;
            gone.remove_file(&path)
        });
        if let Err(error) = removed {
            failed.skip(&path, error);
        }
    }
}

/// Moves all entries of the upper layer down. Moved entries are removed from it, so that they are not conflicts when
/// the rest is committed later.
fn carry(upper: &Dir, lower: &Dir, at: &Path, failed: &mut Changes) {
    for (_, path) in failed.entries(upper, at) {
        if failed.is_skipped(&path) {
            continue;
        }
        match carry_one(upper, lower, &path) {
            Ok(true) => {
                carry(upper, lower, &path, failed);
                // A directory that is not empty contains skipped entries.
                let _ = upper.remove_dir(&path);
            }
            Ok(false) => {}
            Err(error) => failed.skip(&path, error),
        }
    }
}

/// Moves one entry down; returns `true` for a directory, which is created and whose entries remain to be moved.
fn carry_one(upper: &Dir, lower: &Dir, path: &Path) -> io::Result<bool> {
    let new = upper.symlink_metadata(path)?;
    let old = lower.symlink_metadata(path).ok();
    if new.is_dir() {
        if old.as_ref().is_some_and(|old| !old.is_dir()) {
            remove(lower, path)?;
        }
        lower.create_dir_all(path)?;
        return Ok(true);
    }
    if !new.is_file() && !new.is_symlink() {
        return Err(nothing_to_carry());
    }
    // Written beside its final path first, so that no partial file is visible, and nothing is lost if the copy fails.
    let beside = beside(lower, path)?;
    let put = || -> io::Result<()> {
        if new.is_symlink() {
            lower.symlink_contents(upper.read_link_contents(path)?, &beside)?;
        } else {
            upper.copy(path, lower, &beside)?;
        }
        if old.is_some_and(|old| old.is_dir()) {
            remove(lower, path)?;
        }
        lower.rename(&beside, lower, path)?;
        upper.remove_file(path)
    };
    put().inspect_err(|_| {
        let _ = lower.remove_file(&beside);
    })?;
    Ok(false)
}

/// Returns an unused name beside a path. An existing file of a similar name is kept.
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

/// Returns the entries of a directory with their paths relative to the root.
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
