//! Totals of sessions, kept beside their entries so that a list reads no journal.

use rusqlite::{Connection, Row};
use toolcell_core::provider::Usage;
use toolcell_core::{Event, Message};

/// Addition of entries to the totals of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) usage: Usage,
    pub(super) cost_micros: Option<u64>,
}

impl Totals {
    /// Adds an event and the size of its entry.
    pub(super) fn count(&mut self, event: &Event, bytes: usize) {
        self.messages += u64::from(is_message(event));
        self.bytes += bytes as u64;
        if let Event::TurnFinished {
            usage, cost_micros, ..
        } = event
        {
            self.usage.add_turn(&mut self.cost_micros, *usage, *cost_micros);
        }
    }

    /// Adds the totals to those of a session.
    pub(super) fn add_to(&self, transaction: &Connection, key: i64) -> rusqlite::Result<()> {
        let sql = "UPDATE sessions SET messages = messages + ?2, bytes = bytes + ?3, input = input + ?4, \
                   cache_read = cache_read + ?5, cache_write = cache_write + ?6, output = output + ?7, \
                   reasoning = reasoning + ?8, estimated = max(estimated, ?10), unpriced = max(unpriced, ?11), \
                   cost_micros = CASE WHEN ?9 IS NULL THEN cost_micros ELSE coalesce(cost_micros, 0) + ?9 END \
                   WHERE key = ?1";
        let usage = &self.usage;
        transaction.prepare_cached(sql)?.execute((
            key,
            signed(self.messages),
            signed(self.bytes),
            signed(usage.input),
            signed(usage.cache_read),
            signed(usage.cache_write),
            signed(usage.output),
            signed(usage.reasoning),
            self.cost_micros.map(signed),
            usage.estimated,
            usage.unpriced,
        ))?;
        Ok(())
    }

    /// Reads the totals of a session from columns of their names.
    pub(super) fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = |name: &str| row.get(name).map(unsigned);
        let cost_micros = row.get::<_, Option<i64>>("cost_micros")?.map(unsigned);
        Ok(Self {
            messages: number("messages")?,
            bytes: number("bytes")?,
            usage: Usage {
                input: number("input")?,
                cache_read: number("cache_read")?,
                cache_write: number("cache_write")?,
                output: number("output")?,
                reasoning: number("reasoning")?,
                estimated: row.get("estimated")?,
                // Without any price, no cost is incomplete.
                unpriced: row.get("unpriced")? && cost_micros.is_some(),
                cost_micros: None,
            },
            cost_micros,
        })
    }
}

/// True for a message of the user and for an answer of the model.
pub(super) fn is_message(event: &Event) -> bool {
    match event {
        Event::TurnStarted { unanswered, .. } => !unanswered,
        Event::StepFinished { message, .. }
        | Event::StepInterrupted {
            message: Some(message),
            ..
        } => matches!(message, Message::Assistant { parts } if !parts.is_empty()),
        _ => false,
    }
}

/// The nearest number that SQLite can store.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
