//! Git directories, which are known by what lies in them and not by their name.
//!
//! Without an overlay the directory that an operation works in and those above it are asked themselves, from the open
//! directory upwards, so that it does not matter by which path it was reached or where another call moved it. A
//! directory is inside of a Git directory until it is taken out, which is refused; and none becomes one meanwhile,
//! because what would make it one is refused as well.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, fstat, openat, statat};
use rustix::io::Errno;
use toolcell_core::protected::{Protection, is_git_dir, makes_git_dir, protection};

use super::{DeniedBy, DeniedPlaces, FileId};
use crate::files::dir::ENTER;

/// Directories above each other that are asked, as many as one path is walked through. Nothing is changed below more.
const MAX_ABOVE: u32 = 1_024;

/// Returns true if a directory has an entry of this name; a link counts as itself.
fn has(dir: &impl AsFd, name: &str) -> io::Result<bool> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if the granted directory is in a Git directory, or is one, that its path does not name: a user who
/// grants `.git` itself grants what is in it.
///
/// # Errors
/// A directory above it cannot be inspected.
pub(super) fn is_in_git_dir(real: &Path) -> io::Result<bool> {
    if protection("", &real.to_string_lossy()) == Some(Protection::Programs) {
        return Ok(false);
    }
    for dir in real.ancestors() {
        if is_git_dir(|name| exists(&dir.join(name)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn exists(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl DeniedPlaces {
    /// Refuses changing the entry `name` of an open directory if that lies in a Git directory below the granted one, or
    /// would become one.
    pub(in crate::files) fn check_git(&self, dir: &File, name: &str) -> io::Result<()> {
        self.check_in_git()?;
        if self.programs {
            return Ok(());
        }
        if makes_git_dir(name, |name| has(dir, name))? {
            return Err(DeniedBy::programs().into());
        }
        let mut here = openat(dir, ".", ENTER, Mode::empty())?;
        for _ in 0..MAX_ABOVE {
            let id = id(&here)?;
            if id == self.id {
                return Ok(());
            }
            if is_git_dir(|name| has(&here, name))? {
                return Err(DeniedBy::programs().into());
            }
            let above = openat(&here, "..", ENTER, Mode::empty())?;
            // The root is above itself: the directory was moved out of the granted one.
            if self::id(&above)? == id {
                return Ok(());
            }
            here = above;
        }
        Err(DeniedBy::programs().into())
    }

    /// As [`DeniedPlaces::check_git`], of a path without links below the granted directory. `has` tells if a directory
    /// has an entry of a name.
    pub(in crate::files) fn check_git_path(
        &self,
        path: &str,
        has: impl Fn(&str, &str) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.check_in_git()?;
        if self.programs {
            return Ok(());
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        if makes_git_dir(name, |name| has(above, name))? {
            return Err(DeniedBy::programs().into());
        }
        for (end, _) in path.match_indices('/') {
            if is_git_dir(|name| has(&path[..end], name))? {
                return Err(DeniedBy::programs().into());
            }
        }
        Ok(())
    }

    fn check_in_git(&self) -> Result<(), DeniedBy> {
        match self.is_in_git && !self.programs {
            true => Err(DeniedBy::programs()),
            false => Ok(()),
        }
    }
}

fn id(dir: &impl AsFd) -> io::Result<FileId> {
    let stat = fstat(dir)?;
    // As `MetadataExt` has them; the types differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{mkdirat, unlinkat};

    #[test]
    fn directories_are_changed_down_to_a_depth() {
        let top = tempfile::tempdir().unwrap();
        let base = File::open(top.path()).unwrap();
        let denied = DeniedPlaces::new(&base, top.path(), &Default::default()).unwrap();
        let mut here = base.try_clone().unwrap();
        for depth in 1..=MAX_ABOVE {
            assert!(denied.check_git(&here, "x").is_ok(), "{depth}");
            mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = openat(&here, "d", ENTER, Mode::empty()).unwrap().into();
        }
        assert!(denied.check_git(&here, "x").is_err());
        // Too deep for the descriptors that removing it at once would take.
        for _ in 0..MAX_ABOVE {
            here = openat(&here, "..", ENTER, Mode::empty()).unwrap().into();
            unlinkat(&here, "d", AtFlags::REMOVEDIR).unwrap();
        }
    }
}
