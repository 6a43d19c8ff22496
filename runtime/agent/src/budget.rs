//! What a whole session may use, over all its turns. A budget ends a turn cleanly, with a reason that a person and a
//! model can read; it is checked before each request and each call, so that what was begun is finished. Time ends what was
//! begun, and a call has what is left of fuel and time as its limit, whatever its own limits are. Agents that run as calls
//! count with all that they use, while they run.

use serde::{Deserialize, Serialize};
use toolcell_core::provider::Usage;
use toolcell_core::{Left, Receipt};

/// What a session may use; `None` means as much as it wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Units of fuel of all calls together.
    pub fuel: Option<u64>,
    /// Milliseconds of wall time of all turns together, without the time in which they were paused. A turn ends when they
    /// are used up, whatever it waits for.
    pub wall_ms: Option<u64>,
    /// Milliseconds of wall time of all calls together.
    pub call_ms: Option<u64>,
    /// Bytes that all calls return together.
    pub bytes: Option<u64>,
    /// Calls.
    pub calls: Option<u64>,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// Money, in millionths of the unit in which [`Budget::prices`] are given. Needs prices.
    pub cost_micros: Option<u64>,
    /// What tokens cost.
    pub prices: Option<Prices>,
}

/// Prices of one million tokens each, in millionths of a unit of money of the user's choice (3 dollars are 3,000,000).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Input tokens that no cache held.
    pub input: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens, with those of reasoning.
    pub output: u64,
}

/// What a session has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Units of fuel.
    pub fuel: u64,
    /// Milliseconds of wall time of turns.
    pub wall_ms: u64,
    /// Microseconds of wall time of calls.
    pub call_us: u64,
    /// Bytes that calls returned.
    pub bytes: u64,
    /// Calls that ran.
    pub calls: u64,
    /// Tokens of the session itself, and of agents that ran as its calls and know no prices.
    pub usage: Usage,
    /// Tokens of agents that ran as its calls and know what they cost.
    pub agents: Usage,
    /// What those cost, in millionths of a unit of money.
    pub agents_micros: u64,
}

impl Spent {
    /// Counts a call that ended.
    pub fn count_call(&mut self, bytes: u64, receipt: Option<&Receipt>) {
        self.calls = self.calls.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(receipt) = receipt {
            self.fuel = self.fuel.saturating_add(receipt.fuel);
            self.call_us = self.call_us.saturating_add(receipt.wall_us);
        }
        if let Some(agent) = receipt.and_then(|receipt| receipt.agent.as_deref()) {
            self.calls = self.calls.saturating_add(agent.calls);
            self.bytes = self.bytes.saturating_add(agent.bytes);
            match agent.cost_micros {
                Some(cost) => {
                    self.agents.add(agent.usage);
                    self.agents_micros = self.agents_micros.saturating_add(cost);
                }
                None => self.usage.add(agent.usage),
            }
        }
    }

    /// Counts the fuel of a hook that ran in a cell.
    pub fn count_hook(&mut self, receipt: &Receipt) {
        self.fuel = self.fuel.saturating_add(receipt.fuel);
    }

    /// All tokens together, input and output.
    pub fn tokens(&self) -> u64 {
        let mut all = self.usage;
        all.add(self.agents);
        all.input.saturating_add(all.output)
    }

    /// What the tokens cost, in millionths of the unit of the prices.
    pub fn cost_micros(&self, prices: &Prices) -> u64 {
        let usage = &self.usage;
        let fresh = usage
            .input
            .saturating_sub(usage.cache_read)
            .saturating_sub(usage.cache_write);
        let sum = [
            (fresh, prices.input),
            (usage.cache_read, prices.cache_read),
            (usage.cache_write, prices.cache_write),
            (usage.output, prices.output),
        ]
        .into_iter()
        .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
        .sum::<u128>();
        u64::try_from(sum / 1_000_000)
            .unwrap_or(u64::MAX)
            .saturating_add(self.agents_micros)
    }
}

impl Budget {
    /// The reason for which a turn ends when its time is used up.
    pub(crate) fn out_of_time(limit: u64) -> String {
        format!("the budget of {limit} ms of time is used up")
    }

    /// What is left of it.
    pub fn left(&self, spent: &Spent) -> Left {
        let minus = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let wall = minus(self.wall_ms, spent.wall_ms);
        let call = minus(self.call_ms, spent.call_us / 1_000);
        Left {
            fuel: minus(self.fuel, spent.fuel),
            wall_ms: wall.map_or(call, |wall| Some(call.map_or(wall, |call| call.min(wall)))),
            calls: minus(self.calls, spent.calls),
            bytes: minus(self.bytes, spent.bytes),
            tokens: minus(self.tokens, spent.tokens()),
            cost_micros: minus(
                self.cost_micros,
                self.prices.map_or(0, |prices| spent.cost_micros(&prices)),
            ),
        }
    }

    /// The budget of a session that has spent this much, and of which others leave it that much more. `prices` are its own.
    pub(crate) fn of_what_others_leave(left: Left, spent: &Spent, prices: Option<Prices>) -> Self {
        let plus = |left: Option<u64>, used: u64| left.map(|left| left.saturating_add(used));
        let (cost_micros, prices) = match (left.cost_micros, prices) {
            // Without prices of its own its tokens are counted by those of the session that asked.
            (Some(0), None) => (Some(0), Some(Prices::default())),
            (Some(left), Some(prices)) => (
                Some(left.saturating_add(spent.cost_micros(&prices))),
                Some(prices),
            ),
            _ => (None, None),
        };
        Self {
            fuel: plus(left.fuel, spent.fuel),
            wall_ms: plus(left.wall_ms, spent.wall_ms),
            call_ms: None,
            bytes: plus(left.bytes, spent.bytes),
            calls: plus(left.calls, spent.calls),
            tokens: plus(left.tokens, spent.tokens()),
            cost_micros,
            prices,
        }
    }

    /// The first part of the budget that is used up, in words; `None` while there is some of everything.
    pub fn exceeded(&self, spent: &Spent) -> Option<String> {
        let parts = [
            (self.fuel, spent.fuel, "units of fuel"),
            (self.wall_ms, spent.wall_ms, "ms of time"),
            (self.call_ms, spent.call_us / 1_000, "ms of tool time"),
            (self.bytes, spent.bytes, "bytes of results"),
            (self.calls, spent.calls, "calls"),
            (self.tokens, spent.tokens(), "tokens"),
        ];
        for (limit, used, unit) in parts {
            if let Some(limit) = limit
                && used >= limit
            {
                return Some(format!(
                    "the budget of {limit} {unit} is used up ({used} were used)"
                ));
            }
        }
        if let (Some(limit), Some(prices)) = (self.cost_micros, &self.prices) {
            let used = spent.cost_micros(prices);
            if used >= limit {
                return Some(format!(
                    "the budget of {} in money is used up ({} were used)",
                    units(limit),
                    units(used)
                ));
            }
        }
        None
    }
}

/// Millionths as a decimal number.
fn units(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_holds_up_to_its_last_unit_and_then_says_which_one_is_used_up() {
        let budget = Budget {
            calls: Some(3),
            ..Budget::default()
        };
        let mut spent = Spent::default();
        spent.count_call(10, None);
        spent.count_call(10, None);
        assert_eq!(budget.exceeded(&spent), None);
        spent.count_call(10, None);
        assert_eq!(
            budget.exceeded(&spent).as_deref(),
            Some("the budget of 3 calls is used up (3 were used)")
        );
    }

    #[test]
    fn receipts_count_towards_fuel_and_time() {
        let mut spent = Spent::default();
        let receipt = Receipt {
            fuel: 500,
            wall_us: 2_500,
            ..Receipt::default()
        };
        spent.count_call(0, Some(&receipt));
        let of = |fuel, call_ms| Budget {
            fuel,
            call_ms,
            ..Budget::default()
        };
        assert_eq!(of(Some(501), Some(3)).exceeded(&spent), None);
        assert!(of(Some(500), None).exceeded(&spent).is_some());
        assert!(of(None, Some(2)).exceeded(&spent).is_some());
    }

    #[test]
    fn agents_count_with_their_own_prices_and_with_those_of_the_session_where_they_know_none() {
        let prices = Prices {
            input: 1_000_000,
            ..Prices::default()
        };
        let mut spent = Spent::default();
        for cost_micros in [Some(5_000_000), None] {
            let agent = toolcell_core::AgentUse {
                steps: 2,
                calls: 3,
                bytes: 10,
                usage: Usage {
                    input: 1_000_000,
                    output: 7,
                    ..Usage::default()
                },
                cost_micros,
            };
            let receipt = Receipt {
                agent: Some(Box::new(agent)),
                ..Receipt::default()
            };
            spent.count_call(1, Some(&receipt));
        }
        assert_eq!((spent.calls, spent.bytes, spent.tokens()), (8, 22, 2_000_014));
        assert_eq!(spent.cost_micros(&prices), 6_000_000);
        let budget = Budget {
            calls: Some(10),
            tokens: Some(2_000_014),
            cost_micros: Some(6_500_000),
            prices: Some(prices),
            ..Budget::default()
        };
        let left = budget.left(&spent);
        assert_eq!(
            (left.calls, left.tokens, left.cost_micros),
            (Some(2), Some(0), Some(500_000))
        );
        assert_eq!(left.used_up(), Some("tokens"));
        // A session that has spent nothing yet and one that has: both reach their end together.
        for before in [Spent::default(), spent] {
            let of_others = Budget::of_what_others_leave(left, &before, Some(prices));
            assert_eq!(of_others.left(&before), left);
        }
    }

    #[test]
    fn money_is_counted_from_the_price_of_each_kind_of_token() {
        let spent = Spent {
            usage: Usage {
                input: 1_000_000,
                cache_read: 400_000,
                cache_write: 100_000,
                output: 200_000,
                reasoning: 50_000,
            },
            ..Spent::default()
        };
        let prices = Prices {
            input: 3_000_000,
            cache_read: 300_000,
            cache_write: 3_750_000,
            output: 15_000_000,
        };
        // 0.5 x 3 + 0.4 x 0.3 + 0.1 x 3.75 + 0.2 x 15
        assert_eq!(spent.cost_micros(&prices), 4_995_000);
        let budget = |cost| Budget {
            cost_micros: Some(cost),
            prices: Some(prices),
            ..Budget::default()
        };
        assert_eq!(budget(4_995_001).exceeded(&spent), None);
        assert_eq!(
            budget(4_500_000).exceeded(&spent).as_deref(),
            Some("the budget of 4.5 in money is used up (4.995 were used)")
        );
    }
}
