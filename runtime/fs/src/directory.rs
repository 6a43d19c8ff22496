//! Directories with owner-only permissions.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{FileError, Refusal};
use crate::rules;

/// Permissions of a directory that other users cannot list.
const MODE: u32 = 0o700;

/// Creates a directory and its parents with owner-only permissions, and returns its path without symbolic links.
///
/// The permissions of an existing directory are restricted to the owner.
///
/// # Errors
/// If it cannot be created or restricted, is not a directory, or belongs to another user.
pub fn private_dir(path: &Path) -> Result<PathBuf, FileError> {
    match DirBuilder::new().recursive(true).mode(MODE).create(path) {
        // Another kind of file; reported below.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.map_err(FileError::io("create directory", path))?,
    }
    let real = path.canonicalize().map_err(FileError::io("open", path))?;
    let metadata = fs::symlink_metadata(&real).map_err(FileError::io("examine", path))?;
    if !metadata.is_dir() {
        return Err(FileError::refused(
            path,
            Refusal::NotADirectory(rules::name(metadata.file_type())),
        ));
    }
    if metadata.uid() != rules::user() {
        return Err(FileError::refused(path, Refusal::OtherOwner(metadata.uid())));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(&real, Permissions::from_mode(MODE))
            .map_err(FileError::io("restrict permissions of directory", path))?;
    }
    Ok(real)
}
