//! Path resolution through both layers.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use cap_primitives::fs::{self, Metadata, MetadataExt as _};
use rustix::io::Errno;

use super::Overlay;
use super::compare::MAX_DEPTH;
use super::pace::Pace;
use crate::files::denied::Use;

/// Maximum number of symbolic links in one path, as on Linux.
const MAX_LINKS: u32 = 40;

/// Layer of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Layer {
    Upper,
    Lower,
}

/// Result of resolving a path.
#[derive(Debug)]
pub(in super::super) struct Found {
    /// Path relative to the root of the layers, without links, `.` and `..`; empty for the root.
    pub(in super::super) path: String,
    /// Entry at the path; `None` if it is missing but its parent directory exists.
    pub(in super::super) at: Option<(Layer, Metadata)>,
    /// True if the path requires a directory: it ends with a slash, `.` or `..`.
    pub(in super::super) wants_dir: bool,
}

impl Found {
    pub(in super::super) fn is_dir(&self) -> bool {
        self.at.as_ref().is_some_and(|(_, metadata)| metadata.is_dir())
    }

    /// Returns the entry, or an error if it is missing, or not the directory that the path requires.
    pub(in super::super) fn existing(self) -> io::Result<(String, Layer, Metadata)> {
        match self.at {
            Some((_, metadata)) if self.wants_dir && !metadata.is_dir() => Err(Errno::NOTDIR.into()),
            Some((layer, metadata)) => Ok((self.path, layer, metadata)),
            None => Err(Errno::NOENT.into()),
        }
    }
}

impl Overlay {
    /// Resolves `path` from the directory `base`; with `follow`, also through a link in the last component. Never
    /// leaves `base`, and reaches nothing below [`MAX_DEPTH`] directories.
    pub(in super::super) fn find(&self, base: &str, path: &str, follow: bool) -> io::Result<Found> {
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        if path.starts_with('/') {
            return Err(Errno::PERM.into());
        }
        if path.contains('\0') {
            return Err(Errno::INVAL.into());
        }
        let mut wants_dir = wants_dir(path);
        let mut here: Vec<String> = base
            .split('/')
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect();
        let floor = here.len();
        let mut rest: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            match part.as_str() {
                "" | "." => continue,
                ".." if here.len() > floor => {
                    here.pop();
                    continue;
                }
                ".." => return Err(Errno::PERM.into()),
                _ if here.len() >= MAX_DEPTH => return Err(Errno::NAMETOOLONG.into()),
                _ => here.push(part),
            }
            let is_last = rest.iter().all(|p| p.is_empty() || p == ".");
            let at = here.join("/");
            self.denied.check(&at, Use::Look)?;
            let Some((layer, metadata)) = self.entry(&at)? else {
                if is_last && !rest.iter().any(|p| p == ".") {
                    return Ok(Found {
                        path: at,
                        at: None,
                        wants_dir,
                    });
                }
                return Err(Errno::NOENT.into());
            };
            self.denied
                .check_identity(metadata.dev(), metadata.ino(), Use::Look)?;
            if metadata.is_symlink() && (!is_last || follow || wants_dir) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = fs::read_link_contents(&self.dir(layer).dir, Path::new(&at))?;
                let target = target.to_str().filter(|t| !t.starts_with('/'));
                let target = target.ok_or(Errno::PERM)?;
                wants_dir |= is_last && self::wants_dir(target);
                for part in target.rsplit('/') {
                    rest.push_front(part.to_owned());
                }
                here.pop();
            } else if !metadata.is_dir() && (!is_last || rest.iter().any(|p| p == ".")) {
                return Err(Errno::NOTDIR.into());
            }
        }
        let path = here.join("/");
        let at = self.entry(&path)?;
        Ok(Found { path, at, wants_dir })
    }

    /// Returns the entry that both layers combined show at a path without links.
    fn entry(&self, path: &str) -> io::Result<Option<(Layer, Metadata)>> {
        if let Some(metadata) = self.stat(Layer::Upper, path)? {
            return Ok(Some((Layer::Upper, metadata)));
        }
        Ok(self.below(path)?.map(|metadata| (Layer::Lower, metadata)))
    }

    /// Returns `true` if a directory of both layers shows no entries.
    pub(in super::super) fn is_empty(&self, path: &str, pace: &Pace) -> io::Result<bool> {
        if self.stat(Layer::Upper, path)?.is_some() && self.names(Layer::Upper, path)?.next().is_some() {
            return Ok(false);
        }
        if !self.below(path)?.is_some_and(|metadata| metadata.is_dir()) {
            return Ok(true);
        }
        for name in self.names(Layer::Lower, path)? {
            pace.go_on()?;
            if !self.is_hidden(&format!("{path}/{}", name?))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the names in a directory of one layer. Those that are not UTF-8 are omitted.
    fn names(&self, layer: Layer, path: &str) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let entries = fs::read_dir(&self.dir(layer).dir, Path::new(path))?;
        Ok(entries.filter_map(|entry| match entry {
            Ok(entry) => entry.file_name().into_string().ok().map(Ok),
            Err(error) => Some(Err(error)),
        }))
    }
}

fn wants_dir(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::dir::dir_descriptor;

    #[test]
    fn path_has_a_limited_depth() {
        let dir = tempfile::tempdir().unwrap();
        let deepest = vec!["d"; MAX_DEPTH].join("/");
        std::fs::create_dir_all(dir.path().join(&deepest).join("d")).unwrap();
        let lower = dir_descriptor(std::fs::File::open(dir.path()).unwrap(), false);
        let changes = tempfile::tempdir().unwrap();
        let overlay = Overlay::open(lower, &changes.path().join("c"), Arc::default()).unwrap();
        assert!(overlay.find("", &deepest, false).unwrap().is_dir());
        let deeper = overlay.find(&deepest, "d", false).unwrap_err();
        assert_eq!(deeper.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    }
}
