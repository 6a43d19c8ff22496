//! Access to the files that Toolcell itself reads and writes: configuration, databases, logs, approvals, the lock.
//!
//! A path can lead elsewhere than it says. A cloned repository brings symbolic links, another user of the machine puts a
//! pipe where a file is expected, a copy of a program leaves a device behind. Every file is therefore opened without
//! waiting, asked what it is once it is open, and refused where it is not a regular file of an owner who may write it
//! ([`open`], [`read`]). Files are replaced as a whole and never written through a link ([`replace`]), appended to only
//! where they are the user's own ([`append`]), and kept in directories for their owner alone ([`private_dir`]).
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use toolcell_fs::Rules;
//!
//! # let dir = tempfile::tempdir()?;
//! let dir = toolcell_fs::private_dir(&dir.path().join("state"))?;
//! let file = dir.join("approvals.json");
//! toolcell_fs::replace(&file, b"[]", toolcell_fs::PRIVATE)?;
//! assert_eq!(toolcell_fs::read(&file, &Rules::own(1 << 20))?, b"[]");
//! # Ok(()) }
//! ```

mod database;
mod directory;
mod error;
mod read;
mod rules;
mod write;

pub use database::database;
pub use directory::private_dir;
pub use error::{FileError, Refusal};
pub use read::{check, open, read, read_text};
pub use rules::{Owner, Rules};
pub use write::{PRIVATE, SHARED, append, remove_if_same, replace};
