//! Changes to the upper layer.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_primitives::fs::{self, OpenOptions};

use super::base::Digesting;
use super::pace::Pace;
use super::{Overlay, make_dir, stat};

/// Counter for names of files being copied, unique together with the process number.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Overlay {
    /// Creates the parent directories of `path` in the upper layer; they exist in one of the layers.
    pub(in super::super) fn make_parents(&self, path: &str) -> io::Result<()> {
        for (end, _) in path.match_indices('/') {
            make_dir(&self.upper.dir, &path[..end])?;
        }
        Ok(())
    }

    /// Copies the lower layer's entry at `path` to the upper one: of a file at most `most` bytes, or none of its
    /// contents if `None`.
    pub(in super::super) fn copy_up(&self, path: &str, most: Option<u64>, pace: &Pace) -> io::Result<()> {
        self.make_parents(path)?;
        let (lower, upper, at) = (&self.lower.dir, &self.upper.dir, Path::new(path));
        let metadata = stat(lower, path)?.ok_or(io::ErrorKind::NotFound)?;
        if metadata.is_dir() {
            return make_dir(upper, path);
        }
        if metadata.is_symlink() {
            self.note(path, pace)?;
            return fs::symlink_contents(fs::read_link_contents(lower, at)?, upper, at);
        }
        if !metadata.is_file() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // A partial file is never visible.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let work = Path::new(&name);
        let mut to = fs::open(&self.work, work, OpenOptions::new().write(true).create_new(true))?;
        let copied = || -> io::Result<()> {
            let from = self.open_lower(path)?;
            let permissions = from.metadata()?.permissions();
            // A file that grows meanwhile is copied only up to the charged size.
            let mut from = Digesting::new(from.take(most.unwrap_or(u64::MAX)), pace);
            match most {
                Some(_) => io::copy(&mut from, &mut to)?,
                None => io::copy(&mut from, &mut io::sink())?,
            };
            self.note_as(path, &from.print())?;
            to.set_permissions(permissions)?;
            fs::rename(&self.work, work, upper, at)
        };
        let result = { copied }();
        if result.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&self.work, work);
        }
        result
    }

    /// Hides the lower layer's entry at a path. The lower layer must show an entry there.
    pub(in super::super) fn hide(&self, path: &str, pace: &Pace) -> io::Result<()> {
        self.note(path, pace)?;
        for (end, _) in path.match_indices('/') {
            make_dir(&self.gone, &path[..end])?;
        }
        if stat(&self.gone, path)?.is_some_and(|metadata| metadata.is_dir()) {
            // Marks below this path are replaced by this one.
            remove_all(&self.gone, Path::new(path), pace)?;
        }
        let marker = OpenOptions::new().write(true).create(true).clone();
        fs::open(&self.gone, Path::new(path), &marker).map(drop)
    }

    /// Returns `true` if the lower layer would show an entry at a path that is missing in the upper one.
    pub(in super::super) fn is_below(&self, path: &str) -> io::Result<bool> {
        Ok(self.below(path)?.is_some())
    }
}

/// Removes a directory with all its content.
fn remove_all(dir: &File, path: &Path, pace: &Pace) -> io::Result<()> {
    for entry in fs::read_dir(dir, path)? {
        pace.go_on()?;
        let entry = entry?;
        let path = path.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_all(dir, &path, pace)?;
        } else {
            fs::remove_file(dir, &path)?;
        }
    }
    fs::remove_dir(dir, path)
}
