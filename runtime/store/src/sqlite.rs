//! SQLite files of this crate: private to their owner, in WAL mode, marked as ours, of one version.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

/// How long a writer waits for one of another process.
const BUSY: Duration = Duration::from_secs(10);

/// How long truncating the WAL file waits for readers.
const BUSY_WAL: Duration = Duration::from_millis(500);

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
    let path = toolcell_fs::database(path).map_err(|error| chain(&error))?;
    let mut connection = connect(&path)?;
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
    let path = toolcell_fs::database(path).map_err(|error| chain(&error))?;
    let open = || {
        // Nothing on the path is a link any more, and nothing is made that was not checked.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| chain(&error))
}

/// Sees to it that what was removed from a file is not left in it.
///
/// SQLite overwrites what is removed (`secure_delete`), and two places keep a copy: the WAL file, until it is truncated, and
/// rarely a page whose contents were distributed anew, until the file is rebuilt. The first is done at once, the second, which
/// takes time in proportion to the file, when the file is closed.
#[derive(Default)]
pub(crate) struct Removal {
    /// Whether something was removed since the file was opened.
    happened: bool,
}

impl Removal {
    /// After something was removed and before that is acknowledged.
    pub(crate) fn committed(&mut self, connection: &Connection) {
        self.happened = true;
        if let Err(error) = truncate_wal(connection) {
            tracing::warn!("what was removed is in the WAL file until it is next truncated: {error}");
        }
    }

    /// Before the file is closed.
    pub(crate) fn closing(&self, connection: &Connection) {
        if !self.happened {
            return;
        }
        if let Err(error) = connection
            .execute_batch("VACUUM")
            .and_then(|()| truncate_wal(connection))
        {
            tracing::warn!("a copy of what was removed may be left in the file: {error}");
        }
    }
}

/// Writes the WAL file into the database, and makes it empty. Where somebody reads at the moment, it is left for the next
/// time: no writer waits for that.
fn truncate_wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_WAL)?;
    let truncated = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(BUSY)?;
    truncated
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

/// Sets the file up, or checks that it is one of ours; says why it is not.
fn prepare(connection: &mut Connection, kind: &Kind) -> rusqlite::Result<Option<String>> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Ok(Some(format!(
            "the file system does not allow WAL mode (it stays `{mode}`)"
        )));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is removed is overwritten (<https://www.sqlite.org/pragma.html#pragma_secure_delete>).
    connection.pragma_update(None, "secure_delete", true)?;
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
