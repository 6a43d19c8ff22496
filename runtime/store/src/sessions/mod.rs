//! Session store in SQLite: an append-only journal.
//!
//! Writes of many sessions are committed together (`threads.rs`). The database is in WAL mode with `synchronous =
//! FULL`: acknowledged data survives a loss of power (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
//!
//! Forks share the entries of their parent session; nothing is copied.

mod daily;
mod index;
mod read;
mod schema;
mod totals;
mod write;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use toolcell_core::store::{Entry, SessionInfo};
use toolcell_core::{BoxFuture, Event, SessionStore, SharedError, StoreError};

pub use self::daily::{DailyUse, TurnUse};
pub use self::index::without_case;
use self::totals::Totals;
use self::write::{NewEntry, Op};
use crate::SqliteError;
use crate::sqlite;
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
pub struct SqliteSessions {
    threads: Threads<Op>,
    path: Arc<Path>,
}

/// Result of [`SqliteSessions::search`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Search<T> {
    /// Matching entries, oldest first.
    pub found: Vec<T>,
    /// Number of entries that cannot be read.
    pub unreadable: u64,
}

impl<T> Default for Search<T> {
    fn default() -> Self {
        Self {
            found: Vec::new(),
            unreadable: 0,
        }
    }
}

/// File of a failure.
#[derive(Debug, thiserror::Error)]
#[error("the file is `{}`", path.display())]
struct InFile {
    path: Arc<Path>,
    source: SharedError,
}

impl SqliteSessions {
    /// Opens the file, or creates it. A new file is accessible to its owner only.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a session store, or was created by another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteError> {
        let path = path.as_ref();
        let threads = Threads::start("toolcell-journal", path, &schema::SESSIONS)?;
        Ok(Self {
            threads,
            path: path.into(),
        })
    }

    /// Searches the messages of a session: passes the events `turn_started` and `step_finished` to `found`, one at a time and
    /// oldest first, until it has returned `most` values. Entries that cannot be read are passed over and counted.
    ///
    /// # Errors
    /// If there is no such session, or the file cannot be read.
    pub async fn search<T: Send + 'static>(
        &self,
        session: &str,
        most: usize,
        found: impl Fn(&Event) -> Option<T> + Send + 'static,
    ) -> Result<Search<T>, StoreError> {
        let id = session.to_owned();
        self.read(move |connection| read::search(connection, &id, most, found))
            .await
    }

    /// Returns the sessions that have a message with all these words in any case, also as parts of others, for [`Self::search`].
    /// An index finds words of three letters and more.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn candidates(&self, words: &[String]) -> Result<HashSet<String>, StoreError> {
        let words = words.to_vec();
        self.read(move |connection| index::candidates(connection, &words))
            .await
    }

    /// Counts the use of a conversation that is not stored, for [`Self::daily_use`]. It is kept for 366 days.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn count_unsaved(&self, agent: &str, owner: &str, used: TurnUse) -> Result<(), StoreError> {
        let (agent, owner) = (agent.to_owned(), owner.to_owned());
        self.acknowledge(Op::Count { agent, owner, used }).await
    }

    /// Returns the use of the finished turns and calls of all sessions from a time on, and that of conversations that are not stored,
    /// by day of UTC and agent, the oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn daily_use(&self, from_ms: u64) -> Result<Vec<DailyUse>, StoreError> {
        self.read(move |connection| daily::of_all(connection, from_ms))
            .await
    }

    /// Checks the file for damage, in time in proportion to its size.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.read(|connection| sqlite::check(connection).map_err(failed))
            .await
    }

    /// Runs a query. A failure names the file.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        self.naming_file(self.threads.read(read))
    }

    fn write(&self, op: Op) -> BoxFuture<'static, Result<u64, StoreError>> {
        self.naming_file(self.threads.write(op))
    }

    fn naming_file<T: Send + 'static>(
        &self,
        done: BoxFuture<'static, Result<T, StoreError>>,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let path = self.path.clone();
        Box::pin(async move {
            done.await.map_err(|error| match error {
                StoreError::Failed { source } => StoreError::failed(InFile { path, source }),
                other => other,
            })
        })
    }

    fn acknowledge(&self, op: Op) -> BoxFuture<'_, Result<(), StoreError>> {
        let written = self.write(op);
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
                Ok(json) => {
                    totals.count(event, json.len());
                    entries.push(NewEntry {
                        text: index::text_of(event),
                        json,
                    });
                }
                Err(error) => return Box::pin(std::future::ready(Err(StoreError::failed(error)))),
            }
        }
        if entries.is_empty() {
            return Box::pin(std::future::ready(Ok(at)));
        }
        self.write(Op::Append {
            session: session.to_owned(),
            at,
            title: schema::title(&events),
            entries,
            totals,
        })
    }

    fn create<'a>(
        &'a self,
        session: &'a str,
        agent: &'a str,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.acknowledge(Op::Create {
            session: session.to_owned(),
            agent: agent.to_owned(),
            owner: owner.to_owned(),
        })
    }

    fn info<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<SessionInfo, StoreError>> {
        let id = session.to_owned();
        self.read(move |connection| read::info(connection, &id))
    }

    fn entries<'a>(
        &'a self,
        session: &'a str,
        after: u64,
        most: usize,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        let id = session.to_owned();
        self.read(move |connection| read::page(connection, &id, after, most, max_bytes))
    }

    fn load<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        let id = session.to_owned();
        self.read(move |connection| read::load(connection, &id))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, StoreError>> {
        self.read(|connection| read::list(connection))
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
        self.read(move |connection| read::kept(connection, &session, &call))
    }
}

impl std::fmt::Debug for SqliteSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteSessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
