//! Carrying out what an overlay holds, and throwing it away.
//!
//! Every entry is reached by its names from the granted directory, none of which is followed where it is a link, so
//! that nothing is written elsewhere than was listed, whatever changes meanwhile. A file is written beside its place
//! and takes it at once; what was carried out is gone from the overlay. So the work can be ended at any point, by a
//! cancellation or a kill, and be taken up again.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir as Entries, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, flock, mkdirat, openat,
    readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::changes::{ChangeKind, Changes, Skipped};
use super::chosen::{chosen, concerns, forget};
use super::compare::{changes, is_too_deep, nothing_to_carry, open_existing, part};
use super::entry::{above, enter, is_missing};
use super::judge::{CommitOptions, Judge, When, file_of};
use super::pace::{Pace, is_cancelled};
use super::sparse;
use super::unfinished::{Unfinished, random};

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
    /// The work was cancelled. What was carried out until then is here; the rest stays in the overlay, and doing it
    /// again is safe.
    #[error("cancelled after {} changes", .0.found.len())]
    Cancelled(Changes),
    /// A file of the directory cannot be written or one of the overlay cannot be read. What was not done stays in the
    /// overlay, and doing it again is safe.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Carries out the changes of an overlay in its directory, empties the overlay, and says what was done. A file takes
/// the place of another at once, with its holes. What cannot or must not be carried out is skipped and stays in the
/// overlay, and doing it again is safe. Concurrent changes by other programs are not detected.
///
/// # Errors
/// See [`CommitError`].
pub fn commit(
    directory: &Path,
    overlay: &Path,
    on_conflict: OnConflict,
    options: &CommitOptions,
) -> Result<Changes, CommitError> {
    let nothing = |error| match is_cancelled(&error) {
        true => CommitError::Cancelled(Changes::default()),
        false => error.into(),
    };
    let Some(layers) = open_existing(overlay)? else {
        return Ok(Changes::default());
    };
    let _lock = lock(&layers)?;
    clean(&layers, directory)?;
    let mut listed = changes(directory, overlay, options).map_err(nothing)?;
    let only = options.only.as_ref().map(|only| chosen(only, &listed.found));
    let is_wanted = |path: &Path| only.as_ref().is_none_or(|only| only.contains(path));
    if on_conflict == OnConflict::Refuse {
        let mut found = super::conflicts(directory, overlay, options).map_err(nothing)?;
        found.retain(|path| only.as_ref().is_none_or(|only| concerns(path, only)));
        if !found.is_empty() {
            return Err(CommitError::Conflicts(found));
        }
    }
    // What was not chosen is left as if it could not be carried out.
    let left: Vec<PathBuf> = (listed.found.iter().map(|change| change.path.clone()))
        .filter(|path| !is_wanted(path))
        .collect();
    let upper = part(&layers, "upper")?;
    if part(&layers, "work")?.is_none() {
        layers.create_dir("work")?;
    }
    let mut carrying = Carrying {
        judge: Judge::new(directory, upper.as_ref(), options)?,
        lower: enter_host(directory)?,
        upper: upper.as_ref().map(file_of).transpose()?,
        unfinished: Unfinished(layers.open_dir("work")?),
        pace: options.pace(),
        changes: listed
            .found
            .iter()
            .map(|change| (change.path.clone(), change.kind))
            .collect(),
        // Entries that could not be inspected were not shown to the user, and are not committed.
        skipped: listed
            .skipped
            .iter()
            .map(|skipped| skipped.path.clone())
            .chain(left)
            .collect(),
        failed: match only {
            None => std::mem::take(&mut listed.skipped),
            Some(_) => Vec::new(),
        },
        done: HashSet::new(),
        puts_off_links: Some(false),
    };
    let carried = carrying.all(part(&layers, "gone")?.as_ref(), upper.as_ref());
    let Carrying { failed, done, .. } = carrying;
    if carried.is_ok() && failed.is_empty() && only.is_none() {
        remove_parts(&layers)?;
    } else {
        forget(&layers, &done)?;
    }
    // What lies in a removed directory goes with it.
    let is_done = |path: &Path, kind| match kind {
        ChangeKind::Deleted => path.ancestors().any(|path| done.contains(path)),
        _ => done.contains(path),
    };
    listed.found.retain(|change| is_done(&change.path, change.kind));
    listed.skipped = failed;
    match carried {
        Ok(()) => Ok(listed),
        Err(error) if is_cancelled(&error) => Err(CommitError::Cancelled(listed)),
        Err(error) => Err(error.into()),
    }
}

/// Discards the changes of an overlay. The directory of the overlay itself is kept.
///
/// # Errors
/// A part of the overlay cannot be removed.
pub fn discard(directory: &Path, overlay: &Path) -> io::Result<()> {
    if let Some(layers) = open_existing(overlay)? {
        let _lock = lock(&layers)?;
        match clean(&layers, directory) {
            // The changes can be thrown away all the same.
            Err(error) if is_missing(&error) => {}
            cleaned => cleaned?,
        }
        remove_parts(&layers)?;
    }
    Ok(())
}

/// Holds others off who carry out or throw away the same changes.
///
/// # Errors
/// Another process is doing so.
pub(super) fn lock(layers: &cap_std::fs::Dir) -> io::Result<File> {
    let file = file_of(layers)?;
    // What shares a descriptor shares its locks: this one is of its own.
    let own = File::from(openat(
        &file,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    match flock(&own, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::Error::other(
            "it is being carried out or thrown away by another process",
        )),
        // Some file systems know no locks.
        _ => Ok(own),
    }
}

/// Removes what a killed commit left beside its files.
pub(super) fn clean(layers: &cap_std::fs::Dir, directory: &Path) -> io::Result<()> {
    match part(layers, "work")? {
        Some(work) => Unfinished(work).clean(&enter_host(directory)?),
        None => Ok(()),
    }
}

fn enter_host(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(rustix::fs::CWD, directory, flags, Mode::empty())?.into())
}

/// Removes all parts of an overlay. They are put aside first, so that what a kill leaves is no half of the changes.
fn remove_parts(layers: &cap_std::fs::Dir) -> io::Result<()> {
    let unless_missing = |done: io::Result<()>| match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    let [upper, gone, work, base] = super::PARTS;
    layers.create_dir_all(work)?;
    for name in [gone, upper, base] {
        let aside = format!("{work}/{:032x}", random()?);
        unless_missing(layers.rename(name, layers, aside))?;
    }
    unless_missing(layers.remove_dir_all(work))
}

/// A commit in progress. Its methods fail only when it is cancelled, unless they say otherwise.
struct Carrying {
    lower: File,
    upper: Option<File>,
    judge: Judge,
    unfinished: Unfinished,
    pace: Pace,
    /// Listed changes.
    changes: HashMap<PathBuf, ChangeKind>,
    skipped: HashSet<PathBuf>,
    failed: Vec<Skipped>,
    /// Committed changes.
    done: HashSet<PathBuf>,
    /// True once a link was put off; `None` when they are carried out.
    puts_off_links: Option<bool>,
}

impl Carrying {
    fn all(&mut self, gone: Option<&cap_std::fs::Dir>, upper: Option<&cap_std::fs::Dir>) -> io::Result<()> {
        if let Some(gone) = gone {
            self.remove_marked(&file_of(gone)?, Path::new(""))?;
        }
        if let Some(upper) = upper {
            let upper = file_of(upper)?;
            self.carry(&upper, Path::new(""))?;
            // Links come last: what they lead through is in its place by then.
            if std::mem::take(&mut self.puts_off_links) == Some(true) {
                self.carry(&upper, Path::new(""))?;
            }
        }
        Ok(())
    }

    /// Skips what is at a path, unless the work was cancelled.
    fn skip(&mut self, path: &Path, reason: io::Error) -> io::Result<()> {
        if is_cancelled(&reason) {
            return Err(reason);
        }
        if self.skipped.insert(path.to_owned()) {
            self.failed.push(Skipped::new(path.to_owned(), reason));
        }
        Ok(())
    }

    /// The names in the directory `at` of a layer, as paths from its root.
    fn names(&mut self, layer: &File, at: &Path) -> io::Result<Vec<PathBuf>> {
        match enter(layer, at).and_then(|dir| names(&dir, &self.pace)) {
            Ok(names) if !is_too_deep(at) => Ok(names.into_iter().map(|name| at.join(name)).collect()),
            Ok(_) => self
                .skip(at, io::Error::other("it is too deep"))
                .map(|()| Vec::new()),
            Err(error) => self.skip(at, error).map(|()| Vec::new()),
        }
    }

    /// Removes what is marked, with its mark: new things of the same name must not go with it the next time.
    fn remove_marked(&mut self, gone: &File, at: &Path) -> io::Result<()> {
        for path in self.names(gone, at)? {
            self.pace.go_on()?;
            if self.skipped.contains(&path) {
                continue;
            }
            if let Err(error) = self.remove_one(gone, &path) {
                self.skip(&path, error)?;
            }
        }
        Ok(())
    }

    /// Removes what one mark is for, or what those in a directory of marks are for.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove_one(&mut self, gone: &File, path: &Path) -> io::Result<()> {
        let marks = enter(gone, above(path))?;
        let name = path.file_name().unwrap_or_default();
        if is_dir(&statat(&marks, name, AtFlags::SYMLINK_NOFOLLOW)?) {
            self.remove_marked(gone, path)?;
            // One that is not empty holds the marks of what was skipped.
            let _ = unlinkat(&marks, name, AtFlags::REMOVEDIR);
            return Ok(());
        }
        match enter(&self.lower, above(path)) {
            Err(error) if is_missing(&error) => {
                self.done.insert(path.to_owned());
            }
            dir => self.remove_unless_replaced(&dir?, path)?,
        }
        Ok(unlinkat(&marks, name, AtFlags::empty())?)
    }

    /// Removes what is at a path, whose directory is open, unless the upper layer has something in its place:
    /// [`Self::carry`] replaces a file or a link at once, or keeps it if both are the same. Of a directory that was made
    /// anew, what it no longer holds is removed.
    ///
    /// # Errors
    /// A part of it cannot be removed. Nothing is carried into it then, because its mark remains.
    fn remove_unless_replaced(&mut self, dir: &File, path: &Path) -> io::Result<()> {
        self.pace.go_on()?;
        let Some(new) = self.replacement(path)? else {
            self.remove_tree(dir, path)?;
            self.done.insert(path.to_owned());
            return Ok(());
        };
        let name = path.file_name().unwrap_or_default();
        if !is_dir(&new) || !look(dir, name)?.as_ref().is_some_and(is_dir) {
            return Ok(());
        }
        if is_too_deep(path) {
            return Err(io::Error::other("it is too deep"));
        }
        let below = enter(dir, Path::new(name))?;
        let mut is_complete = true;
        for name in names(&below, &self.pace)? {
            let path = path.join(name);
            // A skipped file or link of the upper layer stands in the place of this one all the same.
            let is_hidden = self.replacement(&path)?.is_some_and(|new| !is_dir(&new));
            if self.skipped.contains(&path) && !is_hidden {
                is_complete = false;
            } else if let Err(error) = self.remove_unless_replaced(&below, &path) {
                is_complete = false;
                self.skip(&path, error)?;
            }
        }
        match is_complete {
            true => Ok(()),
            false => Err(io::Error::other("something in it is skipped")),
        }
    }

    /// Returns what the upper layer has at a path.
    fn replacement(&self, path: &Path) -> io::Result<Option<Stat>> {
        let Some(upper) = &self.upper else {
            return Ok(None);
        };
        match enter(upper, above(path)) {
            Err(error) if is_missing(&error) => Ok(None),
            dir => look(&dir?, path.file_name().unwrap_or_default()),
        }
    }

    /// Removes what is at a path, whose directory is open, with everything below it.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    fn remove_tree(&mut self, dir: &File, path: &Path) -> io::Result<()> {
        self.pace.go_on()?;
        let name = path.file_name().unwrap_or_default();
        let Some(stat) = look(dir, name)? else {
            return Ok(());
        };
        self.judge.change_in(dir, path)?;
        if !is_dir(&stat) {
            return Ok(unlinkat(dir, name, AtFlags::empty())?);
        }
        if is_too_deep(path) {
            return Err(io::Error::other("it is too deep"));
        }
        let below = enter(dir, Path::new(name))?;
        for name in names(&below, &self.pace)? {
            let path = path.join(name);
            if let Err(error) = self.remove_tree(&below, &path) {
                self.skip(&path, error)?;
            }
        }
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(io::Error::other("something in it is skipped or new")),
            removed => Ok(removed?),
        }
    }

    /// Moves everything of a directory of the upper layer down. What was moved is gone from it, so that it does not
    /// count as a conflict when the rest is carried out later.
    fn carry(&mut self, upper: &File, at: &Path) -> io::Result<()> {
        for path in self.names(upper, at)? {
            self.pace.go_on()?;
            if self.skipped.contains(&path) {
                continue;
            }
            match self.carry_one(upper, &path) {
                Ok(true) => {
                    self.carry(upper, &path)?;
                    // What is not empty holds what was skipped.
                    let _ = enter(upper, above(&path))
                        .map(|dir| unlinkat(&dir, path.file_name().unwrap_or_default(), AtFlags::REMOVEDIR));
                }
                Ok(false) => {}
                Err(error) => self.skip(&path, error)?,
            }
        }
        Ok(())
    }

    /// Moves one entry down; `true` for a directory, which is made and whose entries are not moved yet.
    ///
    /// # Errors
    /// It cannot be moved.
    fn carry_one(&mut self, upper: &File, path: &Path) -> io::Result<bool> {
        let name = path.file_name().unwrap_or_default();
        let (from, to) = (enter(upper, above(path))?, enter(&self.lower, above(path))?);
        let new = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let old = look(&to, name)?;
        if is_dir(&new) && old.as_ref().is_some_and(is_dir) {
            return Ok(true);
        }
        if !is_dir(&new) && !self.changes.contains_key(path) {
            // It was there before, and was not shown to the user.
            return Ok(false);
        }
        if let Some(has_links) = &mut self.puts_off_links
            && FileType::from_raw_mode(new.st_mode) == FileType::Symlink
        {
            *has_links = true;
            return Ok(false);
        }
        self.judge.change_in(&to, path)?;
        if is_dir(&new) {
            if old.is_some() {
                self.remove_tree(&to, path)?;
            }
            mkdirat(&to, name, Mode::from_raw_mode(0o777))?;
            self.done.insert(path.to_owned());
            return Ok(true);
        }
        // Beside its place first: no reader sees half a file, and nothing is lost if the copy fails.
        let beside = self.unfinished.begin(above(path))?;
        let put = self.put(&from, &new, &to, old.as_ref(), &beside, path);
        if put.is_err() {
            let _ = unlinkat(&to, &beside, AtFlags::empty());
        }
        self.unfinished.end(&beside);
        put?;
        self.done.insert(path.to_owned());
        unlinkat(&from, name, AtFlags::empty())?;
        Ok(false)
    }

    /// Puts a file or link of the upper layer in its place, by way of the name `beside`.
    fn put(
        &mut self,
        from: &File,
        new: &Stat,
        to: &File,
        old: Option<&Stat>,
        beside: &OsString,
        path: &Path,
    ) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default();
        match FileType::from_raw_mode(new.st_mode) {
            FileType::Symlink => {
                let target = OsString::from_vec(readlinkat(from, name, Vec::new())?.into_bytes());
                self.judge.link(path, Path::new(&target), When::Always)?;
                symlinkat(&target, to, beside)?;
            }
            FileType::RegularFile => {
                let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let source = File::from(openat(from, name, read, Mode::empty())?);
                let metadata = source.metadata()?;
                if !metadata.is_file() {
                    return Err(nothing_to_carry());
                }
                let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let copy = File::from(openat(to, beside, write, Mode::from_raw_mode(0o600))?);
                sparse::copy(&source, &copy, metadata.len(), &self.pace)?;
                // Without the set-user-ID and set-group-ID bits.
                fchmod(&copy, Mode::from_raw_mode(new.st_mode & 0o777))?;
            }
            _ => return Err(nothing_to_carry()),
        }
        if old.is_some_and(is_dir) {
            self.remove_tree(to, path)?;
        }
        Ok(renameat(to, beside, to, name)?)
    }
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Returns the entry of a name; `None` if there is none.
fn look(dir: &File, name: &std::ffi::OsStr) -> io::Result<Option<Stat>> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The names in an open directory.
fn names(dir: &File, pace: &Pace) -> io::Result<Vec<OsString>> {
    let readable = openat(
        dir,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut names = Vec::new();
    for entry in Entries::new(readable)? {
        pace.go_on()?;
        let name = entry?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}
