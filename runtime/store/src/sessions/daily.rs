//! Use of turns and calls by day.

use std::collections::BTreeMap;

use rusqlite::Connection;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::Usage;
use toolcell_core::{Event, StoreError};

use super::failed;
use super::totals::{signed, unsigned};

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Maximum number of call times kept of a day and agent for its percentiles; of more, every later one replaces another.
const MAX_TIMES: usize = 10_000;

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

/// Reads the turns and calls that ended since a time.
pub(super) fn of_all(connection: &Connection, from_ms: u64) -> Result<Vec<DailyUse>, StoreError> {
    let mut days: BTreeMap<Key, (DailyUse, Vec<u64>)> = BTreeMap::new();
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
            let (agent, owner): (Option<String>, Option<String>) = (row.get(2)?, row.get(3)?);
            let (of_day, times) = days.entry((day, agent, owner)).or_default();
            count(of_day, times, &event);
        }
        rusqlite::Result::Ok(())
    };
    work().map_err(failed)?;
    let all = days
        .into_iter()
        .map(|((day, agent, owner), (mut of_day, mut times))| {
            times.sort_unstable();
            let at = |percent: usize| {
                times
                    .get((times.len().saturating_sub(1)) * percent / 100)
                    .copied()
            };
            // Without any price, no cost is incomplete.
            of_day.usage.unpriced &= of_day.cost_micros.is_some();
            DailyUse {
                day,
                agent,
                owner,
                call_us: at(50).zip(at(95)),
                ..of_day
            }
        });
    Ok(all.collect())
}

fn count(of_day: &mut DailyUse, times: &mut Vec<u64>, event: &Event) {
    match event {
        Event::TurnFinished {
            outcome,
            usage,
            cost_micros,
            ..
        } => {
            of_day.turns += 1;
            of_day.failed_turns += u64::from(is_failure(outcome));
            of_day
                .usage
                .add_turn(&mut of_day.cost_micros, *usage, *cost_micros);
        }
        Event::CallFinished { result, .. } => {
            of_day.calls += 1;
            of_day.failed_calls += u64::from(result.error.is_some());
            if let Some(receipt) = &result.receipt {
                of_day.denials += receipt.denials.len() as u64;
                if times.len() < MAX_TIMES {
                    times.push(receipt.wall_us);
                } else {
                    let at = usize::try_from(of_day.calls).unwrap_or(0) % MAX_TIMES;
                    times[at] = receipt.wall_us;
                }
            }
        }
        _ => {}
    }
}
