//! Queries of the tables.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::store::{Entry, SessionInfo};
use toolcell_core::{Event, StoreError};

use super::Search;
use super::failed;
use super::schema::{find, find_key};
use super::totals::{Totals, signed, unsigned};

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

/// Part of a journal: the key of a session, and the range of its entries.
type Part = (i64, i64, i64);

/// The parts of the journal of a session, that of its first ancestor first; `None` if there is no such session.
fn parts(connection: &Connection, id: &str) -> rusqlite::Result<Option<Vec<Part>>> {
    let Some(row) = find(connection, id)? else {
        return Ok(None);
    };
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
    parts.reverse();
    Ok(Some(parts))
}

const ENTRIES: &str =
    "SELECT event FROM entries WHERE session = ?1 AND number >= ?2 AND number < ?3 ORDER BY number";

/// The entries of a session, those of its ancestors first; `None` if there is no such session. One that is no text is empty,
/// which no event is.
pub(super) fn entries(connection: &Connection, id: &str) -> rusqlite::Result<Option<Vec<String>>> {
    let Some(parts) = parts(connection, id)? else {
        return Ok(None);
    };
    let mut texts = Vec::new();
    let mut statement = connection.prepare_cached(ENTRIES)?;
    for part in parts {
        let mut rows = statement.query(part)?;
        while let Some(row) = rows.next()? {
            texts.push(text_of(row)?.unwrap_or_default().to_owned());
        }
    }
    Ok(Some(texts))
}

fn text_of<'a>(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<Option<&'a str>> {
    Ok(row.get_ref(0)?.as_str().ok())
}

/// Beginnings of the entries with messages, as they are stored.
pub(super) const MESSAGES: [&str; 2] = [r#"{"type":"turn_started""#, r#"{"type":"step_finished""#];

/// Searches the messages of a session, one entry at a time.
pub(super) fn search<T>(
    connection: &Connection,
    id: &str,
    most: usize,
    found: impl Fn(&Event) -> Option<T>,
) -> Result<Search<T>, StoreError> {
    let work = |connection: &Connection| {
        let Some(parts) = parts(connection, id)? else {
            return Ok(None);
        };
        let mut search = Search::default();
        let mut statement = connection.prepare_cached(ENTRIES)?;
        for part in parts {
            let mut rows = statement.query(part)?;
            while search.found.len() < most
                && let Some(row) = rows.next()?
            {
                let Some(text) = text_of(row)? else {
                    search.unreadable += 1;
                    continue;
                };
                if !MESSAGES.iter().any(|start| text.starts_with(start)) {
                    continue;
                }
                match serde_json::from_str(text) {
                    Ok(event) => search.found.extend(found(&event)),
                    Err(_) => search.unreadable += 1,
                }
            }
        }
        Ok(Some(search))
    };
    let search = snapshot(connection, work)?;
    search.ok_or_else(|| StoreError::NotFound { id: id.to_owned() })
}

/// Returns the entries after the first `after`.
pub(super) fn page(
    connection: &Connection,
    id: &str,
    after: u64,
    most: usize,
    max_bytes: usize,
) -> Result<Vec<Entry>, StoreError> {
    let work = |connection: &Connection| {
        let Some(parts) = parts(connection, id)? else {
            return Ok(None);
        };
        let after = signed(after);
        let sql = "SELECT event, number, at_ms FROM entries \
                   WHERE session = ?1 AND number >= ?2 AND number < ?3 ORDER BY number";
        let mut statement = connection.prepare_cached(sql)?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (key, from, to) in parts {
            let mut rows = statement.query((key, from.max(after), to))?;
            while let Some(row) = rows.next()? {
                // One that is no text is no event either.
                let json = text_of(row)?.unwrap_or("null").to_owned();
                bytes += json.len();
                if entries.len() == most || (bytes > max_bytes && !entries.is_empty()) {
                    return Ok(Some(entries));
                }
                entries.push(Entry {
                    seq: unsigned(row.get(1)?).saturating_add(1),
                    at_ms: row.get::<_, Option<i64>>(2)?.map(unsigned),
                    json,
                });
            }
        }
        Ok(Some(entries))
    };
    let entries = snapshot(connection, work)?;
    entries.ok_or_else(|| StoreError::NotFound { id: id.to_owned() })
}

const LIST: &str = "SELECT s.*, p.id AS forked_from FROM sessions s \
                    LEFT JOIN sessions p ON p.key = s.parent WHERE s.id IS NOT NULL";

fn info_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionInfo> {
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
        agent: row.get("agent")?,
        owner: row.get("owner")?,
    })
}

/// Returns the row of one session.
pub(super) fn info(connection: &Connection, id: &str) -> Result<SessionInfo, StoreError> {
    let work = || {
        let sql = format!("{LIST} AND s.id = ?1");
        let mut statement = connection.prepare_cached(&sql)?;
        statement.query_row([id], info_of).optional()
    };
    let found = work().map_err(failed)?;
    found.ok_or_else(|| StoreError::NotFound { id: id.to_owned() })
}

pub(super) fn list(connection: &Connection) -> Result<Vec<SessionInfo>, StoreError> {
    let work = || {
        let sql = format!("{LIST} ORDER BY s.used_ms DESC, s.key DESC");
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map([], info_of)?;
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
