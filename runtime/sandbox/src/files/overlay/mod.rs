//! Scratch overlays: a granted directory that is only read, while every change goes to a separate directory.
//!
//! The guest sees one directory. Below it lie two layers: the granted directory, which is only read (*lower*), and the
//! directory that the user names for the changes. There, `upper` holds what was made or changed, a whole file each;
//! `gone` holds an empty file for each path of the lower layer that was removed, and hides everything below that path;
//! `base` holds digests of what was changed or removed, as it was; `work` holds files that are being copied, and the
//! names of those that a commit has not finished. The changes can be listed ([`changes`]), carried out
//! ([`commit`](fn@commit)) or discarded ([`discard`]). Changes that another program made in the meantime are detected
//! ([`conflicts`]).
//!
//! Paths are walked through both layers by components, so that symbolic links lead from one layer to the other, and
//! never out of both. Everything on disk is then opened by a path without links, below its layer.
//!
//! Limitations: a directory of the lower layer cannot be renamed (`cross-device`, after which programs copy), hard
//! links to one file become separate files when one is changed, and times and permissions of directories are not
//! preserved.

mod base;
mod changes;
mod chosen;
mod commit;
mod compare;
mod copy;
mod entry;
mod judge;
mod pace;
mod sparse;
mod unfinished;
mod versions;
mod walk;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_fs_ext::OpenOptionsFollowExt as _;
use cap_primitives::ambient_authority;
use cap_primitives::fs::{self, DirOptions, FollowSymlinks, Metadata, OpenOptions, open_ambient_dir};
use wasmtime_wasi::filesystem::Dir;

use super::denied::{DeniedPlaces, Use};
use super::dir::dir_descriptor;
use super::walk::{join, walk};

pub use base::conflicts;
pub use changes::{Change, ChangeKind, Changes, Skipped};
pub use chosen::discard_only;
pub use commit::{CommitError, OnConflict, commit, discard};
pub use compare::changes;
pub use judge::CommitOptions;
pub(super) use pace::Pace;
#[cfg(test)]
pub(super) use pace::tests::cancelled_after;
pub use versions::{Version, versions};
pub(super) use walk::{Found, Layer};

/// Subdirectories of an overlay directory.
const PARTS: [&str; 4] = ["upper", "gone", "work", "base"];

/// Two layers presented as one directory.
pub(super) struct Overlay {
    pub(super) lower: Dir,
    pub(super) upper: Dir,
    gone: Arc<File>,
    work: Arc<File>,
    base: Arc<File>,
    denied: Arc<DeniedPlaces>,
}

impl Overlay {
    /// Opens the layers; `host` is the directory for the changes, created if missing.
    pub(super) fn open(lower: Dir, host: &Path, denied: Arc<DeniedPlaces>) -> io::Result<Self> {
        std::fs::create_dir_all(host)?;
        let host = open_ambient_dir(host, ambient_authority())?;
        let part = |name: &str| -> io::Result<File> {
            match fs::create_dir(&host, Path::new(name), &DirOptions::new()) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            fs::open_dir(&host, Path::new(name))
        };
        let [upper, gone, work, base] = PARTS;
        Ok(Self {
            lower,
            upper: dir_descriptor(part(upper)?, true),
            gone: Arc::new(part(gone)?),
            work: Arc::new(part(work)?),
            base: Arc::new(part(base)?),
            denied,
        })
    }

    /// Returns true if the two layers together have an entry at a path without links.
    pub(super) fn shows(&self, path: &str) -> io::Result<bool> {
        Ok(self.stat(Layer::Upper, path)?.is_some() || self.below(path)?.is_some())
    }

    /// As [`DeniedPlaces::check_git`], of a path without links in what both layers together show.
    pub(super) fn check_git(&self, path: &str) -> io::Result<()> {
        self.denied
            .check_git_path(path, |dir, name| self.shows(&join(dir, name)))
    }

    pub(super) fn dir(&self, layer: Layer) -> &Dir {
        match layer {
            Layer::Upper => &self.upper,
            Layer::Lower => &self.lower,
        }
    }

    /// Opens a file of the lower layer for reading, at a path without links. A path that has become a link is refused.
    fn open_lower(&self, path: &str) -> io::Result<File> {
        let at = walk(&self.lower.dir, "", path, false, &self.denied)?;
        let mut options = OpenOptions::new();
        options.read(true).follow(FollowSymlinks::No);
        let file = fs::open(&at.parent, Path::new(&at.name), &options)?;
        self.denied.check_open(&file, Use::Look)?;
        Ok(file)
    }

    pub(super) fn stat(&self, layer: Layer, path: &str) -> io::Result<Option<Metadata>> {
        stat(&self.dir(layer).dir, path)
    }

    /// Returns `true` if the lower layer is hidden at a path: it or a parent was removed.
    pub(super) fn is_hidden(&self, path: &str) -> io::Result<bool> {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            match stat(&self.gone, &path[..end])? {
                Some(metadata) if metadata.is_dir() => {}
                Some(_) => return Ok(true),
                None => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Returns the lower layer's visible entry at a path, ignoring the upper layer.
    pub(super) fn below(&self, path: &str) -> io::Result<Option<Metadata>> {
        if self.is_hidden(path)? {
            return Ok(None);
        }
        self.stat(Layer::Lower, path)
    }
}

/// Creates a directory, unless it exists.
fn make_dir(dir: &File, path: &str) -> io::Result<()> {
    match fs::create_dir(dir, Path::new(path), &DirOptions::new()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Returns the metadata of an entry without following a link; `None` if it does not exist.
fn stat(dir: &File, path: &str) -> io::Result<Option<Metadata>> {
    let path = if path.is_empty() { "." } else { path };
    match fs::stat(dir, Path::new(path), FollowSymlinks::No) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
