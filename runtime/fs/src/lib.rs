//! Access to the files that Toolcell itself reads and writes: configuration, databases, logs, approvals, the lock.
//!
//! A path can lead elsewhere than expected. A cloned repository may contain symbolic links, another user may create a
//! pipe where a file is expected, a failed copy may leave a device. Every file is therefore opened without blocking,
//! checked after opening, and refused unless it is a regular file of a trusted owner with one name ([`open`], [`read`]). Files
//! are replaced atomically and never written through a link ([`replace`]), appended to only if they belong to the user
//! ([`append`]), and kept in directories with owner-only permissions ([`private_dir`]). Output for the user goes to new files
//! only ([`OutputDirectory`]).
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
mod output;
mod read;
mod rules;
mod write;

pub use database::database;
pub use directory::private_dir;
pub use error::{FileError, Refusal};
pub use output::OutputDirectory;
pub use read::{check, open, read, read_text};
pub use rules::{Owner, Rules};
pub use write::{
    PRIVATE, SHARED, UNFINISHED_AGE, append, is_unfinished, remove_if_same, remove_unfinished, replace,
};
