//! Budgets of sessions, over all their turns. An exhausted budget ends a turn cleanly, with a reason for the user and
//! the model.
//!
//! Every operation reserves the maximum that it can use before it starts (`reserve`), and is charged its actual use
//! when it ends, so that the sum stays within the budget for any concurrency. A call gets its reservation as a limit in
//! addition to its own limits; an agent that runs as a call gets it as its budget. Requests run one at a time: the
//! length of the conversation is their estimated input, and the rest limits the answer.
//!
//! | unit | may be exceeded by |
//! |---|---|
//! | fuel | nothing |
//! | calls | nothing; calls that were waiting to start when the process was killed are counted |
//! | bytes | the marker in the last truncated result, or the text of its error; what the calls of an agent exceed, for each level of agents; the error results of calls that were running when the process was killed |
//! | call time | the delay until the end of one call is noticed |
//! | tokens, cost | the error of the estimate for each request that runs at the same time, of which agents have several; the use of a request that was running when the process was killed is unknown |

pub(crate) mod client;
pub(crate) mod reserve;

use serde::{Deserialize, Serialize};
pub use toolcell_core::provider::Prices;
use toolcell_core::provider::Usage;
use toolcell_core::{Limit, Receipt, RemainingBudget};

use self::reserve::Amounts;

/// Minimum size of an answer for a request to be sent, in tokens. Some providers accept no smaller limit.
pub(crate) const MIN_OUTPUT_TOKENS: u64 = 16;

/// Budget of a session; `None` means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Fuel of all calls.
    pub fuel: Option<u64>,
    /// Wall time of all turns without pauses, in milliseconds. A turn ends when it is used up, whatever it waits for.
    pub wall_ms: Option<u64>,
    /// Wall time of all calls, in milliseconds.
    pub call_ms: Option<u64>,
    /// Bytes returned by all calls.
    pub bytes: Option<u64>,
    /// Number of calls.
    pub calls: Option<u64>,
    /// Tokens, input and output combined.
    pub tokens: Option<u64>,
    /// Cost in millionths of the currency unit of [`Budget::prices`]. Needs prices.
    pub cost_micros: Option<u64>,
    /// Token prices.
    pub prices: Option<Prices>,
}

/// Resources used by a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Fuel of all cells.
    pub fuel: u64,
    /// Wall time of turns, in milliseconds.
    pub wall_ms: u64,
    /// Wall time of calls, in microseconds.
    pub call_us: u64,
    /// Bytes returned by calls.
    pub bytes: u64,
    /// Number of calls that ran.
    pub calls: u64,
    /// Tokens of the session itself, and of agents that ran as its calls without prices of their own.
    pub usage: Usage,
    /// Tokens with prices of their own: those of agents that ran as its calls, and of other models that answered.
    pub agents: Usage,
    /// Cost of those tokens, in millionths of the currency unit.
    pub agents_micros: u64,
}

impl Spent {
    /// Adds a finished call.
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

    /// Adds the use of a call that is suspended. The call itself counts when it ends.
    pub(crate) fn count_suspended(&mut self, receipt: Option<&Receipt>) {
        let calls = self.calls;
        self.count_call(0, receipt);
        let inside = self.calls.saturating_sub(calls).saturating_sub(1);
        self.calls = calls.saturating_add(inside);
    }

    /// Adds the tokens of a request, at the prices of the model that answered.
    pub(crate) fn count_usage(&mut self, usage: Usage) {
        match usage.cost_micros {
            Some(cost) => {
                self.agents.add(usage);
                self.agents_micros = self.agents_micros.saturating_add(cost);
            }
            None => self.usage.add(usage),
        }
    }

    /// Use of a finished call, in the units of a reservation. `prices` are those of the session.
    pub(crate) fn of_call(bytes: u64, receipt: Option<&Receipt>, prices: Option<&Prices>) -> Amounts {
        let mut spent = Self::default();
        spent.count_call(bytes, receipt);
        [
            spent.fuel,
            spent.call_us.div_ceil(1_000),
            spent.calls,
            spent.bytes,
            spent.tokens(),
            prices.map_or(spent.agents_micros, |prices| spent.cost_micros(prices)),
        ]
    }

    /// Adds the fuel of a hook that ran in a cell.
    pub fn count_hook(&mut self, receipt: &Receipt) {
        self.fuel = self.fuel.saturating_add(receipt.fuel);
    }

    /// All tokens, by their kind.
    pub fn all_usage(&self) -> Usage {
        let mut all = self.usage;
        all.add(self.agents);
        all
    }

    /// All tokens, input and output combined.
    pub fn tokens(&self) -> u64 {
        self.all_usage().total()
    }

    /// Cost since `before`, as far as it is known: without prices of the session, that of the tokens with prices of their own;
    /// `None` without any. Also true if the tokens of the session itself have no price while others have one.
    pub fn cost_since(&self, before: &Self, prices: Option<&Prices>) -> (Option<u64>, bool) {
        let of = |spent: &Self| spent.cost_micros(prices.unwrap_or(&Prices::default()));
        let cost = of(self).saturating_sub(of(before));
        let is_known = prices.is_some() || cost > 0;
        let own = self.usage.total().saturating_sub(before.usage.total());
        (is_known.then_some(cost), is_known && prices.is_none() && own > 0)
    }

    /// Word before a number of tokens or a cost that has estimates.
    fn about(&self) -> &'static str {
        if self.all_usage().estimated { "about " } else { "" }
    }

    /// Cost of the tokens, in millionths of the currency unit of the prices.
    pub fn cost_micros(&self, prices: &Prices) -> u64 {
        prices.cost_micros(&self.usage).saturating_add(self.agents_micros)
    }
}

/// Maximum use of a call: that of its tool, the call itself and its result of up to `result` bytes.
pub(crate) fn most_of_call(tool: RemainingBudget, result: u64) -> RemainingBudget {
    let plus = |most: Option<u64>, own: u64| most.map(|most| most.saturating_add(own));
    RemainingBudget {
        calls: plus(tool.calls, 1),
        bytes: plus(tool.bytes, result),
        ..tool
    }
}

/// Rest of a reservation after this use.
pub(crate) fn without(grant: RemainingBudget, used: Amounts) -> RemainingBudget {
    let [fuel, call_ms, calls, bytes, tokens, cost_micros] = used;
    let minus = |left: Option<u64>, used: u64| left.map(|left| left.saturating_sub(used));
    RemainingBudget {
        fuel: minus(grant.fuel, fuel),
        call_ms: minus(grant.call_ms, call_ms),
        calls: minus(grant.calls, calls),
        bytes: minus(grant.bytes, bytes),
        tokens: minus(grant.tokens, tokens),
        cost_micros: minus(grant.cost_micros, cost_micros),
        ..grant
    }
}

impl Budget {
    /// Reason for the end of a turn whose time is used up.
    pub(crate) fn out_of_time(limit: u64) -> String {
        format!("the budget of {limit} ms of time is used up")
    }

    /// Reason for the end of a turn whose answer exceeded the remaining tokens.
    pub(crate) fn answer_too_long(tokens: u64) -> String {
        format!("the answer is longer than the {tokens} tokens that the budget left for it")
    }

    /// Remaining budget after this use.
    pub fn left(&self, spent: &Spent) -> RemainingBudget {
        let minus = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        RemainingBudget {
            fuel: minus(self.fuel, spent.fuel),
            wall_ms: minus(self.wall_ms, spent.wall_ms),
            call_ms: minus(self.call_ms, spent.call_us.div_ceil(1_000)),
            calls: minus(self.calls, spent.calls),
            bytes: minus(self.bytes, spent.bytes),
            tokens: minus(self.tokens, spent.tokens()),
            cost_micros: minus(
                self.cost_micros,
                self.prices.map_or(0, |prices| spent.cost_micros(&prices)),
            ),
            prices: self.prices,
        }
    }

    /// Budget of a session that has used `spent` and may use `left` more. `own` are its own prices; without them its
    /// tokens are priced by the calling session.
    pub(crate) fn of_what_others_leave(left: RemainingBudget, spent: &Spent, own: Option<Prices>) -> Self {
        let plus = |left: Option<u64>, used: u64| left.map(|left| left.saturating_add(used));
        let prices = own.or(left.prices).unwrap_or_default();
        Self {
            fuel: plus(left.fuel, spent.fuel),
            wall_ms: plus(left.wall_ms, spent.wall_ms),
            call_ms: plus(left.call_ms, spent.call_us.div_ceil(1_000)),
            bytes: plus(left.bytes, spent.bytes),
            calls: plus(left.calls, spent.calls),
            tokens: plus(left.tokens, spent.tokens()),
            cost_micros: plus(left.cost_micros, spent.cost_micros(&prices)),
            prices: left.cost_micros.map(|_| prices),
        }
    }

    /// Maximum tokens of the answer to a request with an input of so many tokens; `None` means unlimited.
    ///
    /// # Errors
    /// The reason, if the rest of the budget is too small for such a request.
    pub(crate) fn output_left(&self, spent: &Spent, input: u64) -> Result<Option<u64>, String> {
        let left = self.left(spent);
        let by_tokens = left.tokens.map(|left| left.checked_sub(input));
        let by_cost = left.cost_micros.zip(self.prices).map(|(left, prices)| {
            // Cache hits cannot be predicted.
            let dearest = prices.input.max(prices.cache_write);
            let micros = u128::from(left) * 1_000_000;
            let rest = micros.checked_sub(u128::from(input) * u128::from(dearest))?;
            let output = rest.checked_div(u128::from(prices.output));
            Some(output.map_or(u64::MAX, |output| u64::try_from(output).unwrap_or(u64::MAX)))
        });
        let enough = |output: Option<u64>| output.filter(|output| *output >= MIN_OUTPUT_TOKENS);
        let of = |what: String| {
            Err(format!(
                "the budget of {what} does not suffice for another request of some {input} tokens"
            ))
        };
        match (by_tokens, by_cost) {
            (Some(by_tokens), _) if enough(by_tokens).is_none() => {
                let (total, used) = (self.tokens.unwrap_or_default(), spent.tokens());
                of(format!(
                    "{} ({}{used} {} used)",
                    amount(total, "tokens"),
                    spent.about(),
                    were(used)
                ))
            }
            (_, Some(by_cost)) if enough(by_cost).is_none() => of(format!(
                "{} in money ({}{} were used)",
                units(self.cost_micros.unwrap_or_default()),
                spent.about(),
                units(self.prices.map_or(0, |prices| spent.cost_micros(&prices)))
            )),
            (by_tokens, by_cost) => Ok([by_tokens.flatten(), by_cost.flatten()]
                .into_iter()
                .flatten()
                .min()),
        }
    }

    /// Describes the part of the budget that ended a call: `limit` is the one that it reached, which was the rest of this
    /// budget; `spent` includes the call, and `used` is its use.
    pub(crate) fn ended(&self, spent: &Spent, limit: &Limit, used: &Amounts) -> Option<String> {
        let [fuel, call_ms, _, bytes, ..] = *used;
        let (rest, total, spent, used, unit) = match *limit {
            Limit::Fuel(rest) => (rest, self.fuel, spent.fuel, fuel, "units of fuel"),
            Limit::WallTimeMs(rest) => {
                let spent = spent.call_us.div_ceil(1_000);
                (rest, self.call_ms, spent, call_ms, "ms of tool time")
            }
            Limit::Output(rest) => (rest, self.bytes, spent.bytes, bytes, "bytes of results"),
            _ => return None,
        };
        let total = total?;
        let left = total.saturating_sub(spent.saturating_sub(used));
        (left <= rest).then(|| {
            let (total, were) = (amount(total, unit), were(spent));
            format!("the budget of {total} does not suffice for another call ({spent} {were} used)")
        })
    }

    /// Describes the first part of the budget that is used up; `None` if none is.
    pub fn exceeded(&self, spent: &Spent) -> Option<String> {
        let parts = [
            (self.fuel, spent.fuel, "units of fuel"),
            (self.wall_ms, spent.wall_ms, "ms of time"),
            (self.call_ms, spent.call_us.div_ceil(1_000), "ms of tool time"),
            (self.bytes, spent.bytes, "bytes of results"),
            (self.calls, spent.calls, "calls"),
            (self.tokens, spent.tokens(), "tokens"),
        ];
        for (limit, used, unit) in parts {
            if let Some(limit) = limit
                && used >= limit
            {
                let (limit, were) = (amount(limit, unit), were(used));
                let about = if unit == "tokens" { spent.about() } else { "" };
                return Some(format!(
                    "the budget of {limit} is used up ({about}{used} {were} used)"
                ));
            }
        }
        if let (Some(limit), Some(prices)) = (self.cost_micros, &self.prices) {
            let used = spent.cost_micros(prices);
            if used >= limit {
                return Some(format!(
                    "the budget of {} in money is used up ({}{} were used)",
                    units(limit),
                    spent.about(),
                    units(used)
                ));
            }
        }
        None
    }
}

/// Returns a number with its unit: "2 calls", "1 call", "1 unit of fuel", "1 ms of time".
fn amount(number: u64, units: &str) -> String {
    if number != 1 || units.starts_with("ms") {
        return format!("{number} {units}");
    }
    match units.split_once(' ') {
        Some((units, of)) => format!("1 {} {of}", units.trim_end_matches('s')),
        None => format!("1 {}", units.trim_end_matches('s')),
    }
}

fn were(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
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
    fn amount_has_its_unit() {
        for (number, units, expected) in [
            (0, "calls", "0 calls"),
            (1, "calls", "1 call"),
            (1, "tokens", "1 token"),
            (1, "units of fuel", "1 unit of fuel"),
            (1, "bytes of results", "1 byte of results"),
            (1, "ms of time", "1 ms of time"),
            (2, "units of fuel", "2 units of fuel"),
        ] {
            assert_eq!(amount(number, units), expected);
        }
    }

    #[test]
    fn tokens_of_another_model_count_at_its_prices() {
        let prices = Prices {
            input: 3_000_000,
            output: 15_000_000,
            ..Prices::default()
        };
        let tokens = Usage {
            input: 1_000_000,
            output: 1_000_000,
            ..Usage::default()
        };
        let mut spent = Spent::default();
        spent.count_usage(tokens);
        assert_eq!(spent.cost_micros(&prices), 18_000_000);
        spent.count_usage(Usage {
            cost_micros: Some(1_500_000),
            ..tokens
        });
        assert_eq!(spent.cost_micros(&prices), 19_500_000);
        assert_eq!(spent.tokens(), 4_000_000);
    }

    #[test]
    fn budget_ends_at_its_last_unit_and_names_it() {
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
        let one = |budget: Budget| budget.exceeded(&spent).unwrap();
        let (calls, bytes) = (Some(1), Some(1));
        assert_eq!(
            one(Budget {
                calls,
                ..Budget::default()
            }),
            "the budget of 1 call is used up (3 were used)"
        );
        assert_eq!(
            one(Budget {
                bytes,
                ..Budget::default()
            }),
            "the budget of 1 byte of results is used up (30 were used)"
        );
    }

    #[test]
    fn rest_of_a_budget_and_own_limit_of_a_call_are_distinguished() {
        let budget = Budget {
            fuel: Some(1_000),
            call_ms: Some(100),
            bytes: Some(50),
            ..Budget::default()
        };
        let spent = Spent {
            fuel: 1_000,
            call_us: 99_001,
            bytes: 40,
            ..Spent::default()
        };
        let used = [300, 40, 1, 5, 0, 0];
        let ended = |limit| budget.ended(&spent, &limit, &used);
        for (limit, unit) in [
            (
                Limit::Fuel(300),
                "1000 units of fuel does not suffice for another call (1000 were used)",
            ),
            (
                Limit::WallTimeMs(40),
                "100 ms of tool time does not suffice for another call (100 were used)",
            ),
            (
                Limit::Output(15),
                "50 bytes of results does not suffice for another call (40 were used)",
            ),
        ] {
            let reason = ended(limit).unwrap();
            assert_eq!(reason, format!("the budget of {unit}"));
        }
        // One unit less was the tool's own limit: the budget had more.
        for limit in [
            Limit::Fuel(299),
            Limit::WallTimeMs(39),
            Limit::Output(14),
            Limit::Memory(1),
        ] {
            assert_eq!(ended(limit), None);
        }
        assert_eq!(Budget::default().ended(&spent, &Limit::Fuel(300), &used), None);
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
        assert_eq!(of(Some(501), Some(4)).exceeded(&spent), None);
        assert!(of(Some(500), None).exceeded(&spent).is_some());
        assert!(of(None, Some(3)).exceeded(&spent).is_some());
    }

    #[test]
    fn agents_without_prices_count_with_those_of_the_session() {
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
        // A session that has spent nothing yet and one that has: both reach the limit at the same point.
        for before in [Spent::default(), spent] {
            let of_others = Budget::of_what_others_leave(left, &before, Some(prices));
            assert_eq!(of_others.left(&before), left);
        }
    }

    #[test]
    fn cost_is_the_sum_over_the_kinds_of_tokens() {
        let spent = Spent {
            usage: Usage {
                input: 1_000_000,
                cache_read: 400_000,
                cache_write: 100_000,
                output: 200_000,
                reasoning: 50_000,
                ..Usage::default()
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

    #[test]
    fn time_of_calls_is_counted_in_whole_milliseconds() {
        // A millisecond counts when it has begun, as in reservations.
        let spent = Spent {
            call_us: 2_001,
            ..Spent::default()
        };
        let budget = Budget {
            call_ms: Some(10),
            ..Budget::default()
        };
        assert_eq!(budget.left(&spent).call_ms, Some(7));
        let more = RemainingBudget {
            call_ms: Some(5),
            ..RemainingBudget::default()
        };
        let whole = Budget::of_what_others_leave(more, &spent, None);
        assert_eq!((whole.call_ms, whole.left(&spent).call_ms), (Some(8), Some(5)));
    }

    #[test]
    fn too_long_answer_names_the_remaining_tokens() {
        assert!(Budget::answer_too_long(17).contains("17 tokens"));
    }
}
