//! A directory that gets new files, none of which replaces another.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::FileError;
use crate::write::PRIVATE;

/// Permissions of a directory that is created.
const DIRECTORY: u32 = 0o700;

/// A directory that the user named for output. It is opened once, so that replacing its path by a link later leads no file
/// elsewhere.
#[derive(Debug)]
pub struct OutputDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl OutputDirectory {
    /// Opens a directory, and creates it with owner-only permissions if it does not exist. Its parent must exist.
    ///
    /// # Errors
    /// If it cannot be created or opened, or is not a directory.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        match DirBuilder::new().mode(DIRECTORY).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(FileError::io("create directory", path))?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| FileError::io("open directory", path)(errno.into()))?;
        Ok(Self {
            directory,
            path: path.to_owned(),
        })
    }

    /// Writes a new file with owner-only permissions, and returns its path; `None` if something of this name exists. A file
    /// that cannot be written completely is removed.
    ///
    /// # Errors
    /// If the name is not that of a file in this directory, or if the file cannot be written.
    pub fn create(&self, name: &str, content: &[u8]) -> Result<Option<PathBuf>, FileError> {
        let path = self.path.join(name);
        if name.contains(['/', '\0']) || matches!(name, "" | "." | "..") {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is not the name of a file");
            return Err(FileError::io("create", &path)(error));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_bits_truncate(PRIVATE);
        let file = match rustix::fs::openat(&self.directory, name, flags, mode) {
            Err(Errno::EXIST) => return Ok(None),
            file => File::from(file.map_err(|errno| FileError::io("create", &path)(errno.into()))?),
        };
        if let Err(error) = (&file).write_all(content) {
            let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
            return Err(FileError::io("write", &path)(error));
        }
        Ok(Some(path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn new_files_are_private_and_replace_nothing() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("out");
        let output = OutputDirectory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let file = output.create("a.png", b"one").unwrap().unwrap();
        assert_eq!(file, path.join("a.png"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(output.create("a.png", b"two").unwrap(), None);
        assert_eq!(fs::read(&file).unwrap(), b"one");
    }

    #[test]
    fn links_are_never_followed() {
        let root = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (root.path().join("out"), root.path().join("elsewhere"));
        let output = OutputDirectory::open(&path).unwrap();
        symlink(&elsewhere, path.join("a.png")).unwrap();
        assert_eq!(output.create("a.png", b"x").unwrap(), None);
        assert!(!elsewhere.exists());

        // A directory that is replaced later leads nowhere else.
        fs::create_dir(&elsewhere).unwrap();
        fs::rename(&path, root.path().join("moved")).unwrap();
        symlink(&elsewhere, &path).unwrap();
        output.create("b.png", b"x").unwrap().unwrap();
        assert_eq!(fs::read(root.path().join("moved/b.png")).unwrap(), b"x");
        assert!(!elsewhere.join("b.png").exists());
    }

    #[test]
    fn names_of_other_places_and_files_as_directory_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let output = OutputDirectory::open(root.path()).unwrap();
        for name in ["", ".", "..", "../a", "/a", "a/b", "a\0b"] {
            assert!(output.create(name, b"x").is_err(), "{name:?}");
        }
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(OutputDirectory::open(&file).is_err());
        assert!(
            OutputDirectory::open(&root.path().join("a/b")).is_err(),
            "no parent"
        );
    }
}
