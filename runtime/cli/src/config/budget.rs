//! Session budgets by name: the configuration key, the unit, and the field of [`Budget`].

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;
use toolcell_agent::budget::{Budget, Prices};
use toolcell_core::suggest::nearest;

use super::source::{Origin, Source, Sourced};
use super::units::money::Money;
use super::units::quantity::{Unit, millis};
use super::units::{Bytes, Count, Span};
use crate::ui::escape;

/// Budget of a session, over all its turns. A turn ends when one of its parts is exhausted; unset parts are unlimited.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BudgetTable {
    /// Total fuel of all calls.
    #[schemars(with = "Option<Count>")]
    pub(crate) fuel: Option<Spanned<Count>>,
    /// Total wall time of all turns, such as `10m`.
    #[schemars(with = "Option<Span>")]
    pub(crate) wall: Option<Spanned<Span>>,
    /// Total wall time of all calls, such as `1m`.
    #[schemars(with = "Option<Span>")]
    pub(crate) call_wall: Option<Spanned<Span>>,
    /// Total size of the results of all calls.
    #[schemars(with = "Option<Bytes>")]
    pub(crate) bytes: Option<Spanned<Bytes>>,
    /// Number of tool calls.
    #[schemars(with = "Option<Count>")]
    pub(crate) calls: Option<Spanned<Count>>,
    /// Number of tokens, input and output together.
    #[schemars(with = "Option<Count>")]
    pub(crate) tokens: Option<Spanned<Count>>,
    /// Cost, in the unit of `[prices]`, which must name the model.
    #[schemars(with = "Option<Money>")]
    pub(crate) cost: Option<Spanned<Money>>,
}

/// Prices of a million tokens of a model, in a currency of the user's choice.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PricesTable {
    /// Price of input tokens without a cache hit.
    pub(crate) input: Money,
    /// Price of output tokens, including reasoning tokens.
    pub(crate) output: Money,
    /// Price of input tokens read from a cache. Defaults to `input`.
    pub(crate) cache_read: Option<Money>,
    /// Price of input tokens written to a cache. Defaults to `input`.
    pub(crate) cache_write: Option<Money>,
}

/// Names of all budgets, in the order in which the loop checks them.
pub(crate) const NAMES: [&str; 7] = ["fuel", "wall", "call_wall", "bytes", "calls", "tokens", "cost"];

/// A budget and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedBudget {
    /// One of [`NAMES`].
    pub(crate) name: &'static str,
    /// Value in bytes, milliseconds, a count, or millionths of a unit of money.
    pub(crate) value: u64,
}

impl FromStr for NamedBudget {
    type Err = String;

    /// Parses `NAME=VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("a budget has the form NAME=VALUE, such as `calls=20` or `tokens=200k`")?;
        let Some(name) = NAMES.into_iter().find(|known| *known == name) else {
            let name = name.escape_debug();
            return Err(match nearest(&name.to_string(), &NAMES).first() {
                Some(near) => format!("there is no budget `{name}`; did you mean `{near}`?"),
                None => format!(
                    "there is no budget `{name}`; the budgets are {}",
                    NAMES.join(", ")
                ),
            });
        };
        let value = unit_of(name).read(value)?;
        Ok(Self { name, value })
    }
}

impl NamedBudget {
    /// Returns the flag that sets this budget.
    pub(crate) fn flag(self) -> String {
        let value = exactly(self.name, self.value).replace(' ', "");
        format!("--budget {}={value}", self.name)
    }

    /// Returns the configuration line that sets this budget.
    pub(crate) fn line(self) -> String {
        let value = exactly(self.name, self.value);
        // A number without a unit is also a TOML number.
        if value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return format!("[budget] {} = {value}", self.name);
        }
        format!("[budget] {} = {}", self.name, escape::toml(&value))
    }

    /// Sets the field of `budget`.
    fn set(self, budget: &mut Budget) {
        let field = match self.name {
            "fuel" => &mut budget.fuel,
            "wall" => &mut budget.wall_ms,
            "call_wall" => &mut budget.call_ms,
            "bytes" => &mut budget.bytes,
            "calls" => &mut budget.calls,
            "tokens" => &mut budget.tokens,
            "cost" => &mut budget.cost_micros,
            other => unreachable!("`{other}` is not the name of a budget"),
        };
        *field = Some(self.value);
    }
}

fn unit_of(name: &str) -> Unit {
    match name {
        "wall" | "call_wall" => Unit::Time,
        "bytes" => Unit::Bytes,
        "cost" => Unit::Money,
        _ => Unit::Count,
    }
}

/// Formats a value so that it parses back to exactly the same value.
pub(crate) fn exactly(name: &str, value: u64) -> String {
    unit_of(name).exactly(value)
}

/// Budgets that are set, each with its origin. Missing budgets are unlimited.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourcedBudget(BTreeMap<&'static str, Sourced<u64>>);

impl SourcedBudget {
    /// Sets one budget.
    pub(crate) fn set(&mut self, budget: NamedBudget, origin: Origin) {
        let value = budget.value;
        self.0.insert(budget.name, Sourced { value, origin });
    }

    /// Returns one budget, or `None` if it is unlimited.
    pub(crate) fn get(&self, name: &str) -> Option<&Sourced<u64>> {
        self.0.get(name)
    }

    /// Returns the budgets that are set, in the order of [`NAMES`].
    pub(crate) fn all(&self) -> impl Iterator<Item = (NamedBudget, &Origin)> {
        NAMES.into_iter().filter_map(|name| {
            let Sourced { value, origin } = self.0.get(name)?;
            Some((NamedBudget { name, value: *value }, origin))
        })
    }

    /// Converts to the budget type of the loop.
    pub(crate) fn budget(&self, prices: Option<Prices>) -> Budget {
        let mut budget = Budget {
            prices,
            ..Budget::default()
        };
        for (named, _) in self.all() {
            named.set(&mut budget);
        }
        budget
    }
}

/// Returns the budgets that a table sets, each with its origin.
pub(super) fn of_table(table: &BudgetTable, source: &Arc<Source>) -> Vec<(NamedBudget, Origin)> {
    fn entry<T: Copy>(
        name: &'static str,
        field: Option<&Spanned<T>>,
        value: fn(T) -> u64,
    ) -> Option<(NamedBudget, std::ops::Range<usize>)> {
        let field = field?;
        let value = value(*field.get_ref());
        Some((NamedBudget { name, value }, field.span()))
    }
    let count = |Count(value)| value;
    let time = |span: Span| millis(span);
    let BudgetTable {
        fuel,
        wall,
        call_wall,
        bytes,
        calls,
        tokens,
        cost,
    } = table;
    [
        entry("fuel", fuel.as_ref(), count),
        entry("wall", wall.as_ref(), time),
        entry("call_wall", call_wall.as_ref(), time),
        entry("bytes", bytes.as_ref(), |Bytes(value)| value),
        entry("calls", calls.as_ref(), count),
        entry("tokens", tokens.as_ref(), count),
        entry("cost", cost.as_ref(), |Money(value)| value),
    ]
    .into_iter()
    .flatten()
    .map(|(budget, span)| (budget, Origin::File(source.clone(), span)))
    .collect()
}

/// Converts a table of prices. Cached tokens cost as much as input tokens unless set.
pub(super) fn prices(table: &PricesTable) -> Prices {
    Prices {
        input: table.input.0,
        cache_read: table.cache_read.unwrap_or(table.input).0,
        cache_write: table.cache_write.unwrap_or(table.input).0,
        output: table.output.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_budget_has_name_that_sets_it_alone() {
        let fields = |budget: &Budget| {
            let value = serde_json::to_value(budget).unwrap();
            let fields = value.as_object().unwrap().clone();
            fields.values().filter(|value| !value.is_null()).count()
        };
        let mut all = SourcedBudget::default();
        for (i, name) in NAMES.into_iter().enumerate() {
            all.set(NamedBudget { name, value: 7 }, Origin::Default);
            assert_eq!(fields(&all.budget(None)), i + 1, "{name}");
        }
        assert_eq!(fields(&all.budget(Some(Prices::default()))), 8);
    }

    #[test]
    fn budget_is_read_in_its_own_unit_and_written_exactly() {
        for (text, value, written) in [
            ("calls=20", 20, "20"),
            ("tokens=200k", 200_000, "200 k"),
            ("wall=5m", 300_000, "300 s"),
            ("wall=0s", 0, "0 ms"),
            ("bytes=1 MiB", 1 << 20, "1 MiB"),
            ("cost=0.50", 500_000, "0.5"),
        ] {
            let budget: NamedBudget = text.parse().unwrap();
            assert_eq!(budget.value, value, "{text}");
            assert_eq!(exactly(budget.name, value), written);
            assert_eq!(format!("{}={written}", budget.name).parse(), Ok(budget));
        }
        let error = |text: &str| text.parse::<NamedBudget>().unwrap_err();
        assert_eq!(
            error("cals=1"),
            "there is no budget `cals`; did you mean `calls`?"
        );
        assert!(error("wall=60").contains("not a duration"));
        assert!(error("calls").contains("NAME=VALUE"));
    }

    #[test]
    fn budget_is_written_as_flag_and_configuration_line() {
        for (text, flag, line) in [
            ("calls=20", "--budget calls=20", "[budget] calls = 20"),
            ("cost=0.50", "--budget cost=0.5", "[budget] cost = 0.5"),
            ("wall=5m", "--budget wall=300s", "[budget] wall = \"300 s\""),
        ] {
            let budget: NamedBudget = text.parse().unwrap();
            assert_eq!(budget.flag(), flag);
            assert_eq!(budget.line(), line);
        }
    }

    #[test]
    fn cached_tokens_cost_as_much_as_input_unless_set() {
        let table = |cache_read, cache_write| PricesTable {
            input: Money(5),
            output: Money(7),
            cache_read,
            cache_write,
        };
        let of = |prices: Prices| (prices.input, prices.output, prices.cache_read, prices.cache_write);
        assert_eq!(of(prices(&table(None, None))), (5, 7, 5, 5));
        assert_eq!(of(prices(&table(Some(Money(1)), Some(Money(2))))), (5, 7, 1, 2));
    }
}
