//! Writing without following links.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::error::{FileError, Refusal};
use crate::rules::{self, Owner};

/// Permissions of a file that only its owner can read.
pub const PRIVATE: u32 = 0o600;

/// Permissions of a file shared with all who can read the directory, such as the files of a project.
pub const SHARED: u32 = 0o644;

/// Name prefix of unfinished files; the rest is random.
const UNFINISHED: &str = ".toolcell-new-";

/// Number of random letters and digits behind it.
const RANDOM: usize = 6;

/// True for the name of a file that [`replace`] has not finished. One stays if its process is killed.
pub fn is_unfinished(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

/// Replaces the file at `path` atomically: the content is written to a new file in the same directory, synced and
/// renamed. A reader sees either the old file or the new one, and a link at `path` is replaced rather than followed.
///
/// # Errors
/// If anything but a file of this user exists there, or the file cannot be written.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => {
            let metadata = found.map_err(FileError::io("examine", path))?;
            rules::file(&metadata, Owner::User)
                .or_else(|reason| match reason {
                    // The new file is writable only by its owner.
                    Refusal::WritableByAll => Ok(()),
                    reason => Err(reason),
                })
                .map_err(|reason| FileError::refused(path, reason))?;
        }
    }
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let write = || -> io::Result<()> {
        // Created with O_EXCL, which follows no link.
        let mut new = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .rand_bytes(RANDOM)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        new.write_all(content)?;
        new.as_file().sync_all()?;
        new.persist(path).map_err(|error| error.error)?;
        // Syncing the directory persists the name. Some file systems do not support it.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        Ok(())
    };
    write().map_err(FileError::io("write", path))
}

/// Time since a file was written from which no process that lives is writing it: far above the time of any write.
pub const UNFINISHED_AGE: Duration = Duration::from_secs(600);

/// Removes what [`replace`] left unfinished in a directory, because its process was killed: regular files of this user that
/// have a name of such files, and were not written for `age`.
///
/// # Errors
/// If the directory cannot be read or a file not be removed.
pub fn remove_unfinished(directory: &Path, age: Duration) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let random = name.as_encoded_bytes().strip_prefix(UNFINISHED.as_bytes());
        if !random
            .is_some_and(|random| random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric))
        {
            continue;
        }
        let metadata = entry.metadata()?;
        let is_old = metadata.modified()?.elapsed().is_ok_and(|elapsed| elapsed >= age);
        if is_old && own(&metadata).is_ok() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Opens a file for appending; creates it with owner-only permissions if it does not exist. Returns `true` if it was
/// created.
///
/// # Errors
/// If anything but a file of this user with a single hard link exists there, or it cannot be opened.
pub fn append(path: &Path) -> Result<(File, bool), FileError> {
    let new = OpenOptions::new()
        .append(true)
        .read(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(path);
    match new {
        Ok(file) => return Ok((file, true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(FileError::io("make", path)(error)),
    }
    let refused = |reason| FileError::refused(path, reason);
    let metadata = fs::symlink_metadata(path).map_err(FileError::io("examine", path))?;
    own(&metadata).map_err(refused)?;
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CLOEXEC
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::LOOP => refused(Refusal::Link),
        errno => FileError::io("open", path)(errno.into()),
    })?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(FileError::io("examine", path))?;
    own(&metadata).map_err(refused)?;
    Ok((file, false))
}

/// Checks that a file belongs to the user and has a single hard link.
pub(crate) fn own(metadata: &Metadata) -> Result<(), Refusal> {
    rules::file(metadata, Owner::User)?;
    match metadata.nlink() {
        0 | 1 => Ok(()),
        names => Err(Refusal::HardLink(names)),
    }
}

/// Removes the file at `path` if it is the open `file` and has not changed since it was opened.
///
/// # Errors
/// If its metadata cannot be read or it cannot be removed.
pub fn remove_if_same(path: &Path, file: &File) -> Result<bool, FileError> {
    let open = file.metadata().map_err(FileError::io("examine", path))?;
    let named = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named.map_err(FileError::io("examine", path))?,
    };
    if (open.dev(), open.ino()) != (named.dev(), named.ino()) {
        return Ok(false);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true).map_err(FileError::io("remove", path)),
    }
}
