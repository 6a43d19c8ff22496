//! Denied paths, as seen from one granted directory.
//!
//! A denial names a path of the host. It is resolved when a call opens its directories, and enforced on the real file:
//! by the path without links that an operation walked, and by the identity of the opened file, so that a hard link to a
//! denied file, or a second mount of the same directory, is denied as well. Paths that do not exist yet are denied by
//! name.
//!
//! To keep this valid while calls run concurrently, nothing that contains a denied path, exists in one, or would become
//! one is moved, linked or replaced by a link. A directory being walked therefore never changes whether it is denied,
//! wherever another call moves it.

mod git;

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use toolcell_core::Denials;
use toolcell_core::denial::{DeniedUse, PathDenial};
use toolcell_core::protected::{fold, may_hold_protected, protection, protection_from_reading};

use self::git::is_in_git_dir;

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
            for form in forms(host)? {
                let form = folded(&form);
                if parts.starts_with(&form) {
                    if *uses == DeniedUse::All {
                        return Err(DeniedBy(by.clone()).into());
                    }
                    places.add(Vec::new(), denial);
                } else if let Some(below) = form.strip_prefix(parts.as_slice()) {
                    places.add(below.to_vec(), denial);
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

    fn add(&mut self, below: Vec<String>, denial: &PathDenial) {
        self.names.push(DeniedName {
            below,
            uses: denial.uses,
            by: denial.by.clone(),
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

    /// Rejects moving `below`, or putting anything but a plain directory there, if a denied path is or would be below
    /// it.
    pub(super) fn check_above(&self, below: &str) -> Result<(), DeniedBy> {
        let parts = fold_parts(below);
        let holds = |name: &&DeniedName| name.below.len() > parts.len() && name.below.starts_with(&parts);
        if let Some(name) = self.names.iter().find(holds) {
            return Err(DeniedBy(name.by.clone()));
        }
        if !self.programs && may_hold_protected(&self.base, below) {
            let rule = toolcell_core::protected::Protection::Programs.rule();
            return Err(DeniedBy(rule.to_owned()));
        }
        Ok(())
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
fn ancestors(real: &Path) -> impl Iterator<Item = FileId> {
    real.ancestors()
        .filter_map(|ancestor| ancestor.metadata().ok())
        .map(|metadata| id(&metadata))
}

/// Returns the paths by which a denied file can be reached: as written, with the links on the way resolved, and with a
/// link at its end resolved as well.
fn forms(host: &Path) -> io::Result<Vec<PathBuf>> {
    let written = without_dots(&std::path::absolute(host)?);
    let mut forms = Vec::new();
    if let (Some(parent), Some(name)) = (written.parent(), written.file_name()) {
        let place = real(parent).join(name);
        if place.is_symlink() {
            forms.push(real(&place));
        }
        forms.push(place);
    }
    if forms.last() != Some(&written) {
        forms.push(written);
    }
    Ok(forms)
}

/// Resolves the existing part of a path, and appends the rest as written.
fn real(path: &Path) -> PathBuf {
    let existing = path
        .ancestors()
        .find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    match existing {
        Some((ancestor, real)) => match path.strip_prefix(ancestor) {
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => path.to_owned(),
        },
        None => path.to_owned(),
    }
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

fn fold_parts(below: &str) -> Vec<String> {
    below
        .split('/')
        .filter(|part| !part.is_empty())
        .map(fold)
        .collect()
}
