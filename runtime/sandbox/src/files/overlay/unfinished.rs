//! Files of a commit that are not finished: each is written beside its place and then renamed.
//!
//! A process that is killed leaves one behind. Before one is made, a file of its name is made in the overlay, with the
//! path of the directory that it lies in. The name is random, so that only that file has it, and the next
//! commit or discard removes it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions};
use rustix::fs::{AtFlags, FileType, statat, unlinkat};

use super::entry::{enter, is_missing};

/// Prefix of the names; 32 hexadecimal digits follow.
const PREFIX: &str = ".toolcell-commit-";

/// Longest path of a directory, in bytes: `PATH_MAX` of Linux.
const MAX_PATH: u64 = 4_096;

/// Record of unfinished files, in the `work` part of an overlay.
pub(super) struct Unfinished(pub(super) Dir);

impl Unfinished {
    /// A new name for a file in the directory `at`, remembered until [`Self::end`].
    pub(super) fn begin(&self, at: &Path) -> io::Result<OsString> {
        let name = format!("{PREFIX}{:032x}", random()?);
        let mut options = OpenOptions::new();
        let mut file = self.0.open_with(&name, options.write(true).create_new(true))?;
        file.write_all(at.as_os_str().as_bytes())?;
        Ok(name.into())
    }

    /// Forgets a name, once no file has it.
    pub(super) fn end(&self, name: &OsStr) {
        // A name that stays is that of no file, and is forgotten the next time.
        let _ = self.0.remove_file(name);
    }

    /// Removes what a killed process left in the directory `lower`.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) fn clean(&self, lower: &File) -> io::Result<()> {
        for entry in self.0.entries()? {
            let name = entry?.file_name();
            if !is_ours(&name) {
                continue;
            }
            // What cannot be removed is remembered, and stops nothing.
            let at = self.directory_of(&name);
            if at.is_ok_and(|at| at.is_none_or(|at| remove(lower, &at, &name).is_ok())) {
                self.end(&name);
            }
        }
        Ok(())
    }

    /// The directory of a file that is remembered; `None` where a process was killed before it said so.
    fn directory_of(&self, name: &OsStr) -> io::Result<Option<PathBuf>> {
        let metadata = self.0.symlink_metadata(name)?;
        if !metadata.is_file() || metadata.len() > MAX_PATH {
            return Ok(None);
        }
        let mut path = Vec::new();
        self.0.open(name)?.take(MAX_PATH).read_to_end(&mut path)?;
        Ok(Some(OsString::from_vec(path).into()))
    }
}

/// Returns a random number that no other commit uses.
pub(super) fn random() -> io::Result<u128> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(u128::from_ne_bytes(random))
}

/// Returns true if [`Unfinished::begin`] could have made the name.
fn is_ours(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn remove(lower: &File, at: &Path, name: &OsStr) -> io::Result<()> {
    let dir = match enter(lower, at) {
        Err(error) if is_missing(&error) => return Ok(()),
        dir => dir?,
    };
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Ok(unlinkat(&dir, name, AtFlags::empty())?),
            // We make no other.
            _ => Ok(()),
        },
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_make_are_ours() {
        let digits = "0123456789abcdef0123456789abcdef";
        assert!(is_ours(OsStr::new(&format!("{PREFIX}{digits}"))));
        for name in [
            PREFIX.to_owned(),
            format!("{PREFIX}{}", &digits[1..]),
            format!("{PREFIX}{digits}0"),
            format!("x{PREFIX}{digits}"),
            format!("{PREFIX}{}", digits.replace('a', "g")),
        ] {
            assert!(!is_ours(OsStr::new(&name)), "{name}");
        }
    }
}
