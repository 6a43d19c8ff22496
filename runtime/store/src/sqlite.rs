//! SQLite files of this crate: private to their owner, in WAL mode, marked with an application id and a schema version.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::SqliteError;

/// Maximum wait for another process's write lock.
const BUSY: Duration = Duration::from_secs(10);

/// Maximum wait for readers before the WAL file is truncated.
const BUSY_WAL: Duration = Duration::from_millis(500);

/// Identification of a kind of database file.
pub(crate) struct Kind {
    /// Marker of the file, in `PRAGMA application_id`.
    pub(crate) application: i64,
    /// SQL that creates the tables of the first version.
    pub(crate) tables: &'static str,
    /// Changes of the tables from each version to the next. New files take the same path.
    pub(crate) upgrades: &'static [Upgrade],
}

/// Change of the tables.
pub(crate) enum Upgrade {
    Sql(&'static str),
    /// It reads what is stored in a way that SQL cannot.
    Work(fn(&Connection) -> rusqlite::Result<()>),
}

impl Kind {
    /// Schema version, in `PRAGMA user_version`. Older files are upgraded, newer ones are refused.
    pub(crate) fn version(&self) -> i64 {
        i64::try_from(self.upgrades.len()).map_or(i64::MAX, |upgrades| upgrades.saturating_add(1))
    }
}

/// Opens a file for writing and creates it if it does not exist. Committed data survives a loss of power
/// (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
///
/// # Errors
/// If the file cannot be used or is not a database of this kind.
pub(crate) fn open(path: &Path, kind: &Kind) -> Result<Connection, SqliteError> {
    let path = toolcell_fs::database(path)?;
    let mut connection = connect(&path)?;
    prepare(&mut connection, kind)?;
    Ok(connection)
}

/// Connects to a file that [`open`] has opened.
///
/// # Errors
/// If the file cannot be used.
pub(crate) fn connect(path: &Path) -> Result<Connection, SqliteError> {
    let path = toolcell_fs::database(path)?;
    // The path contains no links any more, and no unchecked file is created.
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Checks the file for damage, in time in proportion to its size.
///
/// # Errors
/// If the file is damaged or cannot be read.
pub(crate) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match finding.as_str() {
        "ok" => Ok(()),
        _ => {
            let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            Err(rusqlite::Error::SqliteFailure(corrupt, Some(finding)))
        }
    }
}

/// Removes deleted data from the file for good.
///
/// SQLite overwrites deleted data (`secure_delete`), but two places keep a copy: the WAL file until it is truncated,
/// and rarely a page whose contents were redistributed, until the file is rebuilt. The WAL file is truncated at once;
/// rebuilding takes time in proportion to the file and is done when the file is closed.
#[derive(Default)]
pub(crate) struct Removal {
    /// True if data was deleted since the file was opened.
    happened: bool,
}

impl Removal {
    /// To be called after a deletion is committed and before it is acknowledged.
    pub(crate) fn committed(&mut self, connection: &Connection) {
        self.happened = true;
        if let Err(error) = truncate_wal(connection) {
            tracing::warn!(
                "could not truncate the WAL file, deleted data stays in it until the next attempt: {error}"
            );
        }
    }

    /// To be called before the file is closed.
    pub(crate) fn closing(&self, connection: &Connection) {
        if !self.happened {
            return;
        }
        if let Err(error) = connection
            .execute_batch("VACUUM")
            .and_then(|()| truncate_wal(connection))
        {
            tracing::warn!(
                "could not rebuild the database, a copy of deleted data may be left in the file: {error}"
            );
        }
    }
}

/// Writes the WAL file into the database and empties it. If a reader is active, the WAL is left for the next time, so
/// that no writer waits.
fn truncate_wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_WAL)?;
    // The first column is 1 if a reader kept it from being truncated, which is no error of SQLite.
    let is_kept = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    connection.busy_timeout(BUSY)?;
    match is_kept? {
        false => Ok(()),
        true => Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            Some("another program reads the database".into()),
        )),
    }
}

/// Initialises the file, or checks that it is a database of this kind.
fn prepare(connection: &mut Connection, kind: &Kind) -> Result<(), SqliteError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(SqliteError::NoWal { mode });
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Deleted data is overwritten (<https://www.sqlite.org/pragma.html#pragma_secure_delete>).
    connection.pragma_update(None, "secure_delete", true)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pragma = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (version, application) = (pragma("user_version")?, pragma("application_id")?);
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let done = if (application, version, tables) == (0, 0, 0) {
        transaction.execute_batch(kind.tables)?;
        transaction.pragma_update(None, "application_id", kind.application)?;
        Some(1)
    } else if application == kind.application {
        Some(version).filter(|version| (1..=kind.version()).contains(version))
    } else {
        return Err(SqliteError::Foreign);
    };
    let done = done.and_then(|done| usize::try_from(done).ok());
    let done = done.ok_or(SqliteError::Version {
        found: version,
        supported: kind.version(),
    })?;
    for upgrade in kind.upgrades.iter().skip(done - 1) {
        match upgrade {
            Upgrade::Sql(sql) => transaction.execute_batch(sql)?,
            Upgrade::Work(work) => work(&transaction)?,
        }
    }
    if version != kind.version() {
        transaction.pragma_update(None, "user_version", kind.version())?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_that_keeps_deleted_data_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Connection::open(dir.path().join("x.db")).unwrap();
        let (writer, reader) = (open(), open());
        writer
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
            .unwrap();
        let read = "BEGIN; SELECT * FROM t";
        reader.execute_batch(read).unwrap();
        writer.execute_batch("DELETE FROM t").unwrap();
        let error = truncate_wal(&writer).unwrap_err();
        assert!(error.to_string().contains("another program reads"), "{error}");
        reader.execute_batch("COMMIT").unwrap();
        truncate_wal(&writer).unwrap();
    }
}
