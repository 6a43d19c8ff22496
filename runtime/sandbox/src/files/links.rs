//! Checks of what appears at a new location, before an entry is created, moved or linked: symbolic links, and what lies
//! in directories.
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
//!
//! A directory takes along what lies in it. Nothing that is denied or protected at its old path or would be at its new
//! one is moved with it, at any depth, nor does it appear below a link to its directory: another program that looks for
//! such a file finds it by its path. No guest can create one there meanwhile, and what would become one only by the
//! names above it is never moved ([`DeniedPlaces::check_above`]).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_fs_ext::FollowSymlinks;
use cap_primitives::fs::{self, MetadataExt as _};
use toolcell_core::protected::is_git_dir;

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

use super::denied::{DeniedBy, DeniedPlaces, FileId};
use super::layered::ends_in_dots;
use super::overlay::{Found, Layer};
use super::rights::{Root, stays_below};
use super::view::FilesView;
use super::walk::join;

/// Maximum number of entries inspected for one operation, as many as a call creates by default. Larger directories are
/// not moved at once: programs move them file by file.
const MAX_ENTRIES: u32 = 10_000;

/// Number of entries after which the operation yields, so that deadlines and cancellation take effect.
const PIECE: u32 = 128;

/// Maximum depth of directories, and maximum number of links in one path.
const MAX_DEPTH: usize = 128;

/// The rule that refuses to move a directory with more entries than are inspected, for the user.
const TOO_LARGE: &str =
    "built-in: a directory of more than 10,000 entries or 128 levels is moved only file by file";

/// Result of inspecting a link or a tree.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing leads out, and nothing is denied.
    Fine,
    /// A link climbs.
    Climbs,
    /// Too many entries to inspect.
    TooLarge,
    /// The entry at this path below the inspected directory is denied.
    Denied(String, DeniedBy),
}

/// An entry at a path.
struct Entry {
    kind: Kind,
    id: FileId,
}

enum Kind {
    Directory,
    /// A link with its target; `None` if it is not text.
    Link(Option<String>),
    Other,
}

/// A path at which the entries of an inspected directory are, or will be.
struct Site<'a> {
    denied: &'a DeniedPlaces,
    /// Path of the directory, relative to the granted one.
    below: String,
}

impl Site<'_> {
    /// Checks the entry at `rest`, a path below the directory.
    fn check(&self, rest: &str, id: FileId) -> Result<(), DeniedBy> {
        self.denied.check_moved(&join(&self.below, rest), id)
    }
}

/// A directory in which paths without links are looked up.
struct Tree {
    root: Arc<Root>,
    /// The directory; `None` with an overlay.
    plain: Option<Arc<File>>,
    /// Path of the directory, relative to the granted one.
    below: String,
    looked_at: u32,
}

impl Tree {
    /// Inspects an entry to be moved to `new`: a link is checked at its new location with [`Tree::leads`], of a directory
    /// the whole tree is inspected.
    async fn holds(&mut self, name: &str, new: Site<'_>) -> io::Result<Verdict> {
        let root = self.root.clone();
        let old = Site {
            denied: &root.denied,
            below: join(&self.below, name),
        };
        match self.entry(Path::new(name))?.map(|entry| entry.kind) {
            // An entry of the lower layer is moved by no operation.
            Some(Kind::Directory) if self.is_below(&old.below)? => Ok(Verdict::Fine),
            Some(Kind::Directory) => self.search(name.into(), &[old, new]).await,
            _ => Ok(Verdict::Fine),
        }
    }

    /// Returns `true` if the lower layer of an overlay has an entry at a path.
    fn is_below(&self, path: &str) -> io::Result<bool> {
        match &self.root.overlay {
            Some(overlay) => overlay.is_below(path),
            None => Ok(false),
        }
    }

    /// Returns the result for a link with this target, located here and called `name`.
    async fn leads(&mut self, name: &str, target: &str) -> io::Result<Verdict> {
        if !stays_below(target) {
            return Ok(Verdict::Climbs);
        }
        let mut here = PathBuf::new();
        let mut rest = parts(target);
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            here.push(part);
            match self.entry(&here)?.map(|entry| entry.kind) {
                Some(Kind::Link(target)) => {
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
                Some(Kind::Directory) => {}
                Some(Kind::Other) | None => return Ok(Verdict::Fine),
            }
        }
        // The link leads to a directory.
        let root = self.root.clone();
        let link = Site {
            denied: &root.denied,
            below: join(&self.below, name),
        };
        self.search(here, &[link]).await
    }

    /// Returns the target of the link of this name; `None` for anything else.
    fn target(&self, name: &str) -> io::Result<Option<Option<String>>> {
        Ok(match self.entry(Path::new(name))?.map(|entry| entry.kind) {
            Some(Kind::Link(target)) => Some(target),
            _ => None,
        })
    }

    /// Searches a directory for a climbing link, and for what is denied at one of `sites`, at any depth.
    async fn search(&mut self, top: PathBuf, sites: &[Site<'_>]) -> io::Result<Verdict> {
        let mut directories = vec![(top.clone(), 0)];
        while let Some((directory, depth)) = directories.pop() {
            if depth > MAX_DEPTH {
                return Ok(Verdict::TooLarge);
            }
            let rest = |path: &Path| -> String {
                let rest = path.strip_prefix(&top).unwrap_or(path);
                rest.to_string_lossy().into_owned()
            };
            if !self.root.denied.programs
                && is_git_dir(|name| self.entry(&directory.join(name)).map(|entry| entry.is_some()))?
            {
                return Ok(Verdict::Denied(rest(&directory), DeniedBy::programs()));
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
                let Some(entry) = self.entry(&path)? else {
                    continue;
                };
                for site in sites {
                    let rest = rest(&path);
                    if let Err(by) = site.check(&rest, entry.id) {
                        return Ok(Verdict::Denied(rest, by));
                    }
                }
                match entry.kind {
                    Kind::Directory => directories.push((path, depth + 1)),
                    Kind::Link(target) if !target.as_deref().is_some_and(stays_below) => {
                        return Ok(Verdict::Climbs);
                    }
                    _ => {}
                }
            }
        }
        Ok(Verdict::Fine)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        let (dir, path, metadata) = match (&self.plain, &self.root.overlay) {
            (Some(dir), _) => match fs::stat(dir, path, FollowSymlinks::No) {
                Ok(metadata) => (&**dir, path.to_owned(), metadata),
                Err(error) => return nothing(error),
            },
            (None, Some(overlay)) => {
                let Some(path) = path.to_str() else {
                    return Ok(None);
                };
                match overlay.find(&self.below, path, false) {
                    Ok(Found { at: None, .. }) => return Ok(None),
                    Ok(Found {
                        path,
                        at: Some((layer, metadata)),
                        ..
                    }) => (&*overlay.dir(layer).dir, path.into(), metadata),
                    Err(error) => return nothing(error),
                }
            }
            (None, None) => return Ok(None),
        };
        let kind = if metadata.is_dir() {
            Kind::Directory
        } else if metadata.is_symlink() {
            let target = fs::read_link_contents(dir, &path)?;
            Kind::Link(target.to_str().map(str::to_owned))
        } else {
            Kind::Other
        };
        Ok(Some(Entry {
            kind,
            id: (metadata.dev(), metadata.ino()),
        }))
    }

    /// Returns the first names in a directory, one more than the limit.
    fn names(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let most = (MAX_ENTRIES - self.looked_at.min(MAX_ENTRIES)) as usize + 1;
        match (&self.plain, &self.root.overlay) {
            (Some(dir), _) => names_of(dir, path, most),
            (None, Some(overlay)) => {
                let path = Path::new(&self.below).join(path);
                // Names in both layers are inspected twice, and hidden ones are skipped.
                let mut names = names_of(&overlay.dir(Layer::Upper).dir, &path, most)?;
                names.extend(names_of(&overlay.dir(Layer::Lower).dir, &path, most)?);
                Ok(names)
            }
            (None, None) => Ok(Vec::new()),
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
    /// Returns the directory that holds the entry to which `path` leads, and its name there; `None` if that is not a
    /// name.
    fn tree(&self, fd: &Resource<Descriptor>, path: &str) -> FsResult<Option<(Tree, String)>> {
        let place = self.place(fd)?;
        let (plain, below) = match &place.root.overlay {
            Some(overlay) => {
                let found = Self::judge(&place.join(path), overlay.find(&place.below, path, false))?;
                (None, found.path)
            }
            None => {
                let walked = self.walk(fd, path, false)?;
                if walked.name == "." {
                    return Ok(None);
                }
                let below = walked.below();
                (Some(walked.parent), below)
            }
        };
        let (above, name) = below.rsplit_once('/').unwrap_or(("", &below));
        if name.is_empty() || ends_in_dots(path) {
            return Ok(None);
        }
        let tree = Tree {
            root: place.root,
            plain,
            below: above.to_owned(),
            looked_at: 0,
        };
        Ok(Some((tree, name.to_owned())))
    }

    /// Rejects a link that would lead out from its location, now or once its target is created, or to a directory that
    /// holds what is protected.
    pub(super) async fn may_make_link(
        &mut self,
        fd: &Resource<Descriptor>,
        path: &str,
        target: &str,
    ) -> FsResult<()> {
        let verdict = match self.tree(fd, path)? {
            Some((mut tree, name)) => tree.leads(&name, target).await?,
            None => Verdict::Climbs,
        };
        match verdict {
            Verdict::TooLarge => {
                self.place(fd)?
                    .join(path)
                    .refused(&DeniedBy(TOO_LARGE.to_owned()));
                Err(ErrorCode::NotPermitted.into())
            }
            verdict => self.obey(verdict, (fd, path), (fd, path)),
        }
    }

    /// Rejects moving a link that would lead out from its new location, and a directory with what must not be moved.
    pub(super) async fn may_move(
        &mut self,
        from: (&Resource<Descriptor>, &str),
        to: (&Resource<Descriptor>, &str),
    ) -> FsResult<()> {
        let (Some((mut old, name)), Some((mut new, new_name))) =
            (self.tree(from.0, from.1)?, self.tree(to.0, to.1)?)
        else {
            // Not a name; the operation itself rejects it.
            return Ok(());
        };
        let verdict = match old.target(&name)? {
            Some(Some(target)) => new.leads(&new_name, &target).await?,
            Some(None) => Verdict::Climbs,
            None => {
                let site = Site {
                    denied: &new.root.denied,
                    below: join(&new.below, &new_name),
                };
                old.holds(&name, site).await?
            }
        };
        self.obey(verdict, from, to)
    }

    /// Turns a verdict about an entry that is moved into an error, and records it for the user.
    fn obey(
        &self,
        verdict: Verdict,
        from: (&Resource<Descriptor>, &str),
        to: (&Resource<Descriptor>, &str),
    ) -> FsResult<()> {
        match verdict {
            Verdict::Fine => Ok(()),
            Verdict::Climbs => self.refuse_link(to.0, to.1),
            Verdict::TooLarge => {
                let place = self.place(from.0)?.join(from.1);
                place.refused(&DeniedBy(TOO_LARGE.to_owned()));
                Err(ErrorCode::CrossDevice.into())
            }
            Verdict::Denied(rest, by) => {
                let place = self.place(from.0)?.join(from.1).join(&rest);
                place.refused(&by);
                Err(ErrorCode::NotPermitted.into())
            }
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
        if tree.leads(&name, &target).await? == Verdict::Fine {
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
