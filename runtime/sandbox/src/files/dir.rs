//! Opening of directories, and their descriptors for the guest.

use std::fs::File;

use rustix::fs::OFlags;
use wasmtime_wasi::filesystem::Dir;
use wasmtime_wasi::{FsPerms, OpenMode};

/// Flags for opening a directory to walk through.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const ENTER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) const ENTER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Files are read and written on the thread of the call: they are regular files, which respond in microseconds, and a
/// thread switch costs more than a read from the page cache. Operations that wait for a disk (`sync`) run elsewhere.
pub(super) const ON_THIS_THREAD: bool = true;

/// Returns a descriptor for `wasmtime-wasi`, whose own check knows only whether anything may change.
pub(super) fn dir_descriptor(dir: File, can_change: bool) -> Dir {
    let (perms, mode) = if can_change {
        (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE)
    } else {
        (FsPerms::ReadOnly, OpenMode::READ)
    };
    Dir::new(dir, perms, mode, ON_THIS_THREAD)
}
