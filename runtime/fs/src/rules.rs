//! Requirements that a file must satisfy to be used.

use std::fs::{FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use crate::error::Refusal;

/// Owners whose files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Any owner: for files that the user names explicitly.
    Anyone,
    /// The user and root: for files found by search.
    UserOrRoot,
    /// The user: for files that Toolcell created.
    User,
}

/// Requirements that a file must satisfy to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Accepted owners. Files of other owners, and files writable by all, are refused.
    pub owner: Owner,
    /// Follows a symbolic link at the end of the path. Links to parent directories are always followed.
    pub follow: bool,
    /// Maximum size, in bytes.
    pub max_bytes: u64,
}

impl Rules {
    /// Rules for a file that the user named: any owner, links followed.
    pub const fn named(max_bytes: u64) -> Self {
        Self {
            owner: Owner::Anyone,
            follow: true,
            max_bytes,
        }
    }

    /// Rules for a file found by search, which another user may have created: no link is followed, it must belong to
    /// the user or to root, and a file of the user must have no second hard link, which could be a private file.
    pub const fn found(max_bytes: u64) -> Self {
        Self {
            owner: Owner::UserOrRoot,
            follow: false,
            max_bytes,
        }
    }

    /// Rules for a file that Toolcell created for this user, with one hard link.
    pub const fn own(max_bytes: u64) -> Self {
        Self {
            owner: Owner::User,
            follow: false,
            max_bytes,
        }
    }
}

/// Returns the effective user of this process.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Checks that the metadata is that of an accepted regular file.
pub(crate) fn file(metadata: &Metadata, owner: Owner) -> Result<(), Refusal> {
    if !metadata.is_file() {
        return Err(not_a_file(metadata.file_type()));
    }
    trusted(metadata.uid(), metadata.mode(), user(), owner)
}

/// Returns the refusal of a file that may not be read, by its metadata.
pub(crate) fn readable(metadata: &Metadata, rules: &Rules) -> Result<(), Refusal> {
    file(metadata, rules.owner)?;
    let (names, uid) = (metadata.nlink(), metadata.uid());
    if rules.follow || has_one_name(names, uid, user()) {
        Ok(())
    } else {
        Err(Refusal::HardLink(names))
    }
}

/// Returns `true` if a file has one name. Anyone who can create hard links to a file of the user could have it read as
/// another file. Files of root may have several: package stores link them, and no other user can.
fn has_one_name(names: u64, uid: u32, user: u32) -> bool {
    names <= 1 || (uid == 0 && user != 0)
}

/// Returns the refusal of something other than a regular file.
pub(crate) fn not_a_file(kind: FileType) -> Refusal {
    if kind.is_symlink() {
        return Refusal::Link;
    }
    Refusal::NotAFile(name(kind))
}

/// Returns the display name of a file type.
pub(crate) fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        _ => "a regular file",
    }
}

/// Checks that `user` can trust a file of `uid` with these permissions.
fn trusted(uid: u32, mode: u32, user: u32, owner: Owner) -> Result<(), Refusal> {
    let is_trusted = match owner {
        Owner::Anyone => return Ok(()),
        Owner::UserOrRoot => uid == user || uid == 0,
        Owner::User => uid == user,
    };
    if !is_trusted {
        return Err(Refusal::OtherOwner(uid));
    }
    if mode & 0o002 != 0 {
        return Err(Refusal::WritableByAll);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_trusted_by_owner_and_write_permission() {
        const ME: u32 = 1000;
        for (uid, mode, owner, expected) in [
            (ME, 0o600, Owner::User, Ok(())),
            (0, 0o644, Owner::User, Err(Refusal::OtherOwner(0))),
            (0, 0o644, Owner::UserOrRoot, Ok(())),
            (ME, 0o664, Owner::UserOrRoot, Ok(())),
            (ME, 0o666, Owner::UserOrRoot, Err(Refusal::WritableByAll)),
            (0, 0o666, Owner::UserOrRoot, Err(Refusal::WritableByAll)),
            (1001, 0o600, Owner::UserOrRoot, Err(Refusal::OtherOwner(1001))),
            (1001, 0o666, Owner::Anyone, Ok(())),
        ] {
            assert_eq!(
                trusted(uid, mode, ME, owner),
                expected,
                "{uid} {mode:o} {owner:?}"
            );
        }
        for (names, uid, user, expected) in [
            (1, ME, ME, true),
            (2, ME, ME, false),
            (0, ME, ME, true),
            (2, 0, ME, true),
            (2, 0, 0, false),
        ] {
            assert_eq!(has_one_name(names, uid, user), expected, "{names} {uid} {user}");
        }
        // Root trusts only its own files.
        assert_eq!(
            trusted(ME, 0o600, 0, Owner::UserOrRoot),
            Err(Refusal::OtherOwner(ME))
        );
    }
}
