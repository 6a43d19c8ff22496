//! Reading of untrusted paths.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::error::{FileError, Refusal};
use crate::rules::{self, Rules};

/// Opens a file for reading. Never blocks, whatever the path refers to.
///
/// # Errors
/// If it cannot be opened, or does not satisfy `rules`.
pub fn open(path: &Path, rules: &Rules) -> Result<File, FileError> {
    // Checked before opening, because opening a device can have effects, and again afterwards, because the path may
    // have changed by then.
    check(path, rules)?;
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if !rules.follow {
        flags |= OFlags::NOFOLLOW;
    }
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::LOOP if !rules.follow => FileError::refused(path, Refusal::Link),
        errno => FileError::io("open", path)(errno.into()),
    })?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(FileError::io("examine", path))?;
    rules::readable(&metadata, rules).map_err(|reason| FileError::refused(path, reason))?;
    Ok(file)
}

/// Checks that a file satisfies these rules, without opening it: for files that a library opens by path.
///
/// # Errors
/// If its metadata cannot be read, or it does not satisfy `rules`.
pub fn check(path: &Path, rules: &Rules) -> Result<(), FileError> {
    let metadata = if rules.follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    };
    let metadata = metadata.map_err(FileError::io("open", path))?;
    rules::readable(&metadata, rules)
        .and_then(|()| {
            if metadata.len() > rules.max_bytes {
                return Err(Refusal::TooLarge(rules.max_bytes));
            }
            Ok(())
        })
        .map_err(|reason| FileError::refused(path, reason))
}

/// Reads a complete file.
///
/// # Errors
/// As [`open`], and if it is larger than `rules.max_bytes`.
pub fn read(path: &Path, rules: &Rules) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    open(path, rules)?
        .take(rules.max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(FileError::io("read", path))?;
    if bytes.len() as u64 > rules.max_bytes {
        return Err(FileError::refused(path, Refusal::TooLarge(rules.max_bytes)));
    }
    Ok(bytes)
}

/// Reads a complete text file.
///
/// # Errors
/// As [`read`], and if it is not UTF-8.
pub fn read_text(path: &Path, rules: &Rules) -> Result<String, FileError> {
    String::from_utf8(read(path, rules)?)
        .map_err(|error| FileError::refused(path, Refusal::NotUtf8(error.utf8_error().valid_up_to())))
}
