//! Directories for their owner alone.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{FileError, Refusal};
use crate::rules;

/// Permissions of a directory that others must not even look into.
const MODE: u32 = 0o700;

/// Makes a directory for its owner alone, with those above it, and returns its path without symbolic links.
///
/// One that is there and open to others is closed to them; what is kept in it is nobody else's business.
///
/// # Errors
/// When it cannot be made or closed, is no directory, or belongs to somebody else.
pub fn private_dir(path: &Path) -> Result<PathBuf, FileError> {
    match DirBuilder::new().recursive(true).mode(MODE).create(path) {
        // Something else stands there; what it is is said below.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made.map_err(FileError::io("make the directory", path))?,
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
            .map_err(FileError::io("close to other users the directory", path))?;
    }
    Ok(real)
}
