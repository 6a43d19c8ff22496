//! Comparison of an overlay with its directory.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirEntry};

use super::changes::{Change, ChangeKind, Changes, Skipped};
use super::entry::Entry;
use super::judge::{CommitOptions, Judge, When};
use super::pace::{Pace, is_cancelled};

/// Maximum number of directories in a path of an overlay. Each entry is reached from the root without following links, so
/// that a deep tree takes the cube of its depth. What is deeper was put there by something else, or moved there whole.
pub(super) const MAX_DEPTH: usize = 200;

/// Lists what an overlay would change in a directory, in order of the paths. A file that was written and is the same as
/// before is no change. What cannot be read, what is no file, directory or link, and what `options` deny is skipped.
///
/// # Errors
/// One of the directories itself cannot be read or is denied, or the work was cancelled. An overlay that does not
/// exist holds no changes.
pub fn changes(directory: &Path, overlay: &Path, options: &CommitOptions) -> io::Result<Changes> {
    let Some(overlay) = open_existing(overlay)? else {
        return Ok(Changes::default());
    };
    let upper = part(&overlay, "upper")?;
    let judge = Judge::new(directory, upper.as_ref(), options)?;
    let mut listing = Listing {
        lower: Dir::open_ambient_dir(directory, ambient_authority())?,
        upper,
        pace: options.pace(),
        judge: &judge,
        all: Changes::default(),
    };
    if let Some(gone) = part(&overlay, "gone")? {
        listing.deleted(&gone, Path::new(""))?;
    }
    if let Some(upper) = &listing.upper {
        let upper = upper.try_clone()?;
        listing.changed(&upper, Path::new(""))?;
    }
    let mut all = listing.all;
    all.found.sort();
    all.found.dedup();
    all.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    all.skipped.dedup_by(|a, b| a.path == b.path);
    Ok(all)
}

/// A listing in progress. Its methods fail only when it is cancelled.
struct Listing<'a> {
    lower: Dir,
    upper: Option<Dir>,
    pace: Pace,
    judge: &'a Judge,
    all: Changes,
}

impl Listing<'_> {
    /// Skips what is at a path, unless the work was cancelled.
    fn skip(&mut self, path: &Path, reason: io::Error) -> io::Result<()> {
        if is_cancelled(&reason) {
            return Err(reason);
        }
        self.all.skipped.push(Skipped::new(path.to_owned(), reason));
        Ok(())
    }

    fn push(&mut self, path: &Path, kind: ChangeKind) -> io::Result<()> {
        match self.judge.change(path) {
            Ok(()) => {
                self.all.found.push(Change {
                    path: path.to_owned(),
                    kind,
                });
                Ok(())
            }
            Err(error) => self.skip(path, error),
        }
    }

    /// The entries of a directory, as far as they can be read.
    fn entries(&mut self, root: &Dir, at: &Path) -> io::Result<Vec<(DirEntry, PathBuf)>> {
        let found = match is_too_deep(at) {
            true => Err(io::Error::other("it is too deep")),
            false => entries(root, at, &self.pace),
        };
        match found {
            Ok(entries) => Ok(entries),
            Err(error) => self.skip(at, error).map(|()| Vec::new()),
        }
    }

    /// Lists what is marked as removed and has nothing in its place.
    fn deleted(&mut self, gone: &Dir, at: &Path) -> io::Result<()> {
        for (entry, path) in self.entries(gone, at)? {
            self.pace.go_on()?;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    self.deleted(gone, &path)?;
                    continue;
                }
                Ok(_) => {}
                Err(error) => {
                    self.skip(&path, error)?;
                    continue;
                }
            }
            let Ok(Some(old)) = Entry::find(&self.lower, &path) else {
                continue;
            };
            if self.replacement(&path).is_none() {
                self.push(&path, ChangeKind::Deleted)?;
            } else if old.metadata.is_dir() {
                // The directory was made anew: what it held and does not hold any more is deleted.
                self.lost(&path)?;
            }
        }
        Ok(())
    }

    /// The entry that the upper layer has at a path.
    fn replacement(&self, path: &Path) -> Option<Entry> {
        Entry::find(self.upper.as_ref()?, path).ok().flatten()
    }

    /// Lists what a removed directory held and its successor does not.
    fn lost(&mut self, at: &Path) -> io::Result<()> {
        let lower = self.lower.try_clone()?;
        for (entry, path) in self.entries(&lower, at)? {
            self.pace.go_on()?;
            match self.replacement(&path) {
                None => self.push(&path, ChangeKind::Deleted)?,
                Some(new) if new.metadata.is_dir() && entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                    self.lost(&path)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Lists what the upper layer adds and changes.
    fn changed(&mut self, upper: &Dir, at: &Path) -> io::Result<()> {
        for (_, path) in self.entries(upper, at)? {
            self.pace.go_on()?;
            match self.kind_of_change(upper, &path) {
                Ok((kind, is_dir)) => {
                    if let Some(kind) = kind {
                        self.push(&path, kind)?;
                    }
                    if is_dir {
                        self.changed(upper, &path)?;
                    }
                }
                Err(error) => self.skip(&path, error)?,
            }
        }
        Ok(())
    }

    /// Returns the difference at a path, and true if the upper layer has a directory there.
    fn kind_of_change(&self, upper: &Dir, path: &Path) -> io::Result<(Option<ChangeKind>, bool)> {
        let entry = Entry::find(upper, path)?.ok_or(io::ErrorKind::NotFound)?;
        let new = &entry.metadata;
        if !new.is_dir() && !new.is_file() && !new.is_symlink() {
            return Err(nothing_to_carry());
        }
        let original = Entry::find(&self.lower, path).ok().flatten();
        let kind = match original.as_ref().map(|original| (original, &original.metadata)) {
            None => Some(ChangeKind::Added),
            Some((_, old)) if old.is_dir() && new.is_dir() => None,
            Some((original, old)) if old.is_file() && new.is_file() => {
                let same = old.len() == new.len()
                    && is_same(original.open()?, entry.open()?, old.len(), &self.pace)?;
                (!same).then_some(ChangeKind::Changed)
            }
            Some((original, old)) if old.is_symlink() && new.is_symlink() => {
                (original.link()? != entry.link()?).then_some(ChangeKind::Changed)
            }
            Some(_) => Some(ChangeKind::Changed),
        };
        if kind.is_some() && new.is_symlink() {
            self.judge.link(path, &entry.link()?, When::Finally)?;
        }
        Ok((kind, new.is_dir()))
    }
}

/// Returns the reason to skip a pipe, a socket or a device: opening one could block forever.
pub(super) fn nothing_to_carry() -> io::Error {
    io::Error::other("it is no file, directory or link")
}

pub(super) fn is_too_deep(path: &Path) -> bool {
    path.components().nth(MAX_DEPTH).is_some()
}

/// Returns true if two files have equal contents in their first `length` bytes. Each is read in pieces, for they may be
/// longer than the memory.
fn is_same(a: impl io::Read, b: impl io::Read, length: u64, pace: &Pace) -> io::Result<bool> {
    const PIECE: usize = 64 << 10;
    // A file that grows meanwhile has an end all the same.
    let (mut a, mut b) = (
        BufReader::with_capacity(PIECE, a.take(length)),
        BufReader::with_capacity(PIECE, b.take(length)),
    );
    loop {
        pace.go_on()?;
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

/// The entries of a directory with their paths from the root.
pub(super) fn entries(root: &Dir, at: &Path, pace: &Pace) -> io::Result<Vec<(DirEntry, PathBuf)>> {
    let here = if at.as_os_str().is_empty() {
        Path::new(".")
    } else {
        at
    };
    root.read_dir(here)?
        .map(|entry| {
            pace.go_on()?;
            entry.map(|entry| (at.join(entry.file_name()), entry))
        })
        .map(|entry| entry.map(|(path, entry)| (entry, path)))
        .collect()
}
