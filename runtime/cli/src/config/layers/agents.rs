//! `[agents.NAME]`: subagents that the main agent can call as tools, each with its own instructions, tools, model and
//! budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toolcell_core::suggest::nearest;

use crate::config::AgentSettings;
use crate::config::budget::{self, SourcedBudget};
use crate::config::file::AgentTable;
use crate::config::provider::ProviderSettings;
use crate::config::source::{Origin, Source, Sourced};
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

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
    let fail = |what: Text, span| Failure::new(Exit::Config, what).why(at(span).point_at());
    if toolcell_core::ToolName::new(key.as_str()).is_err() {
        return Err(
            fail(text!("`{}` is not a valid name of an agent", key), name.span())
                .hint("use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter"),
        );
    }
    if table.description.get_ref().trim().is_empty() {
        return Err(fail(
            text!("the agent `{}` has an empty description", key),
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
            text!("there is no tool `{}` for the agent `{}`", unknown.get_ref(), key),
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
            fail(text!("the agent `{}` cannot have 0 steps", key), steps.span()).hint("allow at least 1"),
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

#[cfg(test)]
mod tests {
    use crate::config::{self, Overrides, Settings};
    use crate::environment::Environment;

    use super::*;

    fn load(table: &str) -> Result<Settings, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, table).unwrap();
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        config::load(&Environment::for_tests(dir.path(), &[]), overrides)
    }

    #[test]
    fn agent_has_the_tools_and_numbers_of_its_table() {
        let settings = load(
            "[agents.reader]\ndescription = \"Reads.\"\ntools = [\"files\"]\nmax_steps = 1\n\
             [agents.reader.budget]\ncalls = 2\n",
        )
        .unwrap();
        let agent = &settings.agents["reader"];
        let tools: Vec<&str> = agent
            .tools
            .iter()
            .flatten()
            .map(|tool| tool.value.as_str())
            .collect();
        assert_eq!((agent.name.as_str(), tools), ("reader", vec!["files"]));
        assert_eq!(agent.max_steps.as_ref().map(|steps| steps.value), Some(1));
        assert_eq!(agent.budget.get("calls").map(|calls| calls.value), Some(2));
    }

    #[test]
    fn unusable_agent_is_refused() {
        for (table, reason) in [
            (
                "[agents.\"a b\"]\ndescription = \"d\"",
                "not a valid name of an agent",
            ),
            ("[agents.a]\ndescription = \" \"", "empty description"),
            (
                "[agents.a]\ndescription = \"d\"\ntools = [\"text\", \"file\"]",
                "there is no tool `file`",
            ),
            (
                "[agents.a]\ndescription = \"d\"\nmax_steps = 0",
                "a whole number of at least 1, not 0",
            ),
        ] {
            let failure = load(table).unwrap_err().to_string();
            assert!(failure.contains(reason), "{failure}");
        }
    }
}
