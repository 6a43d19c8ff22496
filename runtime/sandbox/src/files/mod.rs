//! Files of guests: the directories of a policy, and a guard before every operation on them.
//!
//! A guest uses standard `wasi:filesystem`. `FilesView` stands where the implementation of `wasmtime-wasi` would stand,
//! checks each operation and hands it on; opening it does itself. What the two promise together:
//!
//! - No path leads out of a granted directory: not by `..`, not absolute, not by a symbolic link, whoever made it
//!   (a walk by components, none of which follows a link; `openat2` with `RESOLVE_BENEATH` for the last one on Linux).
//! - What is denied (`denied`) is neither opened nor changed nor moved, by whatever path it is reached (`walk`); its name
//!   is listed. The same holds for changes of files that start programs or configure Toolcell.
//! - No operation makes a symbolic link lead out, for other programs, that did not before (`links`).
//! - `read`, `write` (change what exists), `create` and `delete` are rights of their own (`rights`).
//! - Nothing but regular files and directories is opened; a FIFO, socket or device is refused, and the attempt does
//!   not block.
//! - A call writes no more bytes and makes no more files than its limits say (`quota`), and holds at most
//!   128 of the host's descriptors.
//! - A directory is listed entry by entry (`listing`), a file read and written through no buffer of the host (`stream`).
//! - With an overlay, all changes go to a directory beside the granted one (`overlay`). What they take of its files is read
//!   on a thread of its own, in pieces, and ends with the call (`layered`).
//! - What was opened, changed and refused stands in the receipt, by the path that the guest sees. Paths of the host
//!   appear in the grant that a denial proposes to people, and nowhere that a guest can read.

mod denied;
mod guard;
mod layered;
mod links;
mod listing;
mod open;
pub mod overlay;
mod preopen;
mod quota;
mod rights;
mod stream;
#[cfg(test)]
mod tests;
mod view;
mod walk;

pub(crate) use preopen::Files;
pub(crate) use view::{FilesView, add_to_linker};
#[cfg(test)]
use view::{MAX_OPEN, MAX_PATH};
