//! Reserved names. Components, their tools, agents and hooks share one namespace, so that none can impersonate another.
//!
//! Names of project components begin with [`PROJECT`]. A name, grant, limit or rule without that prefix never applies
//! to them.

use std::collections::BTreeMap;

use toolcell_agent::Control;

use super::settings::{Settings, ToolSettings};
use super::source::PROJECT;
use crate::components::builtin;

/// The name of a component that a project's file calls `key`.
pub(super) fn of_project(key: &str) -> String {
    format!("{PROJECT}{key}")
}

/// Names in use, compared without case and word separators.
#[derive(Debug, Default)]
pub(crate) struct TakenNames {
    /// Owner of each folded name, for error messages.
    names: BTreeMap<String, String>,
    /// Component names in lower case; the names of their tools begin with them.
    components: BTreeMap<String, String>,
}

impl TakenNames {
    /// Collects the names known without loading a component: built-in components, tools of the loop, and the user's
    /// configuration.
    pub(crate) fn of(settings: &Settings) -> Self {
        let mut taken = Self::default();
        for (component, tools) in builtin::TOOLS {
            taken.add_component(
                component,
                &format!("the component `{component}`, which is built in"),
            );
            for tool in tools {
                taken.add(tool, &format!("a tool of `{component}`, which is built in"));
            }
        }
        for control in Control::ALL {
            taken.add(control.name(), "a tool of the loop");
        }
        for tool in settings.tools.values().filter(|tool| !tool.is_of_project()) {
            taken.add_component(
                &tool.name,
                &format!("the component `{}` of your own configuration", tool.name),
            );
        }
        for server in settings.mcp.keys() {
            taken.add_server(server);
        }
        for agent in settings.agents.keys() {
            taken.add(agent, &format!("the agent `{agent}` of your own configuration"));
        }
        for hook in settings.hooks.keys() {
            taken.add(hook, &format!("the hook `{hook}` of your own configuration"));
        }
        taken
    }

    /// Adds an MCP server of the user, whose tools have names that begin with its own.
    pub(crate) fn add_server(&mut self, name: &str) {
        self.add_component(
            name,
            &format!("the MCP server `{name}` of your own configuration"),
        );
    }

    /// Adds the tool names of a component of the user.
    pub(crate) fn add_tools<'a>(
        &mut self,
        component: &ToolSettings,
        tools: impl IntoIterator<Item = &'a str>,
    ) {
        for tool in tools {
            self.add(tool, &format!("a tool of your component `{}`", component.name));
        }
    }

    /// Returns the owner of this name or of a prefix of it, or `None` if it is free.
    pub(crate) fn taken_by(&self, name: &str) -> Option<&str> {
        if let Some(owner) = self.names.get(&folded(name)) {
            return Some(owner);
        }
        name.match_indices(['_', '-'])
            .find_map(|(at, _)| self.components.get(&name[..at].to_ascii_lowercase()))
            .map(String::as_str)
    }

    fn add_component(&mut self, name: &str, owner: &str) {
        self.add(name, owner);
        self.components
            .entry(name.to_ascii_lowercase())
            .or_insert_with(|| owner.to_owned());
    }

    fn add(&mut self, name: &str, owner: &str) {
        let folded = folded(name);
        self.names.entry(folded).or_insert_with(|| owner.to_owned());
    }
}

/// Folds a name: lower case, without word separators.
fn folded(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};
    use crate::environment::Environment;

    #[test]
    fn name_is_reserved_in_every_spelling_and_with_its_tools() {
        let mut taken = TakenNames::default();
        taken.add_component("text", "text");
        taken.add("text_count", "count");
        taken.add("read_result", "loop");
        for (name, owner) in [
            ("text", Some("text")),
            ("TEXT", Some("text")),
            ("t-ext", Some("text")),
            ("text_count", Some("count")),
            ("Text-Count", Some("count")),
            ("textcount", Some("count")),
            ("text_other", Some("text")),
            ("text-other", Some("text")),
            ("Text_Other", Some("text")),
            ("readResult", Some("loop")),
            ("texts", None),
            ("textual_count", None),
            ("my_text", None),
        ] {
            assert_eq!(taken.taken_by(name), owner, "{name}");
        }
    }

    #[test]
    fn names_of_user_and_program_are_taken_from_projects() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        let own = "[tools.mine]\ncomponent = \"m.wasm\"\n[hooks.watch]\ncomponent = \"w.wasm\"\n\
            [agents.helper]\ndescription = \"Helps.\"\n";
        std::fs::write(&config, own).unwrap();
        let project = "[tools.theirs]\ncomponent = \"t.wasm\"\n";
        std::fs::write(dir.path().join("toolcell.toml"), project).unwrap();
        let overrides = Overrides {
            config: Some(config),
            ..Overrides::default()
        };
        let settings = config::load(&Environment::for_tests(dir.path(), &[]), overrides).unwrap();
        let mut taken = TakenNames::of(&settings);
        taken.add_tools(&settings.tools["mine"], ["count_words"]);
        for (name, owner) in [
            ("files", Some("the component `files`, which is built in")),
            ("files_read", Some("a tool of `files`, which is built in")),
            (Control::ALL[0].name(), Some("a tool of the loop")),
            ("Mine", Some("the component `mine` of your own configuration")),
            ("mine_x", Some("the component `mine` of your own configuration")),
            ("helper", Some("the agent `helper` of your own configuration")),
            ("watch", Some("the hook `watch` of your own configuration")),
            ("countwords", Some("a tool of your component `mine`")),
            ("theirs", None),
            (&of_project("theirs"), None),
        ] {
            assert_eq!(taken.taken_by(name), owner, "{name}");
        }
        assert!(settings.tools.contains_key("project:theirs"));
        assert_eq!(of_project("theirs"), "project:theirs");
    }
}
