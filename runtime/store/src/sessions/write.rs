//! Writer thread: commits all waiting operations in one transaction; nothing is acknowledged before it is committed.

use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;
use toolcell_core::StoreError;

use super::failed;
use super::schema::{find, remove};
use crate::sqlite::Removal;

/// Maximum operations in one transaction.
const MAX_GROUP: usize = 512;

/// Operation with the channel for its result.
pub(super) struct Write {
    pub(super) op: Op,
    pub(super) reply: oneshot::Sender<Result<u64, StoreError>>,
}

pub(super) enum Op {
    Append {
        session: String,
        /// Number of entries that the caller knows of.
        at: u64,
        title: String,
        entries: Vec<String>,
    },
    Fork {
        from: String,
        to: String,
        events: Option<u64>,
    },
    Delete {
        session: String,
    },
    Keep {
        session: String,
        call: String,
        text: String,
    },
}

/// Writes until all senders are dropped.
pub(super) fn run(mut connection: Connection, writes: &mpsc::Receiver<Write>) {
    let mut removal = Removal::default();
    while let Ok(first) = writes.recv() {
        let mut group = vec![first];
        while group.len() < MAX_GROUP
            && let Ok(next) = writes.try_recv()
        {
            group.push(next);
        }
        commit(&mut connection, group, &mut removal);
    }
    removal.closing(&connection);
}

fn commit(connection: &mut Connection, group: Vec<Write>, removal: &mut Removal) {
    let mut work = || -> rusqlite::Result<Vec<Result<u64, StoreError>>> {
        let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut results = Vec::with_capacity(group.len());
        for write in &group {
            let savepoint = transaction.savepoint()?;
            let mut result = perform(&savepoint, &write.op);
            if result.is_ok()
                && let Err(error) = savepoint.commit()
            {
                result = Err(failed(&error));
            }
            results.push(result);
        }
        transaction.commit()?;
        Ok(results)
    };
    let results = work().unwrap_or_else(|error| {
        let error = failed(&error);
        group.iter().map(|_| Err(error.clone())).collect()
    });
    let mut done = group.iter().zip(&results);
    if done.any(|(write, result)| matches!(write.op, Op::Delete { .. }) && result.is_ok()) {
        removal.committed(connection);
    }
    for (write, result) in group.into_iter().zip(results) {
        // The caller may have stopped waiting; the operation is committed in any case.
        let _ = write.reply.send(result);
    }
}

/// Executes an operation. Returns the session's number of entries after an append; 0 for other operations.
fn perform(transaction: &Connection, op: &Op) -> Result<u64, StoreError> {
    match op {
        Op::Append {
            session,
            at,
            title,
            entries,
        } => return append(transaction, *at, session, title, entries),
        Op::Fork { from, to, events } => fork(transaction, from, to, *events)?,
        Op::Delete { session } => delete(transaction, session)?,
        Op::Keep { session, call, text } => keep(transaction, session, call, text)?,
    }
    Ok(0)
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

fn fail(error: rusqlite::Error) -> StoreError {
    failed(&error)
}

/// Number of the next entry.
fn append(
    transaction: &Connection,
    at: u64,
    session: &str,
    title: &str,
    entries: &[String],
) -> Result<u64, StoreError> {
    let id = || session.to_owned();
    let now = now_ms();
    let (key, mut number) = match find(transaction, session).map_err(fail)? {
        None if at == 0 => {
            let sql =
                "INSERT INTO sessions (id, title, created_ms, used_ms, next) VALUES (?1, ?2, ?3, ?3, 0)";
            let mut statement = transaction.prepare_cached(sql).map_err(fail)?;
            (statement.insert((session, title, now)).map_err(fail)?, 0)
        }
        None => return Err(StoreError::NotFound { id: id() }),
        Some(row) if u64::try_from(row.next) == Ok(at) => (row.key, row.next),
        Some(_) if at == 0 => return Err(StoreError::Exists { id: id() }),
        Some(_) => return Err(StoreError::InUse { id: id() }),
    };
    let sql = "INSERT INTO entries (session, number, event) VALUES (?1, ?2, ?3)";
    let mut statement = transaction.prepare_cached(sql).map_err(fail)?;
    for entry in entries {
        statement.execute((key, number, entry)).map_err(fail)?;
        number += 1;
    }
    let sql = "UPDATE sessions SET next = ?2, used_ms = ?3 WHERE key = ?1";
    let mut statement = transaction.prepare_cached(sql).map_err(fail)?;
    statement.execute((key, number, now)).map_err(fail)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

fn fork(transaction: &Connection, from: &str, to: &str, events: Option<u64>) -> Result<(), StoreError> {
    if find(transaction, to).map_err(fail)?.is_some() {
        return Err(StoreError::Exists { id: to.to_owned() });
    }
    let Some(row) = find(transaction, from).map_err(fail)? else {
        return Err(StoreError::NotFound { id: from.to_owned() });
    };
    let base = events.map_or(row.next, |events| {
        i64::try_from(events).unwrap_or(i64::MAX).min(row.next)
    });
    let sql = "INSERT INTO sessions (id, title, created_ms, used_ms, parent, base, next) \
               SELECT ?1, title, ?2, ?2, key, ?3, ?3 FROM sessions WHERE key = ?4";
    transaction
        .execute(sql, (to, now_ms(), base, row.key))
        .map_err(fail)?;
    Ok(())
}

fn delete(transaction: &Connection, session: &str) -> Result<(), StoreError> {
    let row = find(transaction, session).map_err(fail)?;
    let row = row.ok_or_else(|| StoreError::NotFound {
        id: session.to_owned(),
    })?;
    remove(transaction, &row).map_err(fail)
}

fn keep(transaction: &Connection, session: &str, call: &str, text: &str) -> Result<(), StoreError> {
    let row = find(transaction, session).map_err(fail)?;
    let row = row.ok_or_else(|| StoreError::NotFound {
        id: session.to_owned(),
    })?;
    let sql = "INSERT OR REPLACE INTO results (session, call, body) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, (row.key, call, text)).map_err(fail)?;
    Ok(())
}
