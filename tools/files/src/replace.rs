//! Gives an existing file new contents.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes into the file itself and, if that fails half-way (a full disk, a limit), puts the old contents back.
///
/// A new file that takes the place of the old one would never be seen half-written, but it would also lose the
/// permissions of the old one (an executable script) and any links to it: WASI can neither read nor set them.
pub(crate) fn replace(path: &Path, old: &[u8], new: &[u8]) -> io::Result<()> {
    let put = |bytes: &[u8]| {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)
    };
    put(new).inspect_err(|_| {
        // Nothing more can be done if this fails as well; the first error is the one to tell.
        let _ = put(old);
    })
}
