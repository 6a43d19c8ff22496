//! Replaces the content of an existing file.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes into the file itself and restores the old content if that fails (a full disk, a limit).
///
/// Replacing the file by a new one would be atomic, but would lose its permissions (an executable script) and links:
/// WASI can neither read nor set them.
pub(crate) fn replace(path: &Path, old: &[u8], new: &[u8]) -> io::Result<()> {
    let put = |bytes: &[u8]| {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    };
    put(new).inspect_err(|_| {
        // If this fails as well, the first error is reported.
        let _ = put(old);
    })
}
