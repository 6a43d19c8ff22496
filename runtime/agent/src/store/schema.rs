//! The file: its tables, its settings, its version.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::{Event, StoreError};

use super::failed;

/// Version of the tables, in `PRAGMA user_version`. A file of a newer one is refused.
const VERSION: i64 = 1;

/// Marks the file as ours, in `PRAGMA application_id`: "tcel".
const APPLICATION: i64 = 0x7463_656c;

/// How long a writer waits for one of another process.
const BUSY: Duration = Duration::from_secs(10);

/// Characters of a title.
const TITLE_CHARS: usize = 80;

/// `base` is the number of entries that a fork shares with its parent; its own are numbered from there. A session that was
/// removed while forks still share its entries is `hidden`, and has no name any more.
const TABLES: &str = "
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT UNIQUE,
    title TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    parent INTEGER REFERENCES sessions (key),
    base INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL
);
CREATE TABLE entries (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE results (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    call TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, call)
) WITHOUT ROWID;
CREATE INDEX forks ON sessions (parent);
";

/// A session as the tables have it.
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) parent: Option<i64>,
    pub(super) base: i64,
    pub(super) next: i64,
}

/// Makes a new file readable for its owner alone, before anything is in it.
pub(super) fn make_private(path: &Path) -> Result<(), StoreError> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop).map_err(|error| StoreError::Failed {
        message: format!("`{}` cannot be opened: {error}", path.display()),
    })
}

pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let open = || {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| failed(&error))
}

/// Sets the file up, or checks that it is one of ours.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let work = |connection: &mut Connection| -> rusqlite::Result<Option<String>> {
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Ok(Some(format!(
                "the file system does not allow WAL mode (it stays `{mode}`)"
            )));
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let pragma = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (version, application) = (pragma("user_version")?, pragma("application_id")?);
        let tables: i64 =
            transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        match (application, version) {
            (APPLICATION, VERSION) => {}
            (APPLICATION, newer) => {
                return Ok(Some(format!(
                    "it has version {newer} of the tables, and this program knows {VERSION}"
                )));
            }
            (0, 0) if tables == 0 => {
                transaction.execute_batch(TABLES)?;
                transaction.pragma_update(None, "application_id", APPLICATION)?;
                transaction.pragma_update(None, "user_version", VERSION)?;
            }
            _ => return Ok(Some("it is a database of another program".into())),
        }
        transaction.commit()?;
        Ok(None)
    };
    match work(connection) {
        Ok(None) => Ok(()),
        Ok(Some(message)) => Err(StoreError::Failed { message }),
        Err(error) => Err(failed(&error)),
    }
}

/// The row of a session.
pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Row>> {
    let sql = "SELECT key, parent, base, next FROM sessions WHERE id = ?1";
    connection.prepare_cached(sql)?.query_row([id], row_of).optional()
}

pub(super) fn find_key(connection: &Connection, key: i64) -> rusqlite::Result<Option<Row>> {
    let sql = "SELECT key, parent, base, next FROM sessions WHERE key = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([key], row_of)
        .optional()
}

fn row_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        key: row.get(0)?,
        parent: row.get(1)?,
        base: row.get(2)?,
        next: row.get(3)?,
    })
}

/// Removes a session and every hidden ancestor that nobody shares any more.
pub(super) fn remove(transaction: &Connection, row: &Row) -> rusqlite::Result<()> {
    let mut current = Some((row.key, row.parent));
    while let Some((key, parent)) = current {
        let forks: i64 =
            transaction.query_row("SELECT count(*) FROM sessions WHERE parent = ?1", [key], |row| {
                row.get(0)
            })?;
        if forks > 0 {
            transaction.execute("UPDATE sessions SET id = NULL WHERE key = ?1", [key])?;
            return Ok(());
        }
        transaction.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
        current = match parent {
            Some(parent) => transaction
                .query_row(
                    "SELECT key, parent FROM sessions WHERE key = ?1 AND id IS NULL",
                    [parent],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?,
            None => None,
        };
    }
    Ok(())
}

/// First words of the first message.
pub(super) fn title(events: &[Event]) -> String {
    let text = events.iter().find_map(|event| match event {
        Event::TurnStarted { message, .. } => Some(message.text()),
        _ => None,
    });
    let text = text.unwrap_or_default();
    let mut title = String::new();
    for word in text.split_whitespace() {
        if !title.is_empty() {
            title.push(' ');
        }
        title.extend(word.chars().filter(|c| !c.is_control()));
        if title.chars().count() >= TITLE_CHARS {
            break;
        }
    }
    title.chars().take(TITLE_CHARS).collect()
}
