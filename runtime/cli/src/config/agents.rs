//! `[agents.NAME]`: agents that the main one can call as tools, each with its own task, tools, model and budget.

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

/// An agent that the main one can call as a tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentTable {
    /// What it does and when to call it, for the model that calls it.
    #[schemars(with = "String")]
    pub(crate) description: Spanned<String>,
    /// What it is told about its task.
    #[serde(default)]
    pub(crate) instructions: Option<String>,
    /// Its components, by name; those of the main agent unless set. Their grants and limits are those of `[tools]`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) tools: Option<Vec<Spanned<String>>>,
    /// Requests to the model for one task (default 50).
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(crate) max_steps: Option<Spanned<u32>>,
    /// Its model. What is not set is as for the main agent, unless `name` or `base_url` is.
    #[serde(default)]
    pub(crate) provider: ProviderTable,
    /// What it may use for one task. All that it uses counts in the budget of the session as well.
    #[serde(default)]
    pub(crate) budget: BudgetTable,
}

/// An agent that the main one can call, with the places that decided it.
#[derive(Debug, Clone)]
pub(crate) struct AgentSettings {
    /// Its name, which is that of its tool.
    pub(crate) name: String,
    /// Where it is defined.
    pub(crate) origin: Origin,
    /// For the model that calls it.
    pub(crate) description: Sourced<String>,
    /// What it is told about its task.
    pub(crate) instructions: String,
    /// The names of its components; `None` means those of the main agent.
    pub(crate) tools: Option<Vec<Sourced<String>>>,
    /// Requests to the model for one task.
    pub(crate) max_steps: Option<Sourced<u32>>,
    /// What its model has of its own.
    pub(crate) provider: ProviderSettings,
    /// What it may use for one task.
    pub(crate) budget: SourcedBudget,
}

/// The agents of a file.
///
/// # Errors
/// When a name is none of a tool, a component is not known, or a number cannot be used.
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
        return Err(fail(format!("`{key}` is no name of an agent"), name.span())
            .hint("use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter"));
    }
    if table.description.get_ref().trim().is_empty() {
        return Err(fail(
            format!("the agent `{key}` has an empty description"),
            table.description.span(),
        )
        .hint("say what it does and when to call it; the model decides by it"));
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
