//! Write operations on the tables.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::{Event, StoreError};

use super::daily::{self, TurnUse};
use super::failed;
use super::index;
use super::read;
use super::schema::{find, remove};
use super::totals::{self, Totals, signed};
use crate::threads::Operation;

/// Entry to append.
pub(super) struct NewEntry {
    pub(super) json: String,
    /// Text of its message, for searches.
    pub(super) text: Option<String>,
}

/// Write operation on a session.
pub(super) enum Op {
    Append {
        session: String,
        /// Number of entries that the caller knows of.
        at: u64,
        title: String,
        entries: Vec<NewEntry>,
        totals: Totals,
    },
    Create {
        session: String,
        agent: String,
        owner: String,
    },
    Rename {
        session: String,
        name: Option<String>,
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
    Count {
        agent: String,
        owner: String,
        used: TurnUse,
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
                totals,
            } => return append(transaction, *at, session, title, entries, totals),
            Op::Create {
                session,
                agent,
                owner,
            } => create(transaction, session, agent, owner)?,
            Op::Rename { session, name } => rename(transaction, session, name.as_deref())?,
            Op::Fork { from, to, events } => fork(transaction, from, to, *events)?,
            Op::Delete { session } => delete(transaction, session)?,
            Op::Keep { session, call, text } => keep(transaction, session, call, text)?,
            Op::Count { agent, owner, used } => {
                daily::add_unsaved(transaction, now_ms(), (agent, owner), used).map_err(failed)?;
            }
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

fn create(transaction: &Connection, session: &str, agent: &str, owner: &str) -> Result<(), StoreError> {
    if find(transaction, session).map_err(failed)?.is_some() {
        return Err(StoreError::Exists {
            id: session.to_owned(),
        });
    }
    let sql = "INSERT INTO sessions (id, title, created_ms, used_ms, next, agent, owner) \
               VALUES (?1, '', ?2, ?2, 0, ?3, ?4)";
    transaction
        .execute(sql, (session, now_ms(), agent, owner))
        .map_err(failed)?;
    Ok(())
}

/// Returns the number of the next entry.
fn append(
    transaction: &Connection,
    at: u64,
    session: &str,
    title: &str,
    entries: &[NewEntry],
    totals: &Totals,
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
        Some(row) if u64::try_from(row.next) == Ok(at) => {
            if at == 0 {
                let sql = "UPDATE sessions SET title = ?2 WHERE key = ?1";
                transaction.execute(sql, (row.key, title)).map_err(failed)?;
            }
            (row.key, row.next)
        }
        Some(_) if at == 0 => return Err(StoreError::Exists { id: id() }),
        Some(_) => return Err(StoreError::InUse { id: id() }),
    };
    let sql = "INSERT INTO entries (session, number, event, at_ms) VALUES (?1, ?2, ?3, ?4)";
    let mut statement = transaction.prepare_cached(sql).map_err(failed)?;
    for entry in entries {
        let json = entry.json.as_str();
        statement.execute((key, number, json, now)).map_err(failed)?;
        if let Some(text) = &entry.text {
            index::add(transaction, key, number, text).map_err(failed)?;
        }
        number += 1;
    }
    let sql = "UPDATE sessions SET next = ?2, used_ms = ?3 WHERE key = ?1";
    let mut statement = transaction.prepare_cached(sql).map_err(failed)?;
    statement.execute((key, number, now)).map_err(failed)?;
    totals.add_to(transaction, key).map_err(failed)?;
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
    let messages = if base == row.next {
        None
    } else {
        let entries = read::entries(transaction, from)
            .map_err(failed)?
            .unwrap_or_default();
        let shared = entries.iter().take(usize::try_from(base).unwrap_or(0));
        // An entry of a newer version is none that this one knows.
        let events = shared.filter_map(|entry| serde_json::from_str::<Event>(entry).ok());
        Some(signed(events.filter(totals::is_message).count() as u64))
    };
    let sql = "INSERT INTO sessions (id, title, created_ms, used_ms, parent, base, next, messages, agent, owner) \
               SELECT ?1, title, ?2, ?2, key, ?3, ?3, coalesce(?5, messages), agent, owner FROM sessions WHERE key = ?4";
    transaction
        .execute(sql, (to, now_ms(), base, row.key, messages))
        .map_err(failed)?;
    Ok(())
}

fn rename(transaction: &Connection, session: &str, name: Option<&str>) -> Result<(), StoreError> {
    let row = find(transaction, session).map_err(failed)?;
    let row = row.ok_or_else(|| StoreError::NotFound {
        id: session.to_owned(),
    })?;
    if let Some(name) = name {
        let sql = "SELECT count(*) FROM sessions WHERE name = ?1 AND key != ?2 \
                   AND coalesce(owner, '') = (SELECT coalesce(owner, '') FROM sessions WHERE key = ?2)";
        let others: i64 = transaction
            .query_row(sql, (name, row.key), |row| row.get(0))
            .map_err(failed)?;
        if others > 0 {
            return Err(StoreError::NameTaken {
                name: name.to_owned(),
            });
        }
    }
    let sql = "UPDATE sessions SET name = ?2 WHERE key = ?1";
    transaction.execute(sql, (row.key, name)).map_err(failed)?;
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
    let sql = "SELECT octet_length(body) FROM results WHERE session = ?1 AND call = ?2";
    let replaced: Option<i64> = transaction
        .query_row(sql, (row.key, call), |row| row.get(0))
        .optional()
        .map_err(failed)?;
    let sql = "INSERT OR REPLACE INTO results (session, call, body) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, (row.key, call, text)).map_err(failed)?;
    let added = signed(text.len() as u64) - replaced.unwrap_or(0);
    let sql = "UPDATE sessions SET bytes = max(0, bytes + ?2) WHERE key = ?1";
    transaction.execute(sql, (row.key, added)).map_err(failed)?;
    Ok(())
}
