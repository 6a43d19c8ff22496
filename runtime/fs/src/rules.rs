//! What a file must be to be used.

use std::fs::{FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use crate::error::Refusal;

/// Whose files are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Those of anyone: for files that the user names for this one use.
    Anyone,
    /// Those of the user and of root: for files that are found and not named.
    UserOrRoot,
    /// Those of the user: for files that Toolcell made.
    User,
}

/// What a file must be to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whose file it may be. Of anyone else's, and of one that everybody may write to, nothing is read.
    pub owner: Owner,
    /// Whether a symbolic link at the end of the path is followed. Links to directories on the way always are.
    pub follow: bool,
    /// Most bytes that are read.
    pub max_bytes: u64,
}

impl Rules {
    /// A file that the user named: of anyone, also behind a link.
    pub const fn named(max_bytes: u64) -> Self {
        Self {
            owner: Owner::Anyone,
            follow: true,
            max_bytes,
        }
    }

    /// A file that lies where it is looked for, and that anyone may have put there: no link is followed, and it belongs to
    /// the user or to root.
    pub const fn found(max_bytes: u64) -> Self {
        Self {
            owner: Owner::UserOrRoot,
            follow: false,
            max_bytes,
        }
    }

    /// A file that Toolcell made for this user.
    pub const fn own(max_bytes: u64) -> Self {
        Self {
            owner: Owner::User,
            follow: false,
            max_bytes,
        }
    }
}

/// The user of this process, whose files are used.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether a regular file may be used, by its metadata.
pub(crate) fn file(metadata: &Metadata, owner: Owner) -> Result<(), Refusal> {
    if !metadata.is_file() {
        return Err(not_a_file(metadata.file_type()));
    }
    trusted(metadata.uid(), metadata.mode(), user(), owner)
}

/// Why something that is no regular file is refused.
pub(crate) fn not_a_file(kind: FileType) -> Refusal {
    if kind.is_symlink() {
        return Refusal::Link;
    }
    Refusal::NotAFile(name(kind))
}

/// What a file type is called.
pub(crate) fn name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() || kind.is_char_device() => "a device",
        kind if kind.is_symlink() => "a symbolic link",
        _ => "a regular file",
    }
}

/// Whether a file of `uid` with these permissions is trusted by `user`.
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
    fn files_are_trusted_by_owner_and_by_who_may_write() {
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
        // Root trusts its own files, and no others.
        assert_eq!(
            trusted(ME, 0o600, 0, Owner::UserOrRoot),
            Err(Refusal::OtherOwner(ME))
        );
    }
}
