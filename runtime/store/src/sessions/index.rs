//! Index of the messages of all sessions, for searches: three letters in a row are a term, so that parts of words are found.
//!
//! Its rows are the messages in a form without case, and are numbered by session and entry. Forks have none of their own.

use std::collections::HashSet;

use rusqlite::Connection;
use toolcell_core::{Event, StoreError};

use super::failed;
use super::read::MESSAGES;

/// Table of the index. What is deleted leaves the file (<https://www.sqlite.org/fts5.html#the_secure_delete_configuration_option>).
pub(super) const TABLE: &str = "
CREATE VIRTUAL TABLE messages USING fts5(text, tokenize = 'trigram case_sensitive 1', detail = none);
INSERT INTO messages (messages, rank) VALUES ('secure-delete', 1);
";

/// Number of letters of a term.
const TERM_CHARS: usize = 3;

/// Maximum number of terms of a query: more find hardly less, and every row that is found is compared with the words.
const MAX_TERMS: usize = 32;

/// Bits of the number of an entry in the number of a row.
const ENTRY_BITS: u32 = 32;

/// Returns a text in the form in which texts are compared: without case, in any alphabet. A final sigma is a sigma. The index
/// would end a text at a NUL.
#[must_use]
pub fn without_case(text: &str) -> String {
    let lower = text.to_lowercase();
    match lower.contains(['ς', '\0']) {
        true => lower.replace('ς', "σ").replace('\0', " "),
        false => lower,
    }
}

/// Text of the message of an event, without case; `None` if it has none.
pub(super) fn text_of(event: &Event) -> Option<String> {
    let message = match event {
        Event::TurnStarted { message, .. } | Event::StepFinished { message, .. } => message,
        _ => return None,
    };
    Some(without_case(&message.text())).filter(|text| !text.is_empty())
}

/// Number of the row of an entry. `None` if a session has more entries than fit, which takes years.
fn row(session: i64, entry: i64) -> Option<i64> {
    let fits = (0..1 << ENTRY_BITS).contains(&entry) && (0..1 << 31).contains(&session);
    fits.then_some(session << ENTRY_BITS | entry)
}

/// Adds the text of an entry.
pub(super) fn add(transaction: &Connection, session: i64, entry: i64, text: &str) -> rusqlite::Result<()> {
    let Some(row) = row(session, entry) else {
        return Ok(());
    };
    let sql = "INSERT INTO messages (rowid, text) VALUES (?1, ?2)";
    transaction.prepare_cached(sql)?.execute((row, text))?;
    Ok(())
}

/// Removes the texts of a session from an entry on.
pub(super) fn remove(transaction: &Connection, session: i64, from: i64) -> rusqlite::Result<()> {
    let (Some(from), Some(end)) = (row(session, from), row(session + 1, 0)) else {
        return Ok(());
    };
    let sql = "DELETE FROM messages WHERE rowid >= ?1 AND rowid < ?2";
    transaction.prepare_cached(sql)?.execute((from, end))?;
    Ok(())
}

/// Makes the index of a file that has none. Entries that are no events are left out.
pub(super) fn build(transaction: &Connection) -> rusqlite::Result<()> {
    transaction.execute_batch(TABLE)?;
    let mut entries = transaction.prepare("SELECT session, number, event FROM entries")?;
    let mut rows = entries.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(json) = row.get_ref(2)?.as_str() else {
            continue;
        };
        if !MESSAGES.iter().any(|start| json.starts_with(start)) {
            continue;
        }
        let text = serde_json::from_str(json).ok().and_then(|event| text_of(&event));
        if let Some(text) = text {
            add(transaction, row.get(0)?, row.get(1)?, &text)?;
        }
    }
    Ok(())
}

/// Query of the index for the terms of words; empty if no word has one.
fn query(words: &[String]) -> String {
    let mut terms = Vec::new();
    for word in words {
        let letters: Vec<char> = word.chars().collect();
        terms.extend(letters.windows(TERM_CHARS).map(|term| {
            let term: String = term.iter().collect();
            format!("\"{}\"", term.replace('"', "\"\""))
        }));
    }
    terms.truncate(MAX_TERMS);
    terms.join(" AND ")
}

/// Returns the sessions with a message that has all these words in any case, also forks of such a message. Words of one or two
/// letters alone are not in the index: all messages are compared with them, one at a time.
pub(super) fn candidates(connection: &Connection, words: &[String]) -> Result<HashSet<String>, StoreError> {
    let words: Vec<String> = words.iter().map(|word| without_case(word)).collect();
    let query = query(&words);
    let mut values = Vec::new();
    let mut conditions = Vec::new();
    if !query.is_empty() {
        conditions.push("messages MATCH ?".to_owned());
        values.push(query);
    }
    for word in words {
        conditions.push("instr(text, ?) > 0".to_owned());
        values.push(word);
    }
    if conditions.is_empty() {
        conditions.push("true".to_owned());
    }
    // A fork has the messages before its first own entry, and so have its own forks.
    let sql = format!(
        "WITH RECURSIVE found (session, entry) AS (
            SELECT rowid >> {ENTRY_BITS}, min(rowid & {mask}) FROM messages WHERE {} GROUP BY 1
        ), sharing (session, entry) AS (
            SELECT session, entry FROM found
            UNION SELECT forks.key, entry FROM sharing JOIN sessions forks ON forks.parent = sharing.session
                WHERE entry < forks.base
        ) SELECT DISTINCT id FROM sharing JOIN sessions ON key = session WHERE id IS NOT NULL",
        conditions.join(" AND "),
        mask = (1_i64 << ENTRY_BITS) - 1,
    );
    let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
    let found = statement
        .query_map(rusqlite::params_from_iter(&values), |row| row.get(0))
        .map_err(failed)?;
    found.collect::<rusqlite::Result<_>>().map_err(failed)
}

#[cfg(test)]
mod tests;
