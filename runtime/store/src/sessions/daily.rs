//! Use of turns and calls by day.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::Usage;
use toolcell_core::{Event, StoreError};

use super::failed;
use super::totals::{signed, unsigned};

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Maximum number of call times kept of a day and agent for its percentiles; of more, every later one replaces another. Those of
/// conversations that are not stored are written with each turn, in some 30 KB.
const MAX_TIMES: usize = 4_096;

/// Number of days for which the use of conversations that are not stored is kept.
const KEPT_DAYS: u64 = 366;

/// Use of turns and calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnUse {
    /// Number of finished turns.
    pub turns: u64,
    /// Number of those that ended with an error.
    pub failed_turns: u64,
    /// Tokens.
    pub usage: Usage,
    /// Cost of those with prices.
    pub cost_micros: Option<u64>,
    /// Number of ended calls.
    pub calls: u64,
    /// Number of those with an error.
    pub failed_calls: u64,
    /// Number of denied accesses.
    pub denials: u64,
    /// Wall times of calls with a receipt, in microseconds.
    pub times_us: Vec<u64>,
}

impl TurnUse {
    /// Counts the end of a turn or call.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::TurnFinished {
                outcome,
                usage,
                cost_micros,
                ..
            } => {
                self.turns += 1;
                self.failed_turns += u64::from(is_failure(outcome));
                self.usage.add_turn(&mut self.cost_micros, *usage, *cost_micros);
            }
            Event::CallFinished { result, .. } => {
                self.calls += 1;
                self.failed_calls += u64::from(result.error.is_some());
                if let Some(receipt) = &result.receipt {
                    self.denials += receipt.denials.len() as u64;
                    self.time(receipt.wall_us);
                }
            }
            _ => {}
        }
    }

    /// Adds the time of a call, which is among the counted ones.
    fn time(&mut self, wall_us: u64) {
        if self.times_us.len() < MAX_TIMES {
            self.times_us.push(wall_us);
        } else {
            let at = usize::try_from(self.calls).unwrap_or(0) % MAX_TIMES;
            self.times_us[at] = wall_us;
        }
    }

    fn add(&mut self, more: &Self) {
        self.turns += more.turns;
        self.failed_turns += more.failed_turns;
        self.usage.add(more.usage);
        if let Some(cost) = more.cost_micros {
            self.cost_micros = Some(self.cost_micros.unwrap_or(0).saturating_add(cost));
        }
        self.denials += more.denials;
        self.failed_calls += more.failed_calls;
        for time in &more.times_us {
            self.calls += 1;
            self.time(*time);
        }
        // Calls without a receipt have no time.
        self.calls += more.calls.saturating_sub(more.times_us.len() as u64);
    }
}

/// Use of one day and agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DailyUse {
    /// Day, as a number of days since 1970-01-01 UTC.
    pub day: u64,
    /// Agent of the sessions; `None` for sessions that no agent was named for.
    pub agent: Option<String>,
    /// Owner of the sessions.
    pub owner: Option<String>,
    /// Number of finished turns.
    pub turns: u64,
    /// Number of those that ended with an error.
    pub failed_turns: u64,
    /// Tokens of these turns.
    pub usage: Usage,
    /// Cost of those with prices.
    pub cost_micros: Option<u64>,
    /// Number of ended calls.
    pub calls: u64,
    /// Number of those with an error.
    pub failed_calls: u64,
    /// Number of denied accesses.
    pub denials: u64,
    /// Median and 95th percentile of the wall times of calls with a receipt, in microseconds.
    pub call_us: Option<(u64, u64)>,
}

/// Returns `true` if a turn ended with an error, not with an answer, a question or by the user.
fn is_failure(outcome: &TurnOutcome) -> bool {
    !matches!(
        outcome,
        TurnOutcome::Completed
            | TurnOutcome::StepLimit { .. }
            | TurnOutcome::AwaitingApproval { .. }
            | TurnOutcome::Asked { .. }
            | TurnOutcome::Cancelled
    )
}

/// Day, agent and owner of a use.
type Key = (u64, Option<String>, Option<String>);

/// Reads the turns and calls that ended since a time, and those of conversations that are not stored.
pub(super) fn of_all(connection: &Connection, from_ms: u64) -> Result<Vec<DailyUse>, StoreError> {
    let mut days: BTreeMap<Key, TurnUse> = BTreeMap::new();
    let mut work = || {
        let sql = "SELECT e.event, e.at_ms, s.agent, s.owner FROM sessions s JOIN entries e ON e.session = s.key \
                   WHERE s.used_ms >= ?1 AND e.at_ms >= ?1 AND (e.event LIKE '{\"type\":\"turn_finished\"%' \
                   OR e.event LIKE '{\"type\":\"call_finished\"%')";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([signed(from_ms)])?;
        while let Some(row) = rows.next()? {
            let Ok(event) = serde_json::from_str::<Event>(row.get_ref(0)?.as_str().unwrap_or_default())
            else {
                continue;
            };
            let day = unsigned(row.get(1)?) / DAY_MS;
            let key = (day, row.get(2)?, row.get(3)?);
            days.entry(key).or_default().event(&event);
        }
        let sql = "SELECT used, day, agent, owner FROM unsaved WHERE day >= ?1";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([signed(from_ms / DAY_MS)])?;
        while let Some(row) = rows.next()? {
            let Ok(used) = serde_json::from_str(row.get_ref(0)?.as_str().unwrap_or_default()) else {
                continue;
            };
            let key = (unsigned(row.get(1)?), row.get(2)?, row.get(3)?);
            days.entry(key).or_default().add(&used);
        }
        rusqlite::Result::Ok(())
    };
    work().map_err(failed)?;
    let all = days.into_iter().map(|((day, agent, owner), mut of_day)| {
        let times = &mut of_day.times_us;
        times.sort_unstable();
        let at = |percent: usize| {
            times
                .get((times.len().saturating_sub(1)) * percent / 100)
                .copied()
        };
        let call_us = at(50).zip(at(95));
        // Without any price, no cost is incomplete.
        of_day.usage.unpriced &= of_day.cost_micros.is_some();
        DailyUse {
            day,
            agent,
            owner,
            turns: of_day.turns,
            failed_turns: of_day.failed_turns,
            usage: of_day.usage,
            cost_micros: of_day.cost_micros,
            calls: of_day.calls,
            failed_calls: of_day.failed_calls,
            denials: of_day.denials,
            call_us,
        }
    });
    Ok(all.collect())
}

/// Adds the use of a conversation that is not stored to that of its day, and removes what is older than [`KEPT_DAYS`].
pub(super) fn add_unsaved(
    transaction: &Connection,
    now_ms: i64,
    (agent, owner): (&str, &str),
    used: &TurnUse,
) -> rusqlite::Result<()> {
    let day = unsigned(now_ms) / DAY_MS;
    let sql = "SELECT used FROM unsaved WHERE day = ?1 AND agent = ?2 AND owner = ?3";
    let mut of_day: TurnUse = (transaction.prepare_cached(sql)?)
        .query_row((signed(day), agent, owner), |row| row.get::<_, String>(0))
        .optional()?
        .and_then(|json| serde_json::from_str(&json).ok())
        .unwrap_or_default();
    of_day.add(used);
    // Numbers and nothing else, which cannot fail.
    let json = serde_json::to_string(&of_day).unwrap_or_default();
    let sql = "INSERT OR REPLACE INTO unsaved (day, agent, owner, used) VALUES (?1, ?2, ?3, ?4)";
    (transaction.prepare_cached(sql)?).execute((signed(day), agent, owner, json))?;
    let sql = "DELETE FROM unsaved WHERE day <= ?1";
    (transaction.prepare_cached(sql)?).execute([signed(day.saturating_sub(KEPT_DAYS))])?;
    Ok(())
}
