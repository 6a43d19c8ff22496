//! Files of guests: the directories of a policy, and a guard around every operation on them.
//!
//! A guest uses standard `wasi:filesystem`. `FilesView` replaces the implementation of `wasmtime-wasi`, checks each
//! operation and delegates it; it opens files itself. It guarantees:
//!
//! - No path leads out of a granted directory: not by `..`, an absolute path, or a symbolic link, of any origin
//!   (paths are walked by components without following links; on Linux the last one is opened by `openat2` with
//!   `RESOLVE_BENEATH`).
//! - Denied files (`denied`) are neither opened nor changed nor moved, by any path (`walk`); their names are listed.
//!   The same holds for changes of files that start programs or configure Toolcell, including Git
//!   directories of any name (`git`).
//! - No operation makes a symbolic link lead out, for other programs, that did not before (`links`).
//! - `read`, `write` (change existing files), `create` and `delete` are separate rights (`rights`).
//! - Only regular files and directories are opened; a FIFO, socket or device is refused, without blocking.
//! - A call writes no more bytes and creates no more files than its limits allow (`quota`), and holds at most 128 of
//!   the host's descriptors.
//! - Directories are listed entry by entry (`listing`), and files are read and written without host buffers (`stream`).
//! - With an overlay, all changes go to a separate directory (`overlay`). Files are copied up on a separate thread, in
//!   pieces, which ends with the call (`layered`).
//! - The receipt lists all files opened, changed and denied, by guest path. Host paths appear only in the grant that a
//!   denial suggests to the user, and nowhere that a guest can read.

mod denied;
mod dir;
mod guard;
mod layered;
mod links;
mod listing;
mod open;
mod open_files;
pub mod overlay;
mod preopen;
mod quota;
mod rights;
mod stream;
#[cfg(test)]
mod tests;
mod view;
mod walk;

pub(crate) use open_files::FilePool;
pub(crate) use preopen::{Files, NotOpened};
pub(crate) use view::{FilesView, add_to_linker};
#[cfg(test)]
use {open_files::MAX_OPEN, view::MAX_PATH};
