//! Session store in SQLite: an append-only journal.
//!
//! One thread writes, another one reads. The writer commits all waiting operations in one transaction, so that many
//! sessions share one `fsync`. The database is in WAL mode with `synchronous = FULL`: acknowledged data survives a loss
//! of power (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
//!
//! Forks share the entries of their parent session; nothing is copied.

mod read;
mod schema;
mod write;

use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;
use toolcell_core::store::SessionInfo;
use toolcell_core::{BoxFuture, Event, SessionStore, StoreError};

use self::write::{Op, Write};
use crate::sqlite;

/// Session store in one SQLite file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use toolcell_core::SessionStore as _;
/// use toolcell_store::SqliteStore;
///
/// # let dir = tempfile::tempdir()?;
/// let store = SqliteStore::open(dir.path().join("sessions.db"))?;
/// assert!(store.list().await?.is_empty());
/// # Ok(()) }
/// ```
pub struct SqliteStore {
    writer: Option<mpsc::Sender<Write>>,
    reader: Option<mpsc::Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

impl SqliteStore {
    /// Opens the file, or creates it. On Unix a new file is accessible to its owner only.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, is not a session store, or was created by a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let fail = |message| StoreError::Failed { message };
        let writing = sqlite::open(path, &schema::SESSIONS).map_err(fail)?;
        let reading = sqlite::connect(path).map_err(fail)?;
        let (writer, writes) = mpsc::channel();
        let (reader, reads) = mpsc::channel::<Read>();
        let threads = vec![
            spawn("toolcell-journal", move || write::run(writing, &writes))?,
            spawn("toolcell-journal-read", move || {
                while let Ok(read) = reads.recv() {
                    read(&reading);
                }
            })?,
        ];
        Ok(Self {
            writer: Some(writer),
            reader: Some(reader),
            threads,
        })
    }

    fn write(&self, op: Op) -> BoxFuture<'_, Result<u64, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let sent = self
            .writer
            .as_ref()
            .map(|writer| writer.send(Write { op, reply }));
        Box::pin(async move {
            if !matches!(sent, Some(Ok(()))) {
                return Err(gone());
            }
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn acknowledge(&self, op: Op) -> BoxFuture<'_, Result<(), StoreError>> {
        let written = self.write(op);
        Box::pin(async move { written.await.map(drop) })
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let read: Read = Box::new(move |connection| {
            // The caller may have stopped waiting.
            let _ = reply.send(read(connection));
        });
        let sent = self.reader.as_ref().map(|reader| reader.send(read));
        Box::pin(async move {
            if !matches!(sent, Some(Ok(()))) {
                return Err(gone());
            }
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map_err(|error| failed(&error))
}

fn gone() -> StoreError {
    StoreError::Failed {
        message: "its thread has ended".into(),
    }
}

pub(crate) fn failed(error: &dyn std::error::Error) -> StoreError {
    StoreError::Failed {
        message: sqlite::chain(error),
    }
}

impl SessionStore for SqliteStore {
    fn append<'a>(
        &'a self,
        session: &'a str,
        at: u64,
        events: Vec<Event>,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        let mut entries = Vec::with_capacity(events.len());
        for event in events.iter().filter(|event| !event.is_transient()) {
            match serde_json::to_string(event) {
                Ok(entry) => entries.push(entry),
                Err(error) => return Box::pin(std::future::ready(Err(failed(&error)))),
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
        })
    }

    fn load<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        let id = session.to_owned();
        self.read(move |connection| read::load(connection, &id))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, StoreError>> {
        self.read(read::list)
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

impl Drop for SqliteStore {
    /// Writes the operations that are still queued.
    fn drop(&mut self) {
        self.writer.take();
        self.reader.take();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
