//! Path resolution by components, to determine the real location.
//!
//! Each directory on the way is opened from its parent, and never through a link: a link is read, and its target is
//! walked instead. The result is an open directory and one name in it, on which an operation then works without
//! following links. Concurrent changes by other calls or programs cannot redirect it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_primitives::fs::{self, FollowSymlinks, Metadata};
use rustix::fs::{Mode, openat, readlinkat};
use rustix::io::Errno;
use toolcell_core::protected::fold;

use super::denied::{DeniedPlaces, Use, fold_parts};
use super::dir::ENTER;

/// Maximum number of symbolic links in one path, as on Linux.
const MAX_LINKS: u32 = 40;

/// Maximum number of directories that one walk opens, including those of links. Ordinary paths have about ten.
const MAX_STEPS: u32 = 1_024;

/// Maximum length of a path or of the target of a link in bytes (`PATH_MAX` of Linux).
const MAX_PATH: usize = 4_096;

/// Result of resolving a path.
#[derive(Debug, Clone)]
pub(super) struct Walked {
    /// Directory that contains the entry.
    pub(super) parent: Arc<File>,
    /// Path of that directory relative to the granted one, without links; empty for the granted directory itself.
    pub(super) above: String,
    /// Name of the entry; `.` for the directory itself.
    pub(super) name: String,
    /// True if the path requires a directory.
    pub(super) wants_dir: bool,
}

impl Walked {
    /// Returns the whole path relative to the granted directory.
    pub(super) fn below(&self) -> String {
        match self.name.as_str() {
            "." => self.above.clone(),
            name => join(&self.above, name),
        }
    }

    fn at(&self) -> &Path {
        Path::new(&self.name)
    }

    /// Returns the metadata of the entry, without following a link.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        fs::stat(&self.parent, self.at(), FollowSymlinks::No)
    }

    /// Rejects an entry that is not the directory which the path requires. A missing one is left to the operation.
    pub(super) fn check_kind(&self) -> io::Result<()> {
        match self.metadata() {
            Ok(metadata) if self.wants_dir && !metadata.is_dir() => Err(Errno::NOTDIR.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn remove_file(&self) -> io::Result<()> {
        fs::remove_file(&self.parent, self.at())
    }

    pub(super) fn remove_dir(&self) -> io::Result<()> {
        fs::remove_dir(&self.parent, self.at())
    }

    /// Creates a hard link to a file. A name with a slash at its end is none that can be created, as in link(2).
    pub(super) fn link(&self, to: &Self) -> io::Result<()> {
        if to.wants_dir {
            return Err(match to.metadata() {
                Ok(_) => Errno::EXIST.into(),
                Err(error) => error,
            });
        }
        fs::hard_link(&self.parent, self.at(), &to.parent, to.at())
    }

    pub(super) fn rename(&self, to: &Self) -> io::Result<()> {
        if to.wants_dir && !self.metadata()?.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        fs::rename(&self.parent, self.at(), &to.parent, to.at())
    }
}

/// A walk in progress.
struct Walk<'a> {
    base: &'a Arc<File>,
    /// Path of `base` relative to the granted directory.
    above: &'a str,
    denied: &'a DeniedPlaces,
    here: Arc<File>,
    /// Names from `base` to `here`.
    names: Vec<String>,
    /// Names from the granted directory to `here`, as denials compare them. None of them is denied.
    folded: Vec<String>,
    steps: u32,
    links: u32,
}

/// Resolves `path` from the directory `base`, which is at `above` in the granted one; with `follow`, also through a
/// link in the last component. Never leaves `base`.
///
/// # Errors
/// If the path leads out, through a denied directory, or through something other than a directory.
pub(super) fn walk(
    base: &Arc<File>,
    above: &str,
    path: &str,
    follow: bool,
    denied: &DeniedPlaces,
) -> io::Result<Walked> {
    let mut walk = Walk {
        base,
        above,
        denied,
        here: base.clone(),
        names: Vec::new(),
        folded: fold_parts(above),
        steps: 0,
        links: 0,
    };
    let (mut rest, mut wants_dir) = (parts(path)?, false);
    loop {
        // The last component other than `.` and empty.
        let Some(part) = rest.pop() else {
            return walk.end(".".into(), true);
        };
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                walk.leave()?;
                continue;
            }
            _ => {}
        }
        let is_last = rest.iter().all(String::is_empty);
        if !is_last {
            if let Some(target) = walk.enter(&part)? {
                rest.extend(target);
            }
            continue;
        }
        wants_dir |= !rest.is_empty();
        if !follow && !wants_dir {
            return walk.end(part, false);
        }
        walk.look(&part)?;
        match walk.link(&part)? {
            // A trailing slash after a link applies to its target.
            Some(target) => rest.extend(target),
            None => return walk.end(part, wants_dir),
        }
    }
}

impl Walk<'_> {
    fn below(&self, name: &str) -> String {
        let here = join(self.above, &self.names.join("/"));
        if name == "." { here } else { join(&here, name) }
    }

    /// Rejects a denied entry of the present directory before anything about it is revealed.
    fn look(&self, name: &str) -> io::Result<()> {
        Ok(self.denied.check_entry(&self.folded, name)?)
    }

    /// Enters a directory, or returns the components of the target if it is a link.
    fn enter(&mut self, name: &str) -> io::Result<Option<Vec<String>>> {
        self.look(name)?;
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(Errno::NAMETOOLONG.into());
        }
        match openat(&*self.here, name, ENTER, Mode::empty()) {
            Ok(dir) => {
                let dir = File::from(dir);
                self.denied.check_open(&dir, Use::Look)?;
                self.here = Arc::new(dir);
                self.names.push(name.to_owned());
                self.folded.push(fold(name));
                Ok(None)
            }
            Err(error @ (Errno::NOTDIR | Errno::LOOP)) => match self.link(name)? {
                Some(target) => Ok(Some(target)),
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Goes up to the directory from which the walk came.
    fn leave(&mut self) -> io::Result<()> {
        if self.names.pop().is_none() {
            return Err(Errno::PERM.into());
        }
        self.here = self.base.clone();
        self.folded.truncate(self.folded.len() - self.names.len() - 1);
        for name in std::mem::take(&mut self.names) {
            // The directory was replaced by a link during the walk, which indicates an attack.
            if self.enter(&name)?.is_some() {
                return Err(Errno::PERM.into());
            }
        }
        Ok(())
    }

    /// Returns the components of a link's target; `None` if it is not a link.
    fn link(&mut self, name: &str) -> io::Result<Option<Vec<String>>> {
        let target = match readlinkat(&*self.here, name, Vec::new()) {
            Ok(target) => target,
            Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        match target.into_string() {
            Ok(target) => parts(&target).map(Some),
            Err(_) => Err(Errno::PERM.into()),
        }
    }

    fn end(self, name: String, wants_dir: bool) -> io::Result<Walked> {
        self.denied.check(&self.below(&name), Use::Look)?;
        // It is stored with each descriptor.
        if self.below(&name).len() > MAX_PATH {
            return Err(Errno::NAMETOOLONG.into());
        }
        Ok(Walked {
            above: self.below("."),
            parent: self.here,
            name,
            wants_dir,
        })
    }
}

/// Returns the components of a path, in reverse order.
fn parts(path: &str) -> io::Result<Vec<String>> {
    match path {
        "" => Err(Errno::NOENT.into()),
        _ if path.starts_with('/') => Err(Errno::PERM.into()),
        _ if path.contains('\0') => Err(Errno::INVAL.into()),
        _ => Ok(path.rsplit('/').map(str::to_owned).collect()),
    }
}

/// Joins `name` to `above`, which is empty for the granted directory itself.
pub(super) fn join(above: &str, name: &str) -> String {
    match (above, name) {
        ("", name) => name.to_owned(),
        (above, "") => above.to_owned(),
        (above, name) => format!("{above}/{name}"),
    }
}
