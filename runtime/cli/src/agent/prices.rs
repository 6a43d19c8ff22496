//! Prices of the model that an agent asks.

use std::collections::BTreeMap;

use toolcell_agent::budget::Prices;

use crate::config::budget::SourcedBudget;
use crate::config::user_files::user_file_shown;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::terminal::text;

/// What the tokens of a model cost, where a budget of money needs to know it.
///
/// # Errors
/// When it does, and nobody said it: the budget would never be used up.
pub(crate) fn of_model(
    budget: &SourcedBudget,
    prices: &BTreeMap<String, Prices>,
    model: &str,
    environment: &Environment,
) -> Result<Option<Prices>, Failure> {
    let known = prices.get(model).copied();
    match budget.get("cost") {
        Some(cost) if known.is_none() => Err(Failure::new(
            Exit::Config,
            text!("the budget `cost` needs to know what `{}` costs", model),
        )
        .why(cost.origin.point_at())
        .hint(text!(
            "say what a million tokens cost, in {}: [prices.{}] input = …, output = …",
            user_file_shown(environment),
            escape::toml(model)
        ))),
        _ => Ok(known),
    }
}
