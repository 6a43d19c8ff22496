//! File access with error messages and encodings for tools of models.
//!
//! Paths are those of `std::fs`: absolute, or relative to `/`, as mapped by the policy of the tool. Paths that are not
//! granted do not exist.
//!
//! ```
//! use toolcell_sdk::{Result, files, tool};
//!
//! /// Returns the first line of a text file.
//! #[tool(read_only)]
//! fn first_line(path: String) -> Result<String> {
//!     let mut lines = files::TextReader::open(&path)?.lines(1000);
//!     Ok(lines.next_line()?.map(|line| line.text).unwrap_or_default())
//! }
//! # let error = toolcell_sdk::testing::call::<first_line>(serde_json::json!({"path": "Cargo.tml"})).unwrap_err();
//! # assert_eq!(error.message(), "`Cargo.tml` does not exist; near names: Cargo.toml");
//! ```

mod decode;
mod near;
mod text;

use std::ffi::OsStr;
use std::fs::{DirEntry, File};
use std::io::{self, Read};
use std::path::Path;

use crate::{Result, ToolError, show};

pub use decode::{Encoding, is_binary};
pub use text::{Binary, Line, Lines, TextReader};

/// Opens a file for reading.
///
/// # Errors
/// A message for the model as in [`explain`], also for a directory.
pub fn open(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| explain(path, &error))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(is_a_directory(path)),
        _ => Ok(file),
    }
}

/// Reads a text file of at most `max_bytes` bytes, in any [`Encoding`].
///
/// # Errors
/// As [`open`]; also for a longer or binary file.
pub fn read_text(path: impl AsRef<Path>, max_bytes: u64) -> Result<String> {
    let path = path.as_ref();
    let mut reader = TextReader::open(path)?;
    if reader.len() > max_bytes {
        return Err(ToolError::failed(format_args!(
            "{} has {} bytes, the limit of this tool is {max_bytes}",
            show::quoted(path),
            reader.len(),
        )));
    }
    let mut text = String::new();
    while reader.read_chunk(&mut text)? {}
    Ok(text)
}

/// Reads a file of at most `max_bytes` bytes without decoding.
///
/// # Errors
/// As [`open`]; also for a longer file.
pub fn read_bytes(path: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    let read = open(path)?
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes);
    read.map_err(|error| explain(path, &error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(ToolError::failed(format_args!(
            "{} has more than {max_bytes} bytes, the limit of this tool",
            show::quoted(path)
        )));
    }
    Ok(bytes)
}

/// Directories that the policy grants, as absolute paths, sorted. On the host, where tests run, `/`.
pub fn roots() -> Vec<String> {
    #[cfg(target_family = "wasm")]
    {
        let directories = wasip2::filesystem::preopens::get_directories();
        let mut roots: Vec<String> = directories.into_iter().map(|(_, path)| path).collect();
        roots.sort();
        roots
    }
    #[cfg(not(target_family = "wasm"))]
    vec!["/".to_owned()]
}

/// Message for a model about a failed file operation: the path, the reason, and for a missing path similar names.
pub fn explain(path: impl AsRef<Path>, error: &io::Error) -> ToolError {
    let path = path.as_ref();
    let shown = show::quoted(path);
    match error.kind() {
        io::ErrorKind::NotFound => ToolError::failed(near::missing(path)),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ToolError::denied(format_args!("no permission for {shown}"))
        }
        io::ErrorKind::IsADirectory => is_a_directory(path),
        io::ErrorKind::NotADirectory => {
            ToolError::failed(format_args!("a parent of {shown} is not a directory"))
        }
        io::ErrorKind::AlreadyExists => ToolError::failed(format_args!("{shown} already exists")),
        io::ErrorKind::StorageFull => {
            ToolError::failed(format_args!("no space is left on the disk of {shown}"))
        }
        // The host tells a limit of the call so, and a quota of its disk.
        io::ErrorKind::QuotaExceeded => ToolError::failed(format_args!(
            "{shown}: the limit of files, or of bytes written, is reached; nothing more can be written in this call"
        )),
        _ if is_host_failure(error) => ToolError::failed(format_args!(
            "{shown}: the host could not read or write it, perhaps because its disk is full, or more was written than one call may"
        )),
        _ if is_outside(error) => ToolError::denied(format_args!(
            "{shown} is outside the directories granted to this tool"
        )),
        _ => ToolError::failed(format_args!("{shown}: {error}")),
    }
}

/// True if the host could not do it and the C library does not tell why: a full disk is one of the reasons for which it
/// has only `EIO` where a stream is written.
fn is_host_failure(error: &io::Error) -> bool {
    const EIO: i32 = 29;
    cfg!(target_family = "wasm") && error.raw_os_error() == Some(EIO)
}

/// True if the name of an entry is not UTF-8. The host lists such an entry with `\xNN` for each byte that is not, and no
/// tool can open it, because paths of components are UTF-8.
pub fn has_invalid_name(entry: &DirEntry) -> bool {
    match entry.file_name().to_str() {
        // The host knows no file with the name that it listed, and so no type.
        Some(name) => is_escaped(name) && entry.file_type().is_err(),
        None => true,
    }
}

/// True if a name can be the escaped form of one that is not UTF-8.
fn is_escaped(name: &str) -> bool {
    let is_byte = |code: &str| u8::from_str_radix(code, 16).is_ok_and(|byte| !byte.is_ascii());
    let mut codes = name.split("\\x").skip(1);
    codes.any(|rest| rest.get(..2).is_some_and(is_byte))
}

/// Checks a path that is to be created: it must not be the one by which an entry is shown whose name is not UTF-8. A second entry of
/// that name would be taken for it.
///
/// # Errors
/// A message for the model that names the entry.
pub fn must_be_creatable(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    match invalid_part(path) {
        Some(_) => Err(ToolError::failed(near::missing(path))),
        None => Ok(()),
    }
}

/// The part of a path, from its beginning, that does not exist and by which an entry is shown whose name is not UTF-8.
fn invalid_part(path: &Path) -> Option<&Path> {
    path.ancestors().find(|at| {
        let Some(name) = at
            .file_name()
            .filter(|name| name.to_str().is_some_and(is_escaped))
        else {
            return false;
        };
        let directory = at.parent().filter(|parent| !parent.as_os_str().is_empty());
        std::fs::symlink_metadata(at).is_err() && lists_invalid(directory.unwrap_or(Path::new(".")), name)
    })
}

/// True if a directory has an entry that is shown by this name and is not UTF-8.
fn lists_invalid(directory: &Path, shown: &OsStr) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries = entries.take(near::MAX_LOOKED_AT);
    entries.any(|entry| {
        let name = entry.file_name();
        (name == shown || *show::name(&name) == *shown) && has_invalid_name(&entry)
    })
}

fn is_a_directory(path: &Path) -> ToolError {
    ToolError::failed(format_args!("{} is a directory, not a file", show::quoted(path)))
}

/// `ENOTCAPABLE`: error of wasi-libc for a path outside all preopened directories.
#[cfg(target_family = "wasm")]
fn is_outside(error: &io::Error) -> bool {
    error.raw_os_error() == Some(76)
}

#[cfg(not(target_family = "wasm"))]
fn is_outside(_: &io::Error) -> bool {
    false
}
