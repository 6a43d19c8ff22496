//! Write operations on the tables.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use toolcell_core::StoreError;

use super::failed;
use super::schema::{find, remove};
use crate::threads::Operation;

/// Write operation on a session.
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

impl Operation for Op {
    type Error = StoreError;

    const MAX_GROUP: usize = 512;

    /// Returns the session's number of entries after an append; 0 for other operations.
    fn perform(&self, transaction: &Connection) -> Result<u64, StoreError> {
        match self {
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

    fn removes(&self) -> bool {
        matches!(self, Op::Delete { .. })
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the number of the next entry.
fn append(
    transaction: &Connection,
    at: u64,
    session: &str,
    title: &str,
    entries: &[String],
) -> Result<u64, StoreError> {
    let id = || session.to_owned();
    let now = now_ms();
    let (key, mut number) = match find(transaction, session).map_err(failed)? {
        None if at == 0 => {
            let sql =
                "INSERT INTO sessions (id, title, created_ms, used_ms, next) VALUES (?1, ?2, ?3, ?3, 0)";
            let mut statement = transaction.prepare_cached(sql).map_err(failed)?;
            (statement.insert((session, title, now)).map_err(failed)?, 0)
        }
        None => return Err(StoreError::NotFound { id: id() }),
        Some(row) if u64::try_from(row.next) == Ok(at) => (row.key, row.next),
        Some(_) if at == 0 => return Err(StoreError::Exists { id: id() }),
        Some(_) => return Err(StoreError::InUse { id: id() }),
    };
    let sql = "INSERT INTO entries (session, number, event) VALUES (?1, ?2, ?3)";
    let mut statement = transaction.prepare_cached(sql).map_err(failed)?;
    for entry in entries {
        statement.execute((key, number, entry)).map_err(failed)?;
        number += 1;
    }
    let sql = "UPDATE sessions SET next = ?2, used_ms = ?3 WHERE key = ?1";
    let mut statement = transaction.prepare_cached(sql).map_err(failed)?;
    statement.execute((key, number, now)).map_err(failed)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

fn fork(transaction: &Connection, from: &str, to: &str, events: Option<u64>) -> Result<(), StoreError> {
    if find(transaction, to).map_err(failed)?.is_some() {
        return Err(StoreError::Exists { id: to.to_owned() });
    }
    let Some(row) = find(transaction, from).map_err(failed)? else {
        return Err(StoreError::NotFound { id: from.to_owned() });
    };
    let base = events.map_or(row.next, |events| {
        i64::try_from(events).unwrap_or(i64::MAX).min(row.next)
    });
    let sql = "INSERT INTO sessions (id, title, created_ms, used_ms, parent, base, next) \
               SELECT ?1, title, ?2, ?2, key, ?3, ?3 FROM sessions WHERE key = ?4";
    transaction
        .execute(sql, (to, now_ms(), base, row.key))
        .map_err(failed)?;
    Ok(())
}

fn delete(transaction: &Connection, session: &str) -> Result<(), StoreError> {
    let row = find(transaction, session).map_err(failed)?;
    let row = row.ok_or_else(|| StoreError::NotFound {
        id: session.to_owned(),
    })?;
    remove(transaction, &row).map_err(failed)
}

fn keep(transaction: &Connection, session: &str, call: &str, text: &str) -> Result<(), StoreError> {
    let row = find(transaction, session).map_err(failed)?;
    let row = row.ok_or_else(|| StoreError::NotFound {
        id: session.to_owned(),
    })?;
    let sql = "INSERT OR REPLACE INTO results (session, call, body) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, (row.key, call, text)).map_err(failed)?;
    Ok(())
}
