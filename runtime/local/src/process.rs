//! Processes of this program.

use std::ffi::OsString;
use std::path::PathBuf;

/// Command that starts a process which calls one function of this crate: usually this same program with a hidden argument. It must be
/// built from the same version of this crate. Its environment is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub args: Vec<OsString>,
}
