//! `[agents.NAME]`: subagents that the main agent can call as tools, each with its own instructions, tools, model and
//! budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use super::budget::{self, BudgetTable, SourcedBudget};
use super::provider::{ProviderSettings, ProviderTable};
use super::source::{Origin, Source, Sourced};
use crate::error::{Exit, Failure};
use crate::ui::suggest::nearest;
use crate::ui::terminal::text;

/// A subagent that the main agent can call as a tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentTable {
    /// Description of its task and when to call it, for the model that calls it.
    #[schemars(with = "String")]
    pub(crate) description: Spanned<String>,
    /// Instructions for its own model.
    #[serde(default)]
    pub(crate) instructions: Option<String>,
    /// Names of its components. Defaults to those of the main agent. Grants and limits are those of `[tools]`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) tools: Option<Vec<Spanned<String>>>,
    /// Maximum number of model requests per task (default 50).
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(crate) max_steps: Option<Spanned<u32>>,
    /// Model settings. Unset keys are inherited from the main agent, unless `name` or `base_url` is set.
    #[serde(default)]
    pub(crate) provider: ProviderTable,
    /// Budget for one task. Its use also counts in the budget of the session.
    #[serde(default)]
    pub(crate) budget: BudgetTable,
}

/// Settings of a subagent, with their origins.
#[derive(Debug, Clone)]
pub(crate) struct AgentSettings {
    /// Its name, also the name of its tool.
    pub(crate) name: String,
    /// Location of its definition.
    pub(crate) origin: Origin,
    /// Description for the model that calls it.
    pub(crate) description: Sourced<String>,
    /// Instructions for its own model.
    pub(crate) instructions: String,
    /// Names of its components; `None` means those of the main agent.
    pub(crate) tools: Option<Vec<Sourced<String>>>,
    /// Maximum number of model requests per task.
    pub(crate) max_steps: Option<Sourced<u32>>,
    /// Model settings of its own.
    pub(crate) provider: ProviderSettings,
    /// Budget for one task.
    pub(crate) budget: SourcedBudget,
}

/// Reads the agents of a file.
///
/// # Errors
/// Returns an error if a name is not valid for a tool, a component is unknown, or a number is out of range.
pub(super) fn of_tables(
    tables: &BTreeMap<Spanned<String>, AgentTable>,
    known: &[&str],
    source: &Arc<Source>,
) -> Result<BTreeMap<String, AgentSettings>, Failure> {
    let agent = |(name, table): (&Spanned<String>, &AgentTable)| {
        let settings = of_table(name, table, known, source)?;
        Ok((settings.name.clone(), settings))
    };
    tables.iter().map(agent).collect()
}

fn of_table(
    name: &Spanned<String>,
    table: &AgentTable,
    known: &[&str],
    source: &Arc<Source>,
) -> Result<AgentSettings, Failure> {
    let key = name.get_ref();
    let at = |span| Origin::File(source.clone(), span);
    let fail = |what: String, span| Failure::new(Exit::Config, what).why(at(span).point_at());
    if toolcell_core::ToolName::new(key.as_str()).is_err() {
        return Err(
            fail(format!("`{key}` is not a valid name of an agent"), name.span())
                .hint("use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter"),
        );
    }
    if table.description.get_ref().trim().is_empty() {
        return Err(fail(
            format!("the agent `{key}` has an empty description"),
            table.description.span(),
        )
        .hint("describe what it does and when to call it; the model relies on the description"));
    }
    if let Some(unknown) = table
        .tools
        .iter()
        .flatten()
        .find(|tool| !known.contains(&tool.get_ref().as_str()))
    {
        let failure = fail(
            format!("there is no tool `{}` for the agent `{key}`", unknown.get_ref()),
            unknown.span(),
        );
        return Err(match nearest(unknown.get_ref(), known).first() {
            Some(near) => failure.hint(text!("did you mean `{}`?", near)),
            None => failure.hint(text!("the components are {}", known.join(", "))),
        });
    }
    if let Some(steps) = &table.max_steps
        && *steps.get_ref() == 0
    {
        return Err(
            fail(format!("the agent `{key}` cannot have 0 steps"), steps.span()).hint("allow at least 1"),
        );
    }
    let provider = ProviderSettings::of_table(&table.provider, source);
    let mut own_budget = SourcedBudget::default();
    for (budget, origin) in budget::of_table(&table.budget, source) {
        own_budget.set(budget, origin);
    }
    let sourced = |value: &Spanned<String>| Sourced {
        value: value.get_ref().clone(),
        origin: at(value.span()),
    };
    Ok(AgentSettings {
        name: key.clone(),
        origin: at(name.span()),
        description: sourced(&table.description),
        instructions: table.instructions.clone().unwrap_or_default(),
        tools: table
            .tools
            .as_ref()
            .map(|tools| tools.iter().map(sourced).collect()),
        max_steps: table.max_steps.as_ref().map(|steps| Sourced {
            value: *steps.get_ref(),
            origin: at(steps.span()),
        }),
        provider,
        budget: own_budget,
    })
}
