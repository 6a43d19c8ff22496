//! Error of a SQLite file. It is the source of [`KeyValueError`], and behind the name of the file of [`StoreError`].

use std::error::Error;
use std::io;

use rusqlite::ErrorCode;
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

/// `SQLITE_IOERR_SHMSIZE`: the file beside a database could not grow, because its disk is full
/// (<https://www.sqlite.org/rescode.html#ioerr_shmsize>).
const SHARED_MEMORY_SIZE: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;

/// True if an error, or a cause of it, is a disk without space or a used-up quota.
pub fn is_full(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let mut causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.any(|error| {
        let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let sqlite = error.downcast_ref::<rusqlite::ffi::Error>();
        let is_sqlite_full = |error: &rusqlite::ffi::Error| {
            error.code == ErrorCode::DiskFull || error.extended_code == SHARED_MEMORY_SIZE
        };
        matches!(io, Some(StorageFull | QuotaExceeded)) || sqlite.is_some_and(is_sqlite_full)
    })
}

/// True if an error, or a cause of it, is that the file of a database is damaged, is none, or is one of another program or
/// version. Trying again does not help.
pub fn is_damaged(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    causes.any(|error| {
        let code = error
            .downcast_ref::<rusqlite::ffi::Error>()
            .map(|error| error.code);
        let own = error.downcast_ref::<SqliteError>();
        matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
            || matches!(own, Some(SqliteError::Version { .. } | SqliteError::Foreign))
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn damaged_file_is_known_behind_other_errors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no database at all, and long enough".repeat(100)).unwrap();
        let none = Connection::open(file.path())
            .unwrap()
            .execute("DELETE FROM x", []);
        let none = SqliteError::from(none.unwrap_err());
        assert!(is_damaged(&none) && is_damaged(&StoreError::from(none)));
        let foreign = SqliteError::Foreign;
        assert!(
            is_damaged(&foreign)
                && is_damaged(&SqliteError::Version {
                    found: 9,
                    supported: 2
                })
        );
        assert!(!is_damaged(&SqliteError::ThreadEnded) && !is_full(&foreign));
    }

    #[test]
    fn full_disk_is_known_behind_other_errors() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t(x); PRAGMA max_page_count = 2;")
            .unwrap();
        let full = connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []);
        let full = SqliteError::from(full.unwrap_err());
        let absent = SqliteError::from(connection.execute("DELETE FROM absent", []).unwrap_err());
        assert!(is_full(&full) && is_full(&StoreError::from(full)));
        // The file of a database is there, and the one beside it cannot grow.
        let beside = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_SHMSIZE);
        assert!(is_full(&SqliteError::from(rusqlite::Error::SqliteFailure(
            beside, None
        ))));
        let other = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_READ);
        assert!(!is_full(&SqliteError::from(rusqlite::Error::SqliteFailure(
            other, None
        ))));
        assert!(!is_full(&absent) && !is_full(&StoreError::from(absent)));
        for (kind, expected) in [
            (io::ErrorKind::StorageFull, true),
            (io::ErrorKind::QuotaExceeded, true),
            (io::ErrorKind::PermissionDenied, false),
        ] {
            assert_eq!(
                is_full(&StoreError::failed(SqliteError::Thread(kind.into()))),
                expected
            );
        }
    }
}
