//! Rights of a grant in its directory, and guest paths.

use std::path::{Component, Path};
use std::sync::Arc;

use toolcell_core::Grant;
use toolcell_core::policy::{DirAccess, DirGrant};

use super::denied::{DeniedBy, DeniedPlaces, Use};
use super::overlay::Overlay;
use crate::cell::receipt::ReceiptRecorder;

/// One granted directory, shared by all descriptors below it.
pub(super) struct Root {
    pub(super) grant: DirGrant,
    /// Overlay that receives changes instead of the directory.
    pub(super) overlay: Option<Overlay>,
    /// Denied paths below it.
    pub(super) denied: Arc<DeniedPlaces>,
    pub(super) recorder: ReceiptRecorder,
}

/// Location of a descriptor: its grant, and its guest path.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) root: Arc<Root>,
    pub(super) path: String,
    /// Path relative to the granted directory, without links, `.` and `..`; empty for the directory itself. Known for
    /// open descriptors.
    pub(super) below: String,
}

/// A single right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
    Create,
    Delete,
}

impl Right {
    fn is_in(self, access: DirAccess) -> bool {
        match self {
            Self::Read => access.read,
            Self::Write => access.write,
            Self::Create => access.create,
            Self::Delete => access.delete,
        }
    }

    fn added_to(self, mut access: DirAccess) -> DirAccess {
        match self {
            Self::Read => access.read = true,
            Self::Write => access.write = true,
            Self::Create => access.create = true,
            Self::Delete => access.delete = true,
        }
        access
    }
}

impl Place {
    /// Returns the location of `path`, relative to this one.
    pub(super) fn join(&self, path: &str) -> Self {
        Self {
            root: self.root.clone(),
            path: join(&self.path, path),
            below: String::new(),
        }
    }

    pub(super) fn has(&self, right: Right) -> bool {
        right.is_in(self.root.grant.access)
    }

    /// Returns `true` if the guest has a right here; otherwise records the denial with the grant that would allow it.
    pub(super) fn check(&self, right: Right) -> bool {
        let has = self.has(right);
        if !has {
            let grant = &self.root.grant;
            let host = grant.host.to_string_lossy().into_owned();
            let guest = (Grant::guest_path(&host) != grant.guest).then(|| grant.guest.clone());
            let access = right.added_to(grant.access);
            let grant = Grant::Dir { host, guest, access };
            self.deny(Some(grant.to_string()));
        }
        has
    }

    /// Records a denial, with the grant that would allow it if any.
    pub(super) fn deny(&self, allow_with: Option<String>) {
        self.root.recorder.denial("file", self.path.clone(), allow_with);
    }

    /// Returns `true` if the open file at `below` may be changed.
    pub(super) fn may_change(&self, below: &str) -> bool {
        self.has(Right::Write) && self.root.denied.check(below, Use::Change).is_ok()
    }

    /// Records an operation refused by a denial.
    pub(super) fn refused(&self, denied: &DeniedBy) {
        self.root
            .recorder
            .refusal("file", self.path.clone(), denied.0.clone());
    }

    /// Records that the file was opened or changed.
    pub(super) fn note(&self, write: bool) {
        self.root.recorder.file(self.path.clone(), write);
    }

    /// Returns `true` if moving an entry from here to `other` would allow an operation on it that is not allowed here.
    pub(super) fn gains_in(&self, other: &Self) -> bool {
        let (from, to) = (self.root.grant.access, other.root.grant.access);
        let gained = |right: Right| right.is_in(to) && !right.is_in(from);
        !Arc::ptr_eq(&self.root, &other.root)
            && [Right::Read, Right::Write, Right::Create, Right::Delete]
                .into_iter()
                .any(gained)
    }
}

/// Joins `path` to `base`, without `.` and `..`. For display and receipts only: nothing is opened by it.
fn join(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = base.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns `true` if the target of a symbolic link stays below the link's directory, wherever that is moved: it is
/// relative and never goes up. The guard itself follows no link out; this protects programs of the host that read the
/// directory later.
pub(super) fn stays_below(target: &str) -> bool {
    !target.is_empty()
        && Path::new(target)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && !target.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_path_contains_no_dots() {
        for (base, path, joined) in [
            ("/", "a", "/a"),
            ("/work", "a/./b//c", "/work/a/b/c"),
            ("/work", "../etc/passwd", "/etc/passwd"),
            ("/", "../../x", "/x"),
            ("/work", ".", "/work"),
        ] {
            assert_eq!(join(base, path), joined, "{base} {path}");
        }
    }

    #[test]
    fn only_a_link_that_never_goes_up_stays_below() {
        for target in ["a", "a/b", "./a"] {
            assert!(stays_below(target), "{target}");
        }
        for target in ["", "/a", "..", "../a", "a/../b", "a/..", "//x"] {
            assert!(!stays_below(target), "{target}");
        }
    }
}
