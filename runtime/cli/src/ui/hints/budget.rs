//! Hints that raise a budget.

use toolcell_agent::budget::{Prices, Spent};
use toolcell_core::provider::Usage;

use crate::config::budget::{NamedBudget, SourcedBudget};
use crate::config::{Origin, Settings};
use crate::environment::Environment;

/// Hints that raise the budget that ended a turn.
pub(crate) struct BudgetHints {
    budget: SourcedBudget,
    prices: Option<Prices>,
    user_file: String,
    /// True if the command has the flag `--budget`.
    has_flag: bool,
}

impl BudgetHints {
    /// Creates hints for the budgets of these settings.
    pub(crate) fn new(settings: &Settings, prices: Option<Prices>, environment: &Environment) -> Self {
        Self {
            budget: settings.budget.clone(),
            prices,
            user_file: crate::config::user_files::user_file_shown(environment),
            has_flag: true,
        }
    }

    /// Leaves out the flag.
    pub(crate) fn without_flag(mut self) -> Self {
        self.has_flag = false;
        self
    }

    /// Returns a flag and a configuration line with twice the allowed or used amount, for the first exhausted budget,
    /// or else for the one with the highest share in use: time may run out while a turn waits, and the rest may not
    /// suffice for another request. Of tokens and cost it is at least twice what the session has used and the next request,
    /// of `request` tokens, needs.
    pub(crate) fn of(&self, spent: &Spent, request: u64) -> Option<String> {
        let used = |named: NamedBudget| match named.name {
            "fuel" => spent.fuel,
            "wall" => spent.wall_ms,
            "call_wall" => spent.call_us / 1_000,
            "bytes" => spent.bytes,
            "calls" => spent.calls,
            "tokens" => spent.tokens(),
            _ => self.prices.map_or(0, |prices| spent.cost_micros(&prices)),
        };
        // Of a request with an answer of usual length.
        let next = Usage {
            input: request,
            output: ANSWER_TOKENS,
            ..Usage::default()
        };
        let needed = |named: NamedBudget| match named.name {
            "tokens" => used(named).saturating_add(next.input).saturating_add(next.output),
            "cost" => {
                let next = self.prices.map_or(0, |prices| prices.cost_micros(&next));
                used(named).saturating_add(next)
            }
            _ => used(named),
        };
        let share = |named: NamedBudget| u128::from(needed(named)) * 1_000 / u128::from(named.value.max(1));
        let is_used_up = |named: NamedBudget| used(named) >= named.value;
        let (named, origin) = self
            .budget
            .all()
            .find(|(named, _)| is_used_up(*named))
            .or_else(|| self.budget.all().max_by_key(|(named, _)| share(*named)))?;
        let twice = named.value.max(needed(named)).max(1).saturating_mul(2);
        let more = NamedBudget {
            value: match named.name {
                "tokens" | "cost" => rounded(twice),
                _ => twice,
            },
            ..named
        };
        let file = match origin {
            Origin::File(source, _) => &source.shown,
            _ => &self.user_file,
        };
        Some(match self.has_flag {
            true => format!(
                "raise the budget with {}\nor, in {file}: {}",
                more.flag(),
                more.line()
            ),
            false => format!("raise the budget, in {file}: {}", more.line()),
        })
    }
}

/// Tokens of an answer of usual length.
const ANSWER_TOKENS: u64 = 1_000;

/// Rounds up to three digits, so that the proposed number is easy to read.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(2));
    number.checked_next_multiple_of(unit).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_of_tokens_in_a_hint_suffices_for_the_next_request() {
        let mut budget = SourcedBudget::default();
        budget.set(
            NamedBudget {
                name: "tokens",
                value: 500,
            },
            Origin::Default,
        );
        let hints = BudgetHints {
            budget,
            prices: None,
            user_file: "c.toml".into(),
            has_flag: true,
        };
        let mut spent = Spent::default();
        let of = |spent: &Spent| hints.of(spent, 9_000).unwrap();
        assert!(of(&spent).contains("--budget tokens=20k"), "{}", of(&spent));
        spent.usage.input = 20_123;
        assert!(of(&spent).contains("--budget tokens=60300"), "{}", of(&spent));
    }
}
