//! Tables and version of the file.

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::{Content, Event, Message};

use super::index;
use crate::sqlite::{Kind, Upgrade};

/// File of sessions. Its application id is "tcel".
pub(super) const SESSIONS: Kind = Kind {
    application: 0x7463_656c,
    tables: TABLES,
    upgrades: &[
        Upgrade::Sql(NAMES_AND_TOTALS),
        Upgrade::Sql(OWNERS_AND_TIMES),
        Upgrade::Work(index::build),
        Upgrade::Sql(ESTIMATES),
        Upgrade::Sql(UNSAVED),
    ],
};

/// Maximum length of a title, in characters.
const TITLE_CHARS: usize = 80;

/// `base` is the number of entries that a fork shares with its parent; its own are numbered from there. A deleted
/// session whose entries are still shared by forks is `hidden` and has no name.
const TABLES: &str = "
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT UNIQUE,
    title TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    parent INTEGER REFERENCES sessions (key),
    base INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL
);
CREATE TABLE entries (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE results (
    session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    call TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, call)
) WITHOUT ROWID;
CREATE INDEX forks ON sessions (parent);
";

/// Names, and totals that a list shows without reading journals. Sessions of the first version get theirs from their own
/// entries. Costs were not recorded.
const NAMES_AND_TOTALS: &str = "
ALTER TABLE sessions ADD COLUMN name TEXT;
ALTER TABLE sessions ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN input INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cache_read INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cache_write INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN output INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN reasoning INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost_micros INTEGER;
CREATE UNIQUE INDEX names ON sessions (name) WHERE name IS NOT NULL;
UPDATE sessions SET
    messages = (SELECT count(*) FROM entries WHERE session = key AND json_valid(event)
        AND json_extract(event, '$.type') IN ('turn_started', 'step_finished')),
    bytes = (SELECT coalesce(sum(octet_length(event)), 0) FROM entries WHERE session = key)
        + (SELECT coalesce(sum(octet_length(body)), 0) FROM results WHERE session = key);
WITH turns AS (
    SELECT session, json_extract(event, '$.usage') AS usage FROM entries
    WHERE json_valid(event) AND json_extract(event, '$.type') = 'turn_finished'
), sums AS (
    SELECT session,
        sum(json_extract(usage, '$.input')) AS input,
        sum(json_extract(usage, '$.cache_read')) AS cache_read,
        sum(json_extract(usage, '$.cache_write')) AS cache_write,
        sum(json_extract(usage, '$.output')) AS output,
        sum(json_extract(usage, '$.reasoning')) AS reasoning
    FROM turns GROUP BY session
)
UPDATE sessions SET
    input = coalesce(sums.input, 0),
    cache_read = coalesce(sums.cache_read, 0),
    cache_write = coalesce(sums.cache_write, 0),
    output = coalesce(sums.output, 0),
    reasoning = coalesce(sums.reasoning, 0)
FROM sums WHERE sums.session = key;
";

/// Agents and owners of sessions, with names that are unique for each owner, and times of entries. Those of earlier versions have none.
const OWNERS_AND_TIMES: &str = "
ALTER TABLE sessions ADD COLUMN agent TEXT;
ALTER TABLE sessions ADD COLUMN owner TEXT;
ALTER TABLE entries ADD COLUMN at_ms INTEGER;
DROP INDEX names;
CREATE UNIQUE INDEX names ON sessions (coalesce(owner, ''), name) WHERE name IS NOT NULL;
";

/// Totals that have estimates, and turns without a price beside some with one. Estimates of earlier versions were not recorded.
const ESTIMATES: &str = "
ALTER TABLE sessions ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET unpriced = cost_micros IS NULL AND input + output > 0 OR cost_micros IS NOT NULL AND EXISTS (
    SELECT 1 FROM entries WHERE session = key AND CASE WHEN json_valid(event) THEN
        json_extract(event, '$.type') = 'turn_finished' AND json_extract(event, '$.cost_micros') IS NULL
        AND json_extract(event, '$.usage.input') + json_extract(event, '$.usage.output') > 0
    END
);
";

/// Use of conversations that are not stored, by day of UTC since 1970-01-01.
const UNSAVED: &str = "
CREATE TABLE unsaved (
    day INTEGER NOT NULL,
    agent TEXT NOT NULL,
    owner TEXT NOT NULL,
    used TEXT NOT NULL,
    PRIMARY KEY (day, agent, owner)
) WITHOUT ROWID;
";

/// Row of a session.
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) parent: Option<i64>,
    pub(super) base: i64,
    pub(super) next: i64,
}

/// Finds the row of a session.
pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Row>> {
    let sql = "SELECT key, parent, base, next FROM sessions WHERE id = ?1";
    connection.prepare_cached(sql)?.query_row([id], row_of).optional()
}

pub(super) fn find_key(connection: &Connection, key: i64) -> rusqlite::Result<Option<Row>> {
    let sql = "SELECT key, parent, base, next FROM sessions WHERE key = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([key], row_of)
        .optional()
}

fn row_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        key: row.get(0)?,
        parent: row.get(1)?,
        base: row.get(2)?,
        next: row.get(3)?,
    })
}

/// Deletes a session and every hidden ancestor that no fork shares any more.
pub(super) fn remove(transaction: &Connection, row: &Row) -> rusqlite::Result<()> {
    let mut current = Some((row.key, row.parent));
    while let Some((key, parent)) = current {
        let forks: i64 =
            transaction.query_row("SELECT count(*) FROM sessions WHERE parent = ?1", [key], |row| {
                row.get(0)
            })?;
        if forks > 0 {
            let sql = "UPDATE sessions SET id = NULL, name = NULL, title = '' WHERE key = ?1";
            transaction.execute(sql, [key])?;
            // Entries after the last fork are no longer shared.
            let shared = "SELECT max(base) FROM sessions WHERE parent = ?1";
            let shared = transaction.query_row(shared, [key], |row| row.get(0))?;
            index::remove(transaction, key, shared)?;
            let sql = "DELETE FROM entries WHERE session = ?1 AND number >= ?2";
            transaction.execute(sql, [key, shared])?;
            return Ok(());
        }
        index::remove(transaction, key, 0)?;
        transaction.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
        current = match parent {
            Some(parent) => transaction
                .query_row(
                    "SELECT key, parent FROM sessions WHERE key = ?1 AND id IS NULL",
                    [parent],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?,
            None => None,
        };
    }
    Ok(())
}

/// First words of the first message.
pub(super) fn title(events: &[Event]) -> String {
    let message = events.iter().find_map(|event| match event {
        Event::TurnStarted { message, .. } => Some(message),
        _ => None,
    });
    // The prompt, without what is attached to it.
    let prompt = message.and_then(|message| match message {
        Message::User { content } => content.iter().find_map(|part| match part {
            Content::Text { text } => Some(text.as_str()),
            _ => None,
        }),
        _ => None,
    });
    shortened(prompt.unwrap_or_default())
}

/// Returns the first words of a text on one line, with `…` for those that do not fit.
fn shortened(text: &str) -> String {
    let printable = |word: &str| -> String { word.chars().filter(|c| !c.is_control()).collect() };
    let words = text.split_whitespace().map(printable);
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    let mut title = String::new();
    let mut length = 0;
    while let Some(word) = words.next() {
        let blank = usize::from(!title.is_empty());
        let with_word = length + blank + word.chars().count();
        let ellipsis = usize::from(words.peek().is_some());
        if with_word + ellipsis > TITLE_CHARS {
            if title.is_empty() {
                title.extend(word.chars().take(TITLE_CHARS - 1));
            }
            title.push('…');
            break;
        }
        if blank > 0 {
            title.push(' ');
        }
        title.push_str(&word);
        length = with_word;
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_ends_between_words() {
        let words = |n: usize| vec!["abc"; n].join(" ");
        for (text, title) in [
            (String::new(), String::new()),
            (" one\n\ttwo\u{7} \u{1b} ".into(), "one two".into()),
            ("a".repeat(80), "a".repeat(80)),
            ("a".repeat(81), "a".repeat(79) + "…"),
            // 20 words have 79 characters, and the ellipsis is the 80th.
            (words(20), words(20)),
            (words(21), words(20) + "…"),
            (words(19) + " abcd", words(19) + " abcd"),
            (words(19) + " abcd e", words(19) + "…"),
        ] {
            assert!(title.chars().count() <= TITLE_CHARS);
            assert_eq!(shortened(&text), title, "{text}");
        }
    }
}
