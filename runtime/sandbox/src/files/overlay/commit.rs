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

/// Changes, and what could not be looked at or carried out. One bad entry never hides or stops the others.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// The changes, in order of their paths.
    pub found: Vec<Change>,
    /// What was left out, in order of its paths.
    pub skipped: Vec<Skipped>,
}

/// An entry that could not be looked at or carried out.
#[derive(Debug)]
#[non_exhaustive]
pub struct Skipped {
    /// Path below the directory.
    pub path: PathBuf,
    /// Why.
    pub reason: io::Error,
}

impl Skipped {
    /// An entry at this path, and why it is skipped.
    pub fn new(path: PathBuf, reason: io::Error) -> Self {
        Self { path, reason }
    }
}

/// Deepest directory that is looked at. Overlays of tools are as deep as a path has parts; what is deeper was made by
/// something else, and would exhaust the stack.
const MAX_DEPTH: usize = 1_000;

/// Lists what an overlay would change in a directory, in order of the paths. A file that was written and is the same as
/// before is no change. What cannot be read, and what is no file, directory or link, is skipped.
///
/// # Errors
/// When one of the directories itself cannot be read. An overlay that does not exist holds no changes.
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

    /// Whether something at this path or above it was skipped.
    fn is_skipped(&self, path: &Path) -> bool {
        self.skipped.iter().any(|skipped| path.starts_with(&skipped.path))
    }

    /// The entries of a directory, as far as they can be read.
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
/// place of another at once. What cannot be carried out is skipped and stays in the overlay, and doing it again is safe.
/// What somebody else changes while this runs is not noticed.
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
    // What could not be looked at was shown to nobody, and is not carried out.
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
            // The directory was made anew: what it held and does not hold any more is deleted.
            lost(lower, upper, &path, all);
        }
    }
}

/// Lists what a removed directory held and its successor does not.
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

/// Lists what the upper layer adds and changes.
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

/// What is different at a path, and whether the upper layer has a directory there.
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

/// Why a pipe, a socket or a device is skipped: opening one could wait for ever.
fn nothing_to_carry() -> io::Error {
    io::Error::other("it is no file, directory or link")
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

/// Removes what is marked, with its mark: new things of the same name must not go with it the next time.
fn remove_marked(gone: &Dir, lower: &Dir, at: &Path, failed: &mut Changes) {
    for (entry, path) in failed.entries(gone, at) {
        if failed.is_skipped(&path) {
            continue;
        }
        let removed = entry.file_type().and_then(|kind| {
            if kind.is_dir() {
                remove_marked(gone, lower, &path, failed);
                // One that is not empty holds the marks of what was skipped.
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

/// Moves everything of the upper layer down. What was moved is gone from it, so that it does not count as a conflict when
/// the rest is carried out later.
fn carry(upper: &Dir, lower: &Dir, at: &Path, failed: &mut Changes) {
    for (_, path) in failed.entries(upper, at) {
        if failed.is_skipped(&path) {
            continue;
        }
        match carry_one(upper, lower, &path) {
            Ok(true) => {
                carry(upper, lower, &path, failed);
                // What is not empty holds what was skipped.
                let _ = upper.remove_dir(&path);
            }
            Ok(false) => {}
            Err(error) => failed.skip(&path, error),
        }
    }
}

/// Moves one entry down; `true` for a directory, which is made and whose entries are not moved yet.
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
    // Beside its place first, so that nobody sees half a file, and nothing is lost when it cannot be copied.
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
