//! `toolcell tool remove`: removes a package.

use std::path::PathBuf;

use clap::Args;

use super::{SECTION, check_owner, open_configuration, open_store, unusable_store, unwritten};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::clients::{self, Format};
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Remove a tool that was added with `toolcell tool add`, with its grants and limits.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool remove roman
  toolcell tool remove roman --dry-run

{}", crate::exit::TABLE))]
pub(crate) struct Remove {
    /// Name of the package.
    name: String,

    /// Show the change, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Remove {
    /// Reads no configuration beside the text of the file: one that a missing component makes unusable can be repaired.
    pub(crate) async fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        let store = open_store(environment, console).await?;
        let fail = || Failure::new(Exit::Config, text!("the tool `{}` was not removed", self.name));
        let edited = open_configuration(environment, fail)?;
        match store
            .package(&self.name)
            .map_err(|error| unusable_store(error, environment))?
        {
            Some(package) => check_owner(&package, "remove", environment, fail)?,
            // What is left of a package that is gone can be removed as well.
            None if component(edited.text(), &self.name).is_some_and(|path| store.contains(&path)) => {}
            None => return Err(super::update::unknown(&self.name, &store)),
        }
        let new = clients::remove(Format::Toml, edited.text(), SECTION, &self.name)
            .map_err(|why| fail().why(text!("`{}`: {}", edited.shown, why)))?;
        edited.show(&new, console)?;
        if self.dry_run {
            console.note("nothing was written");
            return Ok(Exit::Ok);
        }
        edited.write(&new).map_err(|error| unwritten(fail(), error))?;
        store
            .remove(&self.name)
            .map_err(|error| unusable_store(error, environment))?;
        store
            .collect_garbage()
            .map_err(|error| unusable_store(error, environment))?;
        console.note("removed");
        for agent in agents_with(&new, &self.name) {
            console.note(text!(
                "warning: the agent `{}` still has the tool `{}` and cannot be used: remove it from `tools` of `{}`",
                agent,
                self.name,
                format!("[agents.{agent}]")
            ));
        }
        Ok(Exit::Ok)
    }
}

/// Component of a table of the configuration, as it is written there.
fn component(configuration: &str, name: &str) -> Option<PathBuf> {
    let configuration: toml::Table = configuration.parse().ok()?;
    let path = configuration.get(SECTION)?.get(name)?.get("component")?;
    path.as_str().map(PathBuf::from)
}

/// Agents of a configuration that have a tool.
fn agents_with(configuration: &str, name: &str) -> Vec<String> {
    let configuration: toml::Table = configuration.parse().unwrap_or_default();
    let agents = configuration.get("agents").and_then(toml::Value::as_table);
    let has = |agent: &toml::Value| {
        let tools = agent.get("tools").and_then(toml::Value::as_array);
        tools.is_some_and(|tools| tools.iter().any(|tool| tool.as_str() == Some(name)))
    };
    let agents = agents.into_iter().flatten();
    agents
        .filter(|(_, agent)| has(agent))
        .map(|(agent, _)| agent.clone())
        .collect()
}
