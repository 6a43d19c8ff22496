//! Digests of the granted directory's files at the time an overlay changed them.
//!
//! `base` contains, for each file or link that was changed, replaced or removed, a file with a digest of the original.
//! When the changes are committed, everything that they replace must still match: otherwise it was changed elsewhere in
//! the meantime, and that work would be lost.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use cap_primitives::fs::{self, OpenOptions};
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::compare::{changes, entries, open_existing, part};
use super::entry::Entry;
use super::judge::CommitOptions;
use super::pace::{Pace, is_cancelled};
use super::{Overlay, make_dir, stat};

/// Digest of a file's contents or a link's target, in hexadecimal, with a prefix letter that distinguishes the two.
type Print = String;

/// Length of a digest with its prefix, in bytes.
const MAX_PRINT: u64 = 65;

/// Name of this part of an overlay.
const PART: &str = "base";

/// A reader that computes a digest of the data read, and that ends with the call that it serves.
pub(super) struct Digesting<'a, R> {
    from: R,
    hasher: blake3::Hasher,
    pace: &'a Pace,
}

impl<'a, R: Read> Digesting<'a, R> {
    pub(super) fn new(from: R, pace: &'a Pace) -> Self {
        Self {
            from,
            hasher: blake3::Hasher::new(),
            pace,
        }
    }

    /// Returns the digest of the file that was read.
    pub(super) fn print(self) -> Print {
        format!("f{}", self.hasher.finalize().to_hex())
    }
}

impl<R: Read> Read for Digesting<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.pace.go_on()?;
        let count = self.from.read(into)?;
        self.hasher.update(&into[..count]);
        Ok(count)
    }
}

fn of_file(from: impl Read, pace: &Pace) -> io::Result<Print> {
    let mut from = Digesting::new(from, pace);
    io::copy(&mut from, &mut io::sink())?;
    Ok(from.print())
}

fn of_link(target: &Path) -> Print {
    format!(
        "l{}",
        blake3::hash(target.as_os_str().as_encoded_bytes()).to_hex()
    )
}

impl Overlay {
    /// Records the lower layer's entry at a path, unless it is missing, a directory, or already recorded.
    pub(in super::super) fn note(&self, path: &str, pace: &Pace) -> io::Result<()> {
        // An existing record is kept, so that a file is read once however often it is replaced.
        if stat(&self.base, path)?.is_some_and(|noted| noted.is_file()) {
            return Ok(());
        }
        let (lower, at) = (&self.lower.dir, Path::new(path));
        let print = match stat(lower, path)? {
            Some(metadata) if metadata.is_symlink() => of_link(&fs::read_link_contents(lower, at)?),
            Some(metadata) if metadata.is_file() => of_file(self.open_lower(path)?, pace)?,
            _ => return Ok(()),
        };
        self.note_as(path, &print)
    }

    /// Records the digest of data read from the lower layer at a path, unless one exists.
    pub(super) fn note_as(&self, path: &str, print: &Print) -> io::Result<()> {
        for (end, _) in path.match_indices('/') {
            make_dir(&self.base, &path[..end])?;
        }
        let new: Result<File, _> = fs::open(
            &self.base,
            Path::new(path),
            OpenOptions::new().write(true).create_new(true),
        );
        match new {
            Ok(mut file) => file.write_all(print.as_bytes()),
            // An earlier record is kept.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the paths that an overlay would change or remove although they were changed elsewhere since, in order.
///
/// # Errors
/// One of the directories cannot be read, or the work was cancelled.
pub fn conflicts(directory: &Path, overlay: &Path, options: &CommitOptions) -> io::Result<Vec<PathBuf>> {
    let Some(layers) = open_existing(overlay)? else {
        return Ok(Vec::new());
    };
    let lower = Dir::open_ambient_dir(directory, ambient_authority())?;
    let base = part(&layers, PART)?;
    let mut found = Vec::new();
    let pace = options.pace();
    for change in changes(directory, overlay, options)?.found {
        check(&lower, base.as_ref(), &change.path, &pace, &mut found)?;
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Adds everything at a path and below it that is not what was noted. What cannot be read could be anything.
fn check(
    lower: &Dir,
    base: Option<&Dir>,
    path: &Path,
    pace: &Pace,
    found: &mut Vec<PathBuf>,
) -> io::Result<()> {
    pace.go_on()?;
    let entry = Entry::find(lower, path);
    if matches!(&entry, Ok(Some(entry)) if entry.metadata.is_dir()) {
        match entries(lower, path, pace) {
            Ok(entries) => {
                for (_, path) in &entries {
                    check(lower, base, path, pace, found)?;
                }
            }
            Err(error) if is_cancelled(&error) => return Err(error),
            Err(_) => found.push(path.to_owned()),
        }
        return Ok(());
    }
    let noted = base.and_then(|base| noted(base, path));
    match entry.and_then(|entry| now(entry, pace)) {
        Ok(now) if noted == now => {}
        Err(error) if is_cancelled(&error) => return Err(error),
        _ => found.push(path.to_owned()),
    }
    Ok(())
}

/// Returns what was noted at a path. There is a directory if files below it were recorded; what is neither was not written by us.
fn noted(base: &Dir, path: &Path) -> Option<Print> {
    let mut print = Print::new();
    let file = Entry::find(base, path).ok()??.open().ok()?;
    file.take(MAX_PRINT + 1).read_to_string(&mut print).ok()?;
    Some(print)
}

/// Returns the digest of an entry that is no directory; `None` if there is none.
fn now(entry: Option<Entry>, pace: &Pace) -> io::Result<Option<Print>> {
    let Some(entry) = entry else {
        return Ok(None);
    };
    Ok(Some(if entry.metadata.is_symlink() {
        of_link(&entry.link()?)
    } else if entry.metadata.is_file() {
        of_file(entry.open()?, pace)?
    } else {
        // A pipe or a device: nothing that was noted.
        Print::new()
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::dir::dir_descriptor;

    #[test]
    fn first_digest_of_an_original_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let lower = dir_descriptor(File::open(dir.path()).unwrap(), false);
        let changes = dir.path().join("changes");
        let overlay = Overlay::open(lower, &changes, Arc::default()).unwrap();
        for print in ["first", "second"] {
            overlay.note_as("a/x", &print.to_owned()).unwrap();
        }
        let noted = std::fs::read_to_string(changes.join("base/a/x")).unwrap();
        assert_eq!(noted, "first");
        // What cannot be recorded is an error.
        assert!(overlay.note_as(&"n".repeat(300), &noted).is_err());
    }
}
