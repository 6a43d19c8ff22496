//! Denied paths, as seen from one granted directory.
//!
//! A denial names a path of the host. It is resolved when a call opens its directories, and enforced on the real file:
//! by the path without links that an operation walked, and by the identity of the opened file, so that a hard link to a
//! denied file, or a second mount of the same directory, is denied as well. Paths that do not exist yet are denied by
//! name. Symbolic links on the way to a denied path cannot be changed either.
//!
//! To keep this valid while calls run concurrently, nothing that contains a denied path, exists in one, or would become
//! one is moved, linked or replaced by a link. A directory being walked therefore never changes whether it is denied,
//! wherever another call moves it. What lies in a directory is inspected before it is moved ([`super::links`]).

mod git;

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use toolcell_core::Denials;
use toolcell_core::denial::{DeniedUse, PathDenial};
use toolcell_core::protected::{Protection, fold, may_hold_protected, protection, protection_from_reading};

use self::git::is_in_git_dir;

/// Maximum number of symbolic links followed in the path of a denial, as on Linux.
const MAX_LINKS: u32 = 40;

/// Kind of access of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Opens for reading, inspects, or walks through.
    Look,
    /// Writes, creates, moves or removes.
    Change,
}

/// A denied operation, with the origin of the denial for the user. A guest only learns that access is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("denied")]
pub(super) struct DeniedBy(pub(super) String);

impl From<DeniedBy> for io::Error {
    fn from(denied: DeniedBy) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, denied)
    }
}

impl DeniedBy {
    /// Refuses what starts programs.
    pub(super) fn programs() -> Self {
        Self(Protection::Programs.rule().to_owned())
    }

    /// Returns the denial contained in an error, if any.
    pub(super) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Device number and inode number.
pub(super) type FileId = (u64, u64);

/// Denied paths below one granted directory.
#[derive(Debug, Default)]
pub(super) struct DeniedPlaces {
    /// Real path of the directory.
    base: String,
    /// The directory itself.
    pub(super) id: FileId,
    /// Names that are compared with the path of an operation.
    names: Vec<DeniedName>,
    /// Existing files and directories.
    identities: Vec<(FileId, DeniedUse, String)>,
    /// Allows changes to files that start programs.
    pub(super) programs: bool,
    /// True if the directory lies in a Git directory that its path does not name.
    pub(super) is_in_git: bool,
}

#[derive(Debug)]
struct DeniedName {
    /// Folded names below the directory; none for the directory itself.
    below: Vec<String>,
    uses: DeniedUse,
    by: String,
}

impl DeniedPlaces {
    /// Resolves denials for the directory `dir`, which was opened at `host`.
    ///
    /// # Errors
    /// If the directory is in a denied path ([`DeniedBy`]), or is no longer the one at `host`.
    pub(super) fn new(dir: &File, host: &Path, denials: &Denials) -> io::Result<Self> {
        let real = host.canonicalize()?;
        if id(&real.metadata()?) != id(&dir.metadata()?) {
            return Err(io::Error::other("it was replaced while it was opened"));
        }
        let parts = folded(&real);
        let above: Vec<FileId> = ancestors(&real).collect();
        let mut places = Self {
            base: real.to_string_lossy().into_owned(),
            id: id(&dir.metadata()?),
            programs: denials.programs,
            is_in_git: is_in_git_dir(&real)?,
            ..Self::default()
        };
        if let Some(protection) = protection_from_reading(&places.base, "") {
            return Err(DeniedBy(protection.rule().to_owned()).into());
        }
        for denial in &denials.paths {
            let PathDenial { host, uses, by } = denial;
            let forms = Forms::of(host)?;
            for form in &forms.whole {
                let form = folded(form);
                if parts.starts_with(&form) {
                    if *uses == DeniedUse::All {
                        return Err(DeniedBy(by.clone()).into());
                    }
                    places.add(Vec::new(), denial.uses, by);
                } else if let Some(below) = form.strip_prefix(parts.as_slice()) {
                    places.add(below.to_vec(), denial.uses, by);
                }
            }
            for link in &forms.links {
                if let Some(below) = folded(link).strip_prefix(parts.as_slice()) {
                    places.add(below.to_vec(), DeniedUse::Change, by);
                }
            }
            if let Ok(metadata) = host.metadata() {
                let id = id(&metadata);
                if *uses == DeniedUse::All && above.contains(&id) {
                    return Err(DeniedBy(by.clone()).into());
                }
                places.identities.push((id, *uses, by.clone()));
            }
        }
        Ok(places)
    }

    fn add(&mut self, below: Vec<String>, uses: DeniedUse, by: &str) {
        self.names.push(DeniedName {
            below,
            uses,
            by: by.to_owned(),
        });
    }

    /// Checks the denials of `below`, a path without links relative to the granted directory.
    pub(super) fn check(&self, below: &str, wanted: Use) -> Result<(), DeniedBy> {
        let parts = fold_parts(below);
        let denied = |name: &&DeniedName| {
            parts.starts_with(&name.below) && (name.uses == DeniedUse::All || wanted == Use::Change)
        };
        if let Some(name) = self.names.iter().find(denied) {
            return Err(DeniedBy(name.by.clone()));
        }
        let protection = match wanted {
            Use::Look => protection_from_reading(&self.base, below),
            Use::Change => protection(&self.base, below),
        };
        match protection {
            Some(protection) if !(self.programs && protection.can_be_allowed()) => {
                Err(DeniedBy(protection.rule().to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Checks looking at the entry `name` of a directory. `above` is the folded path of the directory, which was checked
    /// itself: a walk through many directories compares each name once.
    pub(super) fn check_entry(&self, above: &[String], name: &str) -> Result<(), DeniedBy> {
        let folded = fold(name);
        let denied = |name: &&DeniedName| {
            name.uses == DeniedUse::All
                && name.below.len() <= above.len() + 1
                && above
                    .iter()
                    .chain([&folded])
                    .zip(&name.below)
                    .all(|(part, name)| part == name)
        };
        if let Some(name) = self.names.iter().find(denied) {
            return Err(DeniedBy(name.by.clone()));
        }
        match protection_from_reading("", name) {
            Some(protection) => Err(DeniedBy(protection.rule().to_owned())),
            None => Ok(()),
        }
    }

    /// Rejects moving `below`, or putting anything but a plain directory there, if a denied path is or would be below
    /// it.
    pub(super) fn check_above(&self, below: &str) -> Result<(), DeniedBy> {
        let parts = fold_parts(below);
        let holds = |name: &&DeniedName| name.below.len() > parts.len() && name.below.starts_with(&parts);
        if let Some(name) = self.names.iter().find(holds) {
            return Err(DeniedBy(name.by.clone()));
        }
        if !self.programs && may_hold_protected(&self.base, below) {
            return Err(DeniedBy::programs());
        }
        Ok(())
    }

    /// Checks an entry of a directory that is moved away, or that appears in another place, without which it would be
    /// neither.
    pub(super) fn check_moved(&self, below: &str, id: FileId) -> Result<(), DeniedBy> {
        self.check(below, Use::Change)?;
        self.check_identity(id.0, id.1, Use::Change)
    }

    /// Rejects a denied file or directory under any name.
    pub(super) fn check_identity(&self, device: u64, number: u64, wanted: Use) -> Result<(), DeniedBy> {
        let denied = |(id, uses, _): &&(FileId, DeniedUse, String)| {
            *id == (device, number) && (*uses == DeniedUse::All || wanted == Use::Change)
        };
        match self.identities.iter().find(denied) {
            Some((_, _, by)) => Err(DeniedBy(by.clone())),
            None => Ok(()),
        }
    }

    /// As [`Self::check_identity`], for an open file.
    pub(super) fn check_open(&self, file: &File, wanted: Use) -> io::Result<()> {
        if !self.identities.is_empty() {
            let (device, number) = id(&file.metadata()?);
            self.check_identity(device, number, wanted)?;
        }
        Ok(())
    }
}

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Returns the identities of a directory and all its ancestors.
pub(super) fn ancestors(real: &Path) -> impl Iterator<Item = FileId> {
    real.ancestors()
        .filter_map(|ancestor| ancestor.metadata().ok())
        .map(|metadata| id(&metadata))
}

/// Names of a denied path.
struct Forms {
    /// As written; with the links in its directories resolved; and with a link at its end resolved as well.
    whole: Vec<PathBuf>,
    /// The other symbolic links on the way, each in a directory without links: to replace one is to replace what the
    /// path leads to.
    links: Vec<PathBuf>,
}

impl Forms {
    fn of(host: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(host)?;
        let (mut whole, mut links) = (Vec::new(), Vec::new());
        if let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) {
            let place = resolve(parent, &mut links).join(name);
            if place.is_symlink() {
                whole.push(resolve(&place, &mut links));
            }
            whole.push(place);
        } else {
            whole.push(resolve(&absolute, &mut links));
        }
        whole.push(without_dots(&absolute));
        whole.dedup();
        links.retain(|link| !whole.contains(link));
        Ok(Self { whole, links })
    }
}

/// Resolves an absolute path, and collects the links on its way. What does not exist is kept as written.
fn resolve(path: &Path, links: &mut Vec<PathBuf>) -> PathBuf {
    let reversed = |path: &Path| {
        path.components()
            .rev()
            .map(|part| part.as_os_str().to_owned())
            .collect()
    };
    let mut here = PathBuf::new();
    let mut rest: Vec<OsString> = reversed(path);
    let mut left = MAX_LINKS;
    while let Some(part) = rest.pop() {
        if part == ".." {
            here.pop();
            continue;
        }
        // The first part, and the first of an absolute target, is the root, which replaces what was before.
        here.push(part);
        if let (1.., Ok(target)) = (left, here.read_link()) {
            left -= 1;
            links.push(here.clone());
            here.pop();
            rest.extend::<Vec<OsString>>(reversed(&target));
        }
    }
    here
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

fn folded(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(fold(&name.to_string_lossy())),
            _ => None,
        })
        .collect()
}

/// Returns the names of a path below the granted directory, as denials compare them.
pub(super) fn fold_parts(below: &str) -> Vec<String> {
    below
        .split('/')
        .filter(|part| !part.is_empty())
        .map(fold)
        .collect()
}
