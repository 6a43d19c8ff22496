//! Session store in SQLite: an append-only journal.
//!
//! Writes of many sessions are committed together (`threads.rs`). The database is in WAL mode with `synchronous =
//! FULL`: acknowledged data survives a loss of power (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
//!
//! Forks share the entries of their parent session; nothing is copied.

mod read;
mod schema;
mod totals;
mod write;

use std::path::Path;

use toolcell_core::store::SessionInfo;
use toolcell_core::{BoxFuture, Event, SessionStore, StoreError};

use self::totals::Totals;
use self::write::Op;
use crate::SqliteError;
use crate::threads::Threads;

/// Session store in one SQLite file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use toolcell_core::SessionStore as _;
/// use toolcell_store::SqliteSessions;
///
/// # let dir = tempfile::tempdir()?;
/// let store = SqliteSessions::open(dir.path().join("sessions.db"))?;
/// assert!(store.list().await?.is_empty());
/// # Ok(()) }
/// ```
pub struct SqliteSessions(Threads<Op>);

impl SqliteSessions {
    /// Opens the file, or creates it. A new file is accessible to its owner only.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a session store, or was created by another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteError> {
        Threads::start("toolcell-journal", path.as_ref(), &schema::SESSIONS).map(Self)
    }

    /// Checks the file for damage, in time in proportion to its size.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.0
            .read(|connection| {
                let sql = "PRAGMA quick_check(1)";
                let finding: String = connection.query_row(sql, [], |row| row.get(0)).map_err(failed)?;
                match finding.as_str() {
                    "ok" => Ok(()),
                    _ => {
                        let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
                        Err(failed(rusqlite::Error::SqliteFailure(corrupt, Some(finding))))
                    }
                }
            })
            .await
    }

    fn acknowledge(&self, op: Op) -> BoxFuture<'_, Result<(), StoreError>> {
        let written = self.0.write(op);
        Box::pin(async move { written.await.map(drop) })
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    SqliteError::Sqlite(error).into()
}

impl SessionStore for SqliteSessions {
    fn append<'a>(
        &'a self,
        session: &'a str,
        at: u64,
        events: Vec<Event>,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        let mut entries = Vec::with_capacity(events.len());
        let mut totals = Totals::default();
        for event in events.iter().filter(|event| !event.is_transient()) {
            match serde_json::to_string(event) {
                Ok(entry) => {
                    totals.count(event, entry.len());
                    entries.push(entry);
                }
                Err(error) => return Box::pin(std::future::ready(Err(StoreError::failed(error)))),
            }
        }
        if entries.is_empty() {
            return Box::pin(std::future::ready(Ok(at)));
        }
        self.0.write(Op::Append {
            session: session.to_owned(),
            at,
            title: schema::title(&events),
            entries,
            totals,
        })
    }

    fn load<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        let id = session.to_owned();
        self.0.read(move |connection| read::load(connection, &id))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, StoreError>> {
        self.0.read(|connection| read::list(connection))
    }

    fn fork<'a>(
        &'a self,
        from: &'a str,
        to: &'a str,
        events: Option<u64>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.acknowledge(Op::Fork {
            from: from.to_owned(),
            to: to.to_owned(),
            events,
        })
    }

    fn rename<'a>(
        &'a self,
        session: &'a str,
        name: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.acknowledge(Op::Rename {
            session: session.to_owned(),
            name: name.map(str::to_owned),
        })
    }

    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.acknowledge(Op::Delete {
            session: session.to_owned(),
        })
    }

    fn keep_result<'a>(
        &'a self,
        session: &'a str,
        call: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.acknowledge(Op::Keep {
            session: session.to_owned(),
            call: call.to_owned(),
            text: text.to_owned(),
        })
    }

    fn kept_result<'a>(
        &'a self,
        session: &'a str,
        call: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let (session, call) = (session.to_owned(), call.to_owned());
        self.0
            .read(move |connection| read::kept(connection, &session, &call))
    }
}

impl std::fmt::Debug for SqliteSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteSessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
