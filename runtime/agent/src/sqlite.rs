//! SQLite files of this crate: private to their owner, in WAL mode, marked as ours, of one version.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

/// How long a writer waits for one of another process.
const BUSY: Duration = Duration::from_secs(10);

/// What a file holds.
pub(crate) struct Kind {
    /// Marks the file, in `PRAGMA application_id`.
    pub(crate) application: i64,
    /// Version of the tables, in `PRAGMA user_version`. A file of a newer one is refused.
    pub(crate) version: i64,
    /// Makes the tables.
    pub(crate) tables: &'static str,
}

/// Opens a file for writing, and makes it where it does not exist. What is committed survives a loss of power
/// (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
///
/// # Errors
/// The chain of causes, when the file cannot be used or holds something else.
pub(crate) fn open(path: &Path, kind: &Kind) -> Result<Connection, String> {
    make_private(path)?;
    let mut connection = connect(path)?;
    match prepare(&mut connection, kind) {
        Ok(None) => Ok(connection),
        Ok(Some(message)) => Err(message),
        Err(error) => Err(chain(&error)),
    }
}

/// Connects to a file that [`open`] has opened.
///
/// # Errors
/// The chain of causes, when it cannot be used.
pub(crate) fn connect(path: &Path) -> Result<Connection, String> {
    let open = || {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| chain(&error))
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}

/// Makes a new file readable for its owner alone, before anything is in it.
fn make_private(path: &Path) -> Result<(), String> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    (options.open(path).map(drop)).map_err(|error| format!("`{}` cannot be opened: {error}", path.display()))
}

/// Sets the file up, or checks that it is one of ours; says why it is not.
fn prepare(connection: &mut Connection, kind: &Kind) -> rusqlite::Result<Option<String>> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Ok(Some(format!(
            "the file system does not allow WAL mode (it stays `{mode}`)"
        )));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pragma = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (version, application) = (pragma("user_version")?, pragma("application_id")?);
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == kind.application && version == kind.version {
    } else if application == kind.application {
        return Ok(Some(format!(
            "it has version {version} of the tables, and this program knows {}",
            kind.version
        )));
    } else if (application, version, tables) == (0, 0, 0) {
        transaction.execute_batch(kind.tables)?;
        transaction.pragma_update(None, "application_id", kind.application)?;
        transaction.pragma_update(None, "user_version", kind.version)?;
    } else {
        return Ok(Some("it is a database of another program".into()));
    }
    transaction.commit()?;
    Ok(None)
}
