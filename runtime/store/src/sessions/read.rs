//! Queries of the tables.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::store::SessionInfo;
use toolcell_core::{Event, StoreError};

use super::failed;
use super::schema::{find, find_key};
use super::totals::{Totals, unsigned};

/// Maximum generations of forks.
const MAX_GENERATIONS: usize = 10_000;

/// All events of a session, those of its ancestors first.
pub(super) fn load(connection: &Connection, id: &str) -> Result<Vec<Event>, StoreError> {
    let texts = snapshot(connection, |connection| entries(connection, id))?;
    let texts = texts.ok_or_else(|| StoreError::NotFound { id: id.to_owned() })?;
    texts
        .iter()
        .enumerate()
        .map(|(number, text)| {
            serde_json::from_str(text).map_err(|error| StoreError::Unreadable {
                id: id.to_owned(),
                number: number as u64,
                source: Arc::new(error),
            })
        })
        .collect()
}

/// Runs several queries on one snapshot of the file.
fn snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let work = || {
        let transaction = connection.unchecked_transaction()?;
        let value = read(&transaction)?;
        transaction.finish()?;
        Ok(value)
    };
    work().map_err(failed)
}

/// The entries of a session, those of its ancestors first; `None` if there is no such session.
pub(super) fn entries(connection: &Connection, id: &str) -> rusqlite::Result<Option<Vec<String>>> {
    let Some(row) = find(connection, id)? else {
        return Ok(None);
    };
    // From the session up to its first ancestor: the session and the range of its entries.
    let mut parts = vec![(row.key, row.base, row.next)];
    let (mut parent, mut upto) = (row.parent, row.base);
    while let Some(key) = parent
        && parts.len() < MAX_GENERATIONS
        && let Some(row) = find_key(connection, key)?
    {
        parts.push((row.key, row.base, upto));
        upto = upto.min(row.base);
        parent = row.parent;
    }
    let mut texts = Vec::new();
    let sql = "SELECT event FROM entries WHERE session = ?1 AND number >= ?2 AND number < ?3 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    for (key, from, upto) in parts.into_iter().rev() {
        for text in statement.query_map((key, from, upto), |row| row.get(0))? {
            texts.push(text?);
        }
    }
    Ok(Some(texts))
}

pub(super) fn list(connection: &Connection) -> Result<Vec<SessionInfo>, StoreError> {
    let work = || {
        let sql = "SELECT s.*, p.id AS forked_from FROM sessions s \
                   LEFT JOIN sessions p ON p.key = s.parent WHERE s.id IS NOT NULL \
                   ORDER BY s.used_ms DESC, s.key DESC";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| {
            let totals = Totals::of_row(row)?;
            Ok(SessionInfo {
                id: row.get("id")?,
                created_ms: unsigned(row.get("created_ms")?),
                used_ms: unsigned(row.get("used_ms")?),
                events: unsigned(row.get("next")?),
                title: row.get("title")?,
                name: row.get("name")?,
                messages: totals.messages,
                bytes: totals.bytes,
                usage: totals.usage,
                cost_micros: totals.cost_micros,
                parent: row.get("forked_from")?,
            })
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    work().map_err(failed)
}

/// The stored result of a call of a session or of its ancestors.
pub(super) fn kept(connection: &Connection, session: &str, call: &str) -> Result<Option<String>, StoreError> {
    let work = || {
        let mut row = find(connection, session)?;
        let mut generations = 0;
        while let Some(current) = row
            && generations < MAX_GENERATIONS
        {
            let sql = "SELECT body FROM results WHERE session = ?1 AND call = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            if let Some(body) = statement
                .query_row((current.key, call), |row| row.get(0))
                .optional()?
            {
                return Ok(Some(body));
            }
            row = match current.parent {
                Some(parent) => find_key(connection, parent)?,
                None => None,
            };
            generations += 1;
        }
        Ok(None)
    };
    work().map_err(failed)
}
