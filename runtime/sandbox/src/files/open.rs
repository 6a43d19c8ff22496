//! Opening of files below a directory: never outside of it, and only regular files and directories.

use std::fs::File;
use std::io;
use std::path::Path;

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsMaybeDirExt, OpenOptionsSyncExt};
use cap_primitives::fs::{self, Metadata, OpenOptions};

/// Options of opening a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) truncate: bool,
    /// Create the file, and fail if it exists.
    pub(super) new: bool,
    /// Find the file behind a symbolic link at the end of the path. [`open`] itself follows none.
    pub(super) follow: bool,
}

/// An opened file or directory.
#[derive(Debug)]
pub(super) enum Opened {
    File(File),
    Dir(File),
    /// A FIFO, a socket or a device.
    Special,
}

/// Opens `path` below `dir`, without following a link. Nothing is truncated yet: the file is checked before it is
/// changed.
///
/// A FIFO is opened without blocking and closed again; a device is detected before it is opened, because opening one
/// can have effects. One that replaces a file between the two checks is closed again.
pub(super) fn open(dir: &File, path: &str, mode: Mode) -> io::Result<Opened> {
    let path = Path::new(path);
    if !mode.new && is_special(&fs::stat(dir, path, FollowSymlinks::No)?) {
        return Ok(Opened::Special);
    }
    let mut options = OpenOptions::new();
    options
        .read(mode.read || !mode.write)
        .write(mode.write || mode.truncate || mode.new)
        .create_new(mode.new)
        .follow(FollowSymlinks::No)
        .maybe_dir(true)
        .nonblock(true);
    let file = fs::open(dir, path, &options)?;
    let metadata = Metadata::from_file(&file)?;
    Ok(if metadata.is_dir() {
        Opened::Dir(file)
    } else if metadata.is_file() {
        Opened::File(file)
    } else {
        Opened::Special
    })
}

/// Returns `true` if there is an entry at `path`, without following a link.
pub(super) fn exists(dir: &File, path: &str) -> bool {
    fs::stat(dir, Path::new(path), FollowSymlinks::No).is_ok()
}

fn is_special(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
}
