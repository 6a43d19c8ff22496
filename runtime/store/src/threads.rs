//! The two threads of a SQLite file: one writes, the other one reads.
//!
//! Group commit: the writer commits all waiting operations in one transaction with a savepoint for each, so that each is
//! atomic, many share one `fsync`, and nothing is acknowledged before it is committed.

use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;
use toolcell_core::BoxFuture;

use crate::SqliteError;
use crate::sqlite::{self, Kind, Removal};

/// Write operation.
pub(crate) trait Operation: Send + 'static {
    /// Error of an operation. If a transaction fails, each of its operations returns a clone of the error.
    type Error: From<SqliteError> + Clone + Send + 'static;

    /// Maximum number of operations in one transaction.
    const MAX_GROUP: usize;

    /// Executes the operation in its savepoint. The result is returned to the caller after the commit.
    fn perform(&self, transaction: &Connection) -> Result<u64, Self::Error>;

    /// True if the operation deletes data, which must then be removed from the file for good.
    fn removes(&self) -> bool;
}

/// Handle of the two threads. Dropping it commits all queued operations.
pub(crate) struct Threads<O: Operation> {
    writer: Option<mpsc::Sender<Write<O>>>,
    reader: Option<mpsc::Sender<Read>>,
    threads: Vec<JoinHandle<()>>,
}

/// Operation with the channel for its result.
struct Write<O: Operation> {
    operation: O,
    reply: oneshot::Sender<Result<u64, O::Error>>,
}

type Read = Box<dyn FnOnce(&mut Connection) + Send>;

impl<O: Operation> Threads<O> {
    /// Opens or creates the file and starts its threads.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a database of this kind, or was created by another version.
    pub(crate) fn start(name: &str, path: &Path, kind: &Kind) -> Result<Self, SqliteError> {
        let writing = sqlite::open(path, kind)?;
        let mut reading = sqlite::connect(path)?;
        let (writer, writes) = mpsc::channel();
        let (reader, reads) = mpsc::channel::<Read>();
        let threads = vec![
            spawn(name.to_owned(), move || write(writing, &writes))?,
            spawn(format!("{name}-read"), move || {
                while let Ok(read) = reads.recv() {
                    read(&mut reading);
                }
            })?,
        ];
        Ok(Self {
            writer: Some(writer),
            reader: Some(reader),
            threads,
        })
    }

    /// Queues an operation immediately; the future waits until it is committed.
    pub(crate) fn write(&self, operation: O) -> BoxFuture<'static, Result<u64, O::Error>> {
        let (reply, answer) = oneshot::channel();
        let sent = (self.writer.as_ref()).map(|writer| writer.send(Write { operation, reply }));
        let is_sent = matches!(sent, Some(Ok(())));
        Box::pin(outcome(is_sent, answer))
    }

    /// Runs a query on the reader thread, concurrently with writes.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Connection) -> Result<T, O::Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, O::Error>> {
        let (reply, answer) = oneshot::channel();
        let read: Read = Box::new(move |connection| {
            // A query that was cancelled while it waited is not executed.
            if !reply.is_closed() {
                let _ = reply.send(read(connection));
            }
        });
        let sent = self.reader.as_ref().map(|reader| reader.send(read));
        let is_sent = matches!(sent, Some(Ok(())));
        Box::pin(outcome(is_sent, answer))
    }
}

async fn outcome<T, E: From<SqliteError>>(
    is_sent: bool,
    answer: oneshot::Receiver<Result<T, E>>,
) -> Result<T, E> {
    if !is_sent {
        return Err(SqliteError::ThreadEnded.into());
    }
    answer
        .await
        .unwrap_or_else(|_| Err(SqliteError::ThreadEnded.into()))
}

impl<O: Operation> Drop for Threads<O> {
    fn drop(&mut self) {
        self.writer.take();
        self.reader.take();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SqliteError> {
    std::thread::Builder::new()
        .name(name)
        .spawn(work)
        .map_err(SqliteError::Thread)
}

/// Writes until all senders are dropped.
fn write<O: Operation>(mut connection: Connection, writes: &mpsc::Receiver<Write<O>>) {
    let mut removal = Removal::default();
    while let Ok(first) = writes.recv() {
        let mut group = vec![first];
        while group.len() < O::MAX_GROUP
            && let Ok(next) = writes.try_recv()
        {
            group.push(next);
        }
        commit(&mut connection, group, &mut removal);
    }
    removal.closing(&connection);
}

fn commit<O: Operation>(connection: &mut Connection, group: Vec<Write<O>>, removal: &mut Removal) {
    let results = transact(connection, &group).unwrap_or_else(|error| {
        let error: O::Error = SqliteError::from(error).into();
        group.iter().map(|_| Err(error.clone())).collect()
    });
    let mut done = group.iter().zip(&results);
    if done.any(|(write, result)| write.operation.removes() && result.is_ok()) {
        removal.committed(connection);
    }
    for (write, result) in group.into_iter().zip(results) {
        // The caller may have stopped waiting; the operation is committed in any case.
        let _ = write.reply.send(result);
    }
}

fn transact<O: Operation>(
    connection: &mut Connection,
    group: &[Write<O>],
) -> rusqlite::Result<Vec<Result<u64, O::Error>>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut results = Vec::with_capacity(group.len());
    for write in group {
        // A failed operation has no effect: its savepoint is rolled back when dropped.
        let savepoint = transaction.savepoint()?;
        let mut result = write.operation.perform(&savepoint);
        if result.is_ok()
            && let Err(error) = savepoint.commit()
        {
            result = Err(SqliteError::from(error).into());
        }
        results.push(result);
    }
    transaction.commit()?;
    Ok(results)
}
