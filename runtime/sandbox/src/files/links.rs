//! Checks of symbolic link targets at their new location, before an entry is created, moved or linked.
//!
//! The guard itself follows no link out of a grant. This module protects programs of the host that read the directory
//! later: no operation of a guest makes a link lead out that did not before. A link *climbs* if its target is absolute
//! or goes up. Only the user creates such links, and their target depends on their location. Therefore
//!
//! - no guest creates or moves one or a hard link to one, nor moves a directory that contains one at any depth;
//! - a link that a guest creates or moves leads, from its new location, through none of them and to no directory that
//!   contains one.
//!
//! Then no moved entry contains a climbing link or leads to one, in any order of operations, and climbing links and the
//! directories above them stay in place.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_fs_ext::FollowSymlinks;
use cap_primitives::fs;

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use super::overlay::Layer;
use super::rights::{Place, Root, stays_below};
use super::view::FilesView;

/// Maximum number of entries inspected for one operation, as many as a call creates by default. Larger directories are
/// not moved at once: programs move them file by file.
const MAX_ENTRIES: u32 = 10_000;

/// Number of entries after which the operation yields, so that deadlines and cancellation take effect.
const PIECE: u32 = 128;

/// Maximum depth of directories, and maximum number of links in one path.
const MAX_DEPTH: usize = 128;

/// Result of inspecting a link or a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing leads out.
    Fine,
    /// A link climbs.
    Climbs,
    /// Too many entries to inspect.
    TooLarge,
}

/// An entry at a path.
enum Entry {
    Directory,
    /// A link with its target; `None` if it is not text.
    Link(Option<String>),
    Other,
}

/// A directory in which paths without links are looked up.
struct Tree {
    base: Base,
    looked_at: u32,
}

enum Base {
    Plain(File),
    /// With the path relative to the root of the layers.
    Layered(Arc<Root>, String),
}

impl Tree {
    /// Returns the parent directory of `path`, and its last name; `None` if that is not a name.
    ///
    /// # Errors
    /// If the directory does not exist.
    fn above(dir: &File, place: &Place, path: &str) -> io::Result<Option<(Self, String)>> {
        let path = path.trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if matches!(name, "" | "." | "..") {
            return Ok(None);
        }
        let parent = if parent.is_empty() { "." } else { parent };
        let base = match &place.root.overlay {
            Some(overlay) => {
                let found = overlay.find(&place.below, parent, true)?;
                Base::Layered(place.root.clone(), found.path)
            }
            None => Base::Plain(fs::open_dir(dir, Path::new(parent))?),
        };
        let tree = Self { base, looked_at: 0 };
        Ok(Some((tree, name.to_owned())))
    }

    /// Inspects an entry to be moved: a link is checked at its new location with [`Tree::leads`], of a directory the
    /// whole tree is inspected.
    async fn holds(&mut self, name: &str) -> io::Result<Verdict> {
        match self.entry(Path::new(name))? {
            // An entry of the lower layer is moved by no operation.
            Some(Entry::Directory) if self.is_below(name)? => Ok(Verdict::Fine),
            Some(Entry::Directory) => self.search(name.into()).await,
            _ => Ok(Verdict::Fine),
        }
    }

    /// Returns `true` if the lower layer of an overlay has this entry.
    fn is_below(&self, name: &str) -> io::Result<bool> {
        match &self.base {
            Base::Plain(_) => Ok(false),
            Base::Layered(root, base) => match &root.overlay {
                Some(overlay) => overlay.is_below(format!("{base}/{name}").trim_matches('/')),
                None => Ok(false),
            },
        }
    }

    /// Returns the result for a link with this target, located here.
    async fn leads(&mut self, target: &str) -> io::Result<Verdict> {
        if !stays_below(target) {
            return Ok(Verdict::Climbs);
        }
        let mut here = PathBuf::new();
        let mut rest = parts(target);
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            here.push(part);
            match self.entry(&here)? {
                Some(Entry::Link(target)) => {
                    links += 1;
                    let Some(target) = target.filter(|target| stays_below(target)) else {
                        return Ok(Verdict::Climbs);
                    };
                    if links > MAX_DEPTH {
                        return Ok(Verdict::TooLarge);
                    }
                    here.pop();
                    for part in parts(&target).into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                Some(Entry::Directory) => {}
                Some(Entry::Other) | None => return Ok(Verdict::Fine),
            }
        }
        // The link leads to a directory.
        self.search(here).await
    }

    /// Returns the target of the link of this name; `None` for anything else.
    fn target(&self, name: &str) -> io::Result<Option<Option<String>>> {
        Ok(match self.entry(Path::new(name))? {
            Some(Entry::Link(target)) => Some(target),
            _ => None,
        })
    }

    /// Searches a directory for a climbing link, at any depth.
    async fn search(&mut self, top: PathBuf) -> io::Result<Verdict> {
        let mut directories = vec![(top, 0)];
        while let Some((directory, depth)) = directories.pop() {
            if depth > MAX_DEPTH {
                return Ok(Verdict::TooLarge);
            }
            for name in self.names(&directory)? {
                self.looked_at += 1;
                if self.looked_at > MAX_ENTRIES {
                    return Ok(Verdict::TooLarge);
                }
                if self.looked_at.is_multiple_of(PIECE) {
                    tokio::task::yield_now().await;
                }
                let path = directory.join(name);
                match self.entry(&path)? {
                    Some(Entry::Directory) => directories.push((path, depth + 1)),
                    Some(Entry::Link(target)) if !target.as_deref().is_some_and(stays_below) => {
                        return Ok(Verdict::Climbs);
                    }
                    _ => {}
                }
            }
        }
        Ok(Verdict::Fine)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let (dir, path, metadata) = match &self.base {
            Base::Plain(dir) => match fs::stat(dir, path, FollowSymlinks::No) {
                Ok(metadata) => (dir, path.to_owned(), metadata),
                Err(error) => return nothing(error),
            },
            Base::Layered(root, base) => {
                let Some(overlay) = &root.overlay else {
                    return Ok(None);
                };
                let Some(path) = path.to_str() else {
                    return Ok(None);
                };
                match overlay
                    .find(base, path, false)
                    .map(|found| (found.at, found.path))
                {
                    Ok((Some((layer, metadata)), path)) => (&*overlay.dir(layer).dir, path.into(), metadata),
                    Ok((None, _)) => return Ok(None),
                    Err(error) => return nothing(error),
                }
            }
        };
        Ok(Some(if metadata.is_dir() {
            Entry::Directory
        } else if metadata.is_symlink() {
            let target = fs::read_link_contents(dir, &path)?;
            Entry::Link(target.to_str().map(str::to_owned))
        } else {
            Entry::Other
        }))
    }

    /// Returns the first names in a directory, one more than the limit.
    fn names(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let most = (MAX_ENTRIES - self.looked_at.min(MAX_ENTRIES)) as usize + 1;
        match &self.base {
            Base::Plain(dir) => names_of(dir, path, most),
            Base::Layered(root, base) => {
                let Some((overlay, path)) = root.overlay.as_ref().zip(path.to_str()) else {
                    return Ok(Vec::new());
                };
                let path = format!("{base}/{path}");
                let path = Path::new(path.trim_matches('/'));
                // Names in both layers are inspected twice, and hidden ones are skipped.
                let mut names = names_of(&overlay.dir(Layer::Upper).dir, path, most)?;
                names.extend(names_of(&overlay.dir(Layer::Lower).dir, path, most)?);
                Ok(names)
            }
        }
    }
}

/// Returns the first names in a directory; none if it does not exist.
fn names_of(dir: &File, path: &Path, most: usize) -> io::Result<Vec<PathBuf>> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    match fs::read_dir(dir, path) {
        Ok(entries) => entries
            .take(most)
            .map(|entry| Ok(entry?.file_name().into()))
            .collect(),
        Err(error) => Ok(nothing(error)?.unwrap_or_default()),
    }
}

impl FilesView<'_> {
    /// Returns the directory in which `path` is the last name, to check links in.
    fn tree(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<Option<(Tree, String)>> {
        Ok(Tree::above(&*self.dir(fd)?, &self.place(fd)?, path)?)
    }

    /// Rejects a link that would lead out from its location, now or once its target is created.
    pub(super) async fn may_make_link(
        &mut self,
        fd: &Resource<Descriptor>,
        path: &str,
        target: &str,
    ) -> FsResult<()> {
        let verdict = match self.tree(fd, path)? {
            Some((mut tree, _)) => tree.leads(target).await?,
            None => Verdict::Climbs,
        };
        match verdict {
            Verdict::Fine => Ok(()),
            Verdict::Climbs | Verdict::TooLarge => self.refuse_link(fd, path),
        }
    }

    /// Rejects moving a link that would lead out from its new location, and a directory that contains a climbing link.
    pub(super) async fn may_move(
        &mut self,
        from: (&Resource<Descriptor>, &str),
        to: (&Resource<Descriptor>, &str),
    ) -> FsResult<()> {
        let (Some((mut old, name)), Some((mut new, _))) =
            (self.tree(from.0, from.1)?, self.tree(to.0, to.1)?)
        else {
            // Not a name; the operation itself rejects it.
            return Ok(());
        };
        let verdict = match old.target(&name)? {
            Some(Some(target)) => new.leads(&target).await?,
            Some(None) => Verdict::Climbs,
            None => old.holds(&name).await?,
        };
        match verdict {
            Verdict::Fine => Ok(()),
            Verdict::Climbs => self.refuse_link(to.0, to.1),
            Verdict::TooLarge => Err(ErrorCode::CrossDevice.into()),
        }
    }

    /// Rejects a hard link to a symbolic link, which would lead elsewhere.
    pub(super) fn may_link(
        &self,
        from: (&Resource<Descriptor>, &str),
        to: (&Resource<Descriptor>, &str),
    ) -> FsResult<()> {
        match self.tree(from.0, from.1)? {
            Some((tree, name)) if tree.target(&name)?.is_some() => self.refuse_link(to.0, to.1),
            _ => Ok(()),
        }
    }

    /// Removes a link that another call put in the place of the checked entry, if it leads out from its location.
    pub(super) async fn judge_again(&mut self, fd: &Resource<Descriptor>, path: &str) -> FsResult<()> {
        let Some((mut tree, name)) = self.tree(fd, path)? else {
            return Ok(());
        };
        // A climbing link belongs to the user.
        let Some(Some(target)) = tree
            .target(&name)?
            .filter(|target| target.as_deref().is_some_and(stays_below))
        else {
            return Ok(());
        };
        if tree.leads(&target).await? == Verdict::Fine {
            return Ok(());
        }
        let place = self.place(fd)?;
        if place.root.overlay.is_some() {
            let path = path.to_owned();
            self.layered(move |layers| layers.remove(&place, &path, false))
                .await?;
        } else {
            fs::remove_file(&*self.dir(fd)?, Path::new(path))?;
        }
        self.refuse_link(fd, path)
    }

    fn refuse_link(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<()> {
        self.place(fd)?.join(path).deny(None);
        Err(ErrorCode::NotPermitted.into())
    }
}

/// Returns the names in the target of a link that stays below.
fn parts(target: &str) -> VecDeque<String> {
    let parts = target.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.map(str::to_owned).collect()
}

fn nothing<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_counts_as_nothing() {
        for (kind, is_nothing) in [
            (io::ErrorKind::NotFound, true),
            (io::ErrorKind::NotADirectory, true),
            (io::ErrorKind::PermissionDenied, false),
            (io::ErrorKind::Other, false),
        ] {
            assert_eq!(nothing::<()>(kind.into()).is_ok(), is_nothing, "{kind}");
        }
    }
}
