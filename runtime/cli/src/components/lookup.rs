//! Look-up of tools by the names that the user writes.

use std::path::Path;

use toolcell_core::suggest::nearest;

use crate::components::loader::ComponentLoader;
use crate::components::{builtin, directory};
use crate::config::source::PROJECT;
use crate::config::{ComponentSource, Sourced, ToolSettings, own_directories};
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Name, Shown, Text, text};

/// Maximum number of components searched for a tool named without its component. Each is read and hashed.
const MAX_SEARCHED: usize = 100;

/// Maximum number of components compiled to search them. One takes up to some seconds; those that were loaded before are not compiled.
const MAX_COMPILED: usize = 8;

/// Maximum number of components that an error names.
const MAX_NAMED: usize = 3;

/// Component and tool that the user named.
pub(crate) struct NamedTool {
    /// The component.
    pub(crate) settings: ToolSettings,
    /// Name of the tool; `None` means its only tool.
    pub(crate) tool: Option<String>,
}

/// Result of a search for a tool named without its component.
struct Search<'a> {
    /// Components that define the tool.
    owners: Vec<&'a ToolSettings>,
    /// Names of all tools seen.
    names: Vec<String>,
    /// Why the first component that could not be loaded was not searched.
    unusable: Option<Failure>,
    /// Number of components not searched because they would have to be compiled.
    unknown: usize,
}

impl ComponentLoader<'_> {
    /// Finds a tool by `NAME`, `NAME#TOOL`, `FILE.wasm`, `FILE.wasm#TOOL`, a directory with one component (`.`, `./DIR`),
    /// or the name of a tool. Components of a project are found only as `project:NAME`.
    ///
    /// # Errors
    /// Returns an error with the nearest names if there is no such tool.
    pub(crate) async fn find(&self, text: &str) -> Result<NamedTool, Failure> {
        let (component, tool) = match text.rsplit_once('#') {
            Some((component, tool)) => (component, Some(tool.to_owned())),
            None => (text, None),
        };
        if let Some(settings) = self.settings.tools.get(component) {
            return Ok(NamedTool {
                settings: settings.clone(),
                tool,
            });
        }
        if is_path(component) && !component.starts_with(PROJECT) {
            return Ok(NamedTool {
                settings: self.file(component)?,
                tool,
            });
        }
        let search = self.search(component).await;
        if tool.is_none() {
            match (search.owners.as_slice(), search.unusable) {
                ([], None) => {}
                ([], Some(failure)) => return Err(failure),
                ([owner], _) => {
                    return Ok(NamedTool {
                        settings: (*owner).clone(),
                        tool: Some(text.to_owned()),
                    });
                }
                // Which of them is meant cannot be known.
                (owners, _) => return Err(self.ambiguous(text, owners)),
            }
        }
        Err(self.unknown(component, search.names, search.unknown))
    }

    /// Searches the components for a tool of this name, and compiles at most [`MAX_COMPILED`] of them.
    async fn search(&self, tool: &str) -> Search<'_> {
        let mut search = Search {
            owners: Vec::new(),
            names: Vec::new(),
            unusable: None,
            unknown: 0,
        };
        let mut left = MAX_COMPILED;
        for candidate in self.searched(tool) {
            let names = match self.searched_names(candidate, &mut left).await {
                Ok(Some(names)) => names,
                Ok(None) => {
                    search.unknown += 1;
                    continue;
                }
                Err(failure) => {
                    search.unusable.get_or_insert(failure);
                    continue;
                }
            };
            if names.iter().any(|name| name == tool) {
                search.owners.push(candidate);
            }
            search.names.extend(names);
        }
        search
    }

    /// Returns the names of a component's tools. `None` if it would have to be compiled for that, and no more can be: each one
    /// that is takes one from `left`.
    async fn searched_names(
        &self,
        candidate: &ToolSettings,
        left: &mut usize,
    ) -> Result<Option<Vec<String>>, Failure> {
        if let Some(names) = builtin::tools_of(&candidate.component) {
            return Ok(Some(names.iter().map(|name| (*name).to_owned()).collect()));
        }
        let described = match self.describe_known(candidate).await? {
            Some(described) => described,
            None if *left == 0 => return Ok(None),
            None => {
                *left -= 1;
                self.describe(candidate).await?
            }
        };
        let names = described.definitions().iter().map(|spec| spec.name.to_string());
        Ok(Some(names.collect()))
    }

    /// Error for the name of a tool that several components define.
    fn ambiguous(&self, tool: &str, owners: &[&ToolSettings]) -> Failure {
        let place = |owner: &&ToolSettings| match &owner.component {
            ComponentSource::Shipped(_) => text!("the built-in component `{}`", owner.name),
            ComponentSource::File(file) => {
                text!(
                    "`{}` ({})",
                    owner.name,
                    Shown(&self.environment.shown(&file.value))
                )
            }
        };
        let names = owners.iter().take(MAX_NAMED);
        let hints = names.clone().map(|owner| text!("{}#{}", owner.name, tool));
        Failure::new(Exit::Usage, text!("there are several tools `{}`", tool))
            .why(text!("they are of {}", Text::join(names.map(place), " and of ")))
            .hint(text!("name its component: {}", Text::join(hints, ", or ")))
    }

    /// Returns the components to search for a tool, at most [`MAX_SEARCHED`], because each is read: first the built-in component
    /// with a tool of this name, then those whose name is a prefix of the tool's name, then the rest by name.
    fn searched(&self, tool: &str) -> Vec<&ToolSettings> {
        let tools = &self.settings.tools;
        let shipped = builtin::component_with_tool(tool).and_then(|name| tools.get(name));
        let begins = |(at, _): (usize, char)| tools.get(&tool[..at]);
        let named = tool.char_indices().chain([(tool.len(), ' ')]).filter_map(begins);
        let mut searched: Vec<&ToolSettings> = Vec::new();
        for candidate in shipped.into_iter().chain(named).chain(tools.values()) {
            let is_new = || !searched.iter().any(|known| known.name == candidate.name);
            if candidate.is_usable() && !candidate.is_of_project() && is_new() {
                searched.push(candidate);
            }
            if searched.len() == MAX_SEARCHED {
                break;
            }
        }
        searched
    }

    /// Returns the names of all offered tools. Components that cannot be loaded, those beyond [`MAX_SEARCHED`], and those that would
    /// have to be compiled beyond [`MAX_COMPILED`] contribute none.
    pub(crate) async fn tool_names(&self) -> Vec<String> {
        self.search("").await.names
    }

    /// Returns the names of the tools of all components that were loaded before: nothing is compiled.
    pub(crate) async fn known_tool_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for candidate in self.searched("") {
            if let Ok(Some(known)) = self.searched_names(candidate, &mut 0).await {
                names.extend(known);
            }
        }
        names
    }

    /// Error for the name of no tool, after a search that saw these names and left out so many components.
    fn unknown(&self, name: &str, seen: Vec<String>, left_out: usize) -> Failure {
        let of_project = format!("{PROJECT}{name}");
        if self.settings.tools.contains_key(&of_project) {
            return Failure::new(Exit::Usage, text!("there is no tool `{}`", name))
                .why("the project defines a component of that name, which needs the prefix `project:`")
                .hint(text!("use its full name: {}", of_project));
        }
        let mut names: Vec<String> = self.settings.tools.keys().cloned().collect();
        names.extend(seen);
        names.dedup();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let near = nearest(name, &names);
        let mut failure = Failure::new(Exit::Usage, text!("there is no tool `{}`", name));
        let is_of = |server: &&String| {
            let tool = name.strip_prefix(server.as_str());
            tool.is_some_and(|tool| tool.starts_with('_') || tool.is_empty())
        };
        if let Some(server) = self.settings.mcp.keys().find(is_of) {
            return failure
                .why(text!(
                    "`{}` is an MCP server, and tools of servers are called in turns only",
                    server
                ))
                .hint(text!(
                    "to see its tools: toolcell mcp test {}; to use them: toolcell run --tool {} \"PROMPT\"",
                    Name(server),
                    Name(server)
                ));
        }
        let beyond = self.settings.tools.len().saturating_sub(MAX_SEARCHED);
        if beyond > 0 {
            failure = failure.why(text!(
                "{} components are configured, of which {} are searched",
                self.settings.tools.len(),
                MAX_SEARCHED
            ));
        }
        if left_out > 0 {
            failure = failure.why(text!(
                "{} components were not searched: they were never loaded, and at most {} are compiled to search them",
                left_out,
                MAX_COMPILED
            ));
        }
        if beyond > 0 || left_out > 0 {
            failure = failure.hint(text!("name its component: COMPONENT#{}", name));
        }
        if near.is_empty() {
            failure.hint("`toolcell tool list` shows all tools; a component in a file is named by its path, such as `./my.wasm`")
        } else {
            let quoted = near.iter().map(|name| text!("`{}`", name));
            failure.hint(text!("did you mean {}?", Text::join(quoted, " or ")))
        }
    }

    /// Returns the settings of a component named by its path, or by the directory in which it is the only one.
    fn file(&self, written: &str) -> Result<ToolSettings, Failure> {
        let mut path = self.environment.path(written, &self.environment.cwd);
        if path.is_dir() {
            path = directory::component_in(&path, written, self.environment)?;
        }
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or("component");
        self.deny_changes(own_directories::component(&path, self.environment));
        let mut settings =
            ToolSettings::new(stem, ComponentSource::File(Sourced::flag("TOOL", path.clone())));
        settings.apply(&self.settings.overrides, self.environment);
        Ok(settings)
    }
}

/// True if the text is a path rather than a name.
pub(crate) fn is_path(text: &str) -> bool {
    text.contains(['/', '\\'])
        || text == "."
        || text == ".."
        || Path::new(text)
            .extension()
            .is_some_and(|ext| ext.eq_ignore_ascii_case("wasm"))
}

#[cfg(test)]
mod tests {
    use toolcell_sandbox::{Sandbox, SandboxOptions};

    use super::*;
    use crate::config::{self, Overrides};
    use crate::environment::Environment;

    fn searched(components: &[String], tool: &str) -> Vec<String> {
        let table = |name: &String| format!("[tools.{name}]\ncomponent = \"x\"\n");
        searched_in(&components.iter().map(table).collect::<String>(), "", tool)
    }

    /// Returns the names of the searched components with these files of the user and of a project.
    fn searched_in(own: &str, project: &str, tool: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, own).unwrap();
        std::fs::write(dir.path().join("toolcell.toml"), project).unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let overrides = Overrides {
            config: Some(path),
            ..Overrides::default()
        };
        let settings = config::load(&environment, overrides).unwrap();
        let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
        let loader = ComponentLoader::with(&environment, &settings, sandbox).unwrap();
        let found = loader.searched(tool);
        found.iter().map(|tool| tool.name.clone()).collect()
    }

    #[test]
    fn tool_is_searched_in_at_most_100_components() {
        let many: Vec<String> = (0..25_000).map(|i| format!("t{i}")).collect();
        let all = searched(&many, "t20000_x");
        assert_eq!(all.len(), MAX_SEARCHED);
        assert_eq!(all[..3], ["t2", "t20", "t200"]);
        assert!(all.contains(&"t20000".to_owned()));
        assert_eq!(searched(&many, "text_count")[0], "text");
        // All of them if there are few: five built-in components are enabled, and `memory` can be named.
        let few: Vec<String> = (0..MAX_SEARCHED - 6).map(|i| format!("t{i}")).collect();
        assert_eq!(searched(&few, "x").len(), MAX_SEARCHED);
        assert_eq!(searched(&few[1..], "x").len(), MAX_SEARCHED - 1);
    }

    #[test]
    fn tool_is_not_searched_in_projects_and_disabled_components() {
        let own = "[tools.mine]\ncomponent = \"x\"\n[tools.off]\ncomponent = \"x\"\nenabled = false\n";
        let project = "[tools.theirs]\ncomponent = \"x\"\n";
        let found = searched_in(own, project, "mine_x");
        assert_eq!(
            found.iter().filter(|name| *name == "mine").count(),
            1,
            "{found:?}"
        );
        assert!(found.contains(&"files".to_owned()), "{found:?}");
        for name in ["off", "theirs", "project:theirs"] {
            assert!(!found.contains(&name.to_owned()), "{found:?}");
        }
    }

    #[test]
    fn path_has_a_separator_or_the_ending_of_a_component() {
        for (text, expected) in [
            ("files", false),
            ("a.txt", false),
            ("wasm", false),
            ("a.wasm", true),
            ("a.WASM", true),
            ("dir/a", true),
            ("dir\\a", true),
            (".", true),
            ("..", true),
            (".hidden", false),
        ] {
            assert_eq!(is_path(text), expected, "{text}");
        }
    }
}
