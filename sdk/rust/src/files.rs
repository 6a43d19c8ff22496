//! Files, with the errors and encodings that a tool for a model has to deal with.
//!
//! The paths are those of `std::fs`: absolute, or relative to `/`, as the policy of the tool maps them. What is not
//! granted is not there.
//!
//! ```
//! use toolcell_sdk::{Result, files, tool};
//!
//! /// Says how the first line of a text file reads.
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

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::{Result, ToolError};

pub use decode::{Encoding, is_binary};
pub use text::{Binary, Line, Lines, TextReader};

/// Opens a file for reading.
///
/// # Errors
/// Words for the model as [`explain`] makes them, also for a directory.
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
/// As [`open`]; for a longer file; for a binary one.
pub fn read_text(path: impl AsRef<Path>, max_bytes: u64) -> Result<String> {
    let path = path.as_ref();
    let mut reader = TextReader::open(path)?;
    if reader.len() > max_bytes {
        return Err(ToolError::failed(format_args!(
            "`{}` has {} bytes, and this tool reads files of at most {max_bytes}",
            path.display(),
            reader.len(),
        )));
    }
    let mut text = String::new();
    while reader.read_chunk(&mut text)? {}
    Ok(text)
}

/// Reads a file of at most `max_bytes` bytes as it is.
///
/// # Errors
/// As [`open`]; for a longer file.
pub fn read_bytes(path: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    let read = open(path)?
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes);
    read.map_err(|error| explain(path, &error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(ToolError::failed(format_args!(
            "`{}` has more than the {max_bytes} bytes that this tool reads",
            path.display()
        )));
    }
    Ok(bytes)
}

/// The directories that the policy grants, as absolute paths, sorted. On the host, where tests run, that is `/`.
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

/// Words for a model about a failure with a file: what failed with which path, why, and for a path that does not exist
/// what there is instead.
pub fn explain(path: impl AsRef<Path>, error: &io::Error) -> ToolError {
    let path = path.as_ref();
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => ToolError::failed(near::missing(path)),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ToolError::denied(format_args!("no permission for `{shown}`"))
        }
        io::ErrorKind::IsADirectory => is_a_directory(path),
        io::ErrorKind::NotADirectory => ToolError::failed(format_args!(
            "`{shown}` goes through something that is not a directory"
        )),
        io::ErrorKind::AlreadyExists => ToolError::failed(format_args!("`{shown}` exists already")),
        _ if is_outside(error) => ToolError::denied(format_args!(
            "`{shown}` is outside the directories that this tool was given"
        )),
        _ => ToolError::failed(format_args!("`{shown}`: {error}")),
    }
}

fn is_a_directory(path: &Path) -> ToolError {
    ToolError::failed(format_args!("`{}` is a directory and not a file", path.display()))
}

/// `ENOTCAPABLE`: how wasi-libc says that no preopened directory holds the path.
#[cfg(target_family = "wasm")]
fn is_outside(error: &io::Error) -> bool {
    error.raw_os_error() == Some(76)
}

#[cfg(not(target_family = "wasm"))]
fn is_outside(_: &io::Error) -> bool {
    false
}
