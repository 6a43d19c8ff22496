//! Prices of the agent's model.

use std::collections::BTreeMap;

use toolcell_agent::budget::Prices;

use crate::agent::model::Chosen;
use crate::config::Sourced;
use crate::config::budget::SourcedBudget;
use crate::config::user_files::user_file_shown;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::escape;
use crate::ui::terminal::text;

/// Returns the prices of the model that is asked first. Its fallbacks have their own.
///
/// # Errors
/// Returns an error if a cost budget is set and one of the models has no prices: the budget would never be exhausted.
pub(crate) fn of(
    chosen: &Chosen,
    budget: &SourcedBudget,
    prices: &BTreeMap<String, Sourced<Prices>>,
    environment: &Environment,
) -> Result<Option<Prices>, Failure> {
    for fallback in &chosen.fallbacks {
        of_model(budget, prices, fallback, environment)?;
    }
    of_model(budget, prices, &chosen.provider.info().model, environment)
}

fn of_model(
    budget: &SourcedBudget,
    prices: &BTreeMap<String, Sourced<Prices>>,
    model: &str,
    environment: &Environment,
) -> Result<Option<Prices>, Failure> {
    let known = prices.get(model).map(|prices| prices.value);
    match budget.get("cost") {
        Some(cost) if known.is_none() => Err(Failure::new(
            Exit::Config,
            text!("the budget `cost` needs prices for `{}`", model),
        )
        .why(cost.origin.point_at())
        .hint(text!(
            "set the price of a million tokens, in {}: [prices.{}] input = …, output = …",
            user_file_shown(environment),
            escape::toml(model)
        ))),
        _ => Ok(known),
    }
}
