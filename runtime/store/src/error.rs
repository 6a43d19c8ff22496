//! Error of a SQLite file. It is the source of [`StoreError`] and [`KeyValueError`].

use std::io;

use toolcell_core::{KeyValueError, StoreError};

/// Error of a SQLite file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The file could not be opened, for example because of a link in its path.
    #[error(transparent)]
    File(#[from] toolcell_fs::FileError),
    /// SQLite failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The file system does not support WAL mode, which needs shared memory.
    #[error("the file system does not support WAL mode (the mode stays `{mode}`)")]
    NoWal {
        /// Journal mode of the file.
        mode: String,
    },
    /// Another version of Toolcell created the file.
    #[error("the schema has version {found}, and this program supports {supported}")]
    Version {
        /// Version of the file.
        found: i64,
        /// Version that this program supports.
        supported: i64,
    },
    /// Another program created the file.
    #[error("it is a database of another program")]
    Foreign,
    /// A thread of the file could not be started.
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
    /// The thread of the file has ended, which is a defect of this crate.
    #[error("the thread of the database has ended")]
    ThreadEnded,
}

impl From<SqliteError> for StoreError {
    fn from(error: SqliteError) -> Self {
        Self::failed(error)
    }
}

impl From<SqliteError> for KeyValueError {
    fn from(error: SqliteError) -> Self {
        Self::failed(error)
    }
}
