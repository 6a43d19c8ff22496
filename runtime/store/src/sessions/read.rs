//! Queries of the tables.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::store::SessionInfo;
use toolcell_core::{Event, StoreError};

use super::failed;
use super::schema::{find, find_key};

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

fn entries(connection: &Connection, id: &str) -> rusqlite::Result<Option<Vec<String>>> {
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
        let sql = "SELECT s.id, s.created_ms, s.used_ms, s.next, s.title, p.id FROM sessions s \
                   LEFT JOIN sessions p ON p.key = s.parent WHERE s.id IS NOT NULL \
                   ORDER BY s.used_ms DESC, s.key DESC";
        let mut statement = connection.prepare_cached(sql)?;
        let unsigned = |n: i64| u64::try_from(n).unwrap_or(0);
        let rows = statement.query_map([], |row| {
            Ok(SessionInfo {
                id: row.get(0)?,
                created_ms: unsigned(row.get(1)?),
                used_ms: unsigned(row.get(2)?),
                events: unsigned(row.get(3)?),
                title: row.get(4)?,
                parent: row.get(5)?,
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
