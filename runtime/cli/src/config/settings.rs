//! Settings after merging all layers, each with its origin.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolcell_agent::budget::Prices;
use toolcell_core::{Grant, SecretBinding};
use toolcell_store::BucketLimits;

use super::budget::{NamedBudget, SourcedBudget};
use super::file::{FlowRule, ProjectInstructions, RuleTable, SecretTable};
use super::limits::{self, FlagLimit, NamedLimit, SourcedLimits};
use super::mcp::McpSettings;
use super::provider::ProviderSettings;
use super::source::{Layer, Origin, Source, Sourced};
use super::turn::{ContextSettings, LoopSettings};
use crate::components::builtin::{self, Shipped};
use crate::config::grants::{self, FlagGrant, ResolvedGrant};
use crate::environment::Environment;
use crate::error::Failure;

/// Merged settings of all layers.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Files that were read, in the order of their layers.
    pub(crate) files: Vec<Arc<Source>>,
    /// Environment variables that were read.
    pub(crate) variables: Vec<&'static str>,
    /// Model provider.
    pub(crate) provider: ProviderSettings,
    /// Profiles of the provider.
    pub(crate) profiles: BTreeMap<String, ProviderSettings>,
    /// The user's instructions for the main agent.
    pub(crate) instructions: Option<Sourced<String>>,
    /// True if models are told the date, the working directory and what their tools can reach.
    pub(crate) tells_environment: Sourced<bool>,
    /// Use of the instructions of a project.
    pub(crate) project_instructions: Sourced<ProjectInstructions>,
    /// Loop of the main agent.
    pub(crate) turn: LoopSettings,
    /// Context of all agents.
    pub(crate) context: ContextSettings,
    /// Budget of a session.
    pub(crate) budget: SourcedBudget,
    /// Prices of a million tokens, by name of the model.
    pub(crate) prices: BTreeMap<String, Sourced<Prices>>,
    /// Subagents that the main agent can call as tools.
    pub(crate) agents: BTreeMap<String, AgentSettings>,
    /// Log files; `None` means no log.
    pub(crate) log: Option<LogSettings>,
    /// Approval rules, the project's first.
    pub(crate) rules: Vec<Sourced<RuleTable>>,
    /// Action of the data-flow guard.
    pub(crate) flow: Sourced<FlowRule>,
    /// Sources of the values of secrets.
    pub(crate) secrets: BTreeMap<String, Sourced<SecretTable>>,
    /// All components with a name, built-in and configured.
    pub(crate) tools: BTreeMap<String, ToolSettings>,
    /// Denials for every tool and hook.
    pub(crate) deny: Vec<GrantLine>,
    /// Configured hooks, by name.
    pub(crate) hooks: BTreeMap<String, HookSettings>,
    /// Limits of buckets, by name.
    pub(crate) buckets: BTreeMap<String, Sourced<BucketLimits>>,
    /// MCP servers, by name.
    pub(crate) mcp: BTreeMap<String, McpSettings>,
    /// Values of flags. Grants and limits among them also apply to components named by a path.
    pub(crate) overrides: Overrides,
}

/// Settings of the log files.
#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    /// Directory of the log files.
    pub(crate) dir: Sourced<PathBuf>,
    /// Retention of the log files; `None` means unlimited.
    pub(crate) retention: Option<Duration>,
    /// Origin of the retention.
    pub(crate) retention_origin: Origin,
}

/// Merged settings of one component.
#[derive(Debug, Clone)]
pub(crate) struct ToolSettings {
    /// Name in the configuration.
    pub(crate) name: String,
    /// Source of its bytes.
    pub(crate) component: ComponentSource,
    /// Description of a program.
    pub(crate) description: Option<Sourced<String>>,
    /// False if the component is disabled.
    pub(crate) enabled: Sourced<bool>,
    /// Names of the tools that are offered, with the origin of the list; `None` means all.
    pub(crate) only: Option<Sourced<Vec<String>>>,
    /// Grants of the component.
    pub(crate) grants: Vec<GrantLine>,
    /// Limits of one call.
    pub(crate) limits: SourcedLimits,
    /// Secrets added to its requests.
    pub(crate) bindings: Vec<SecretBinding>,
    /// Scratch directory for its file changes.
    pub(crate) scratch: Option<Sourced<String>>,
    /// True if the user allowed overly broad grants (`--dangerous`).
    pub(crate) dangerous: bool,
}

/// Merged settings of one hook.
#[derive(Debug, Clone)]
pub(crate) struct HookSettings {
    /// Its component, grants and limits.
    pub(crate) component: ToolSettings,
    /// Guard flag; `None` means the component's own declaration.
    pub(crate) guard: Option<Sourced<bool>>,
    /// Priority; `None` means the component's own declaration.
    pub(crate) priority: Option<Sourced<i32>>,
    /// Hooks that run after this one; `None` means the component's own declaration.
    pub(crate) before: Option<Sourced<Vec<String>>>,
    /// Hooks that run before this one; `None` means the component's own declaration.
    pub(crate) after: Option<Sourced<Vec<String>>>,
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

/// Source of the bytes of a component.
#[derive(Debug, Clone)]
pub(crate) enum ComponentSource {
    /// Built into this binary.
    Shipped(&'static Shipped),
    /// A file.
    File(Sourced<PathBuf>),
}

/// A grant as written, with its context.
#[derive(Debug, Clone)]
pub(crate) struct GrantLine {
    /// The grant.
    pub(crate) grant: Grant,
    /// Base of relative paths.
    pub(crate) base: PathBuf,
    /// Origin of the line.
    pub(crate) origin: Origin,
}

/// Values of command-line flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// Path given by `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--provider`, `--model` and the other flags of the provider
    pub(crate) provider: ProviderSettings,
    /// Instructions given by `--system`.
    pub(crate) system: Option<String>,
    /// Use of the instructions of a project, given by `--project-instructions`.
    pub(crate) project_instructions: Option<ProjectInstructions>,
    /// File of these instructions, if they were given as `@FILE`.
    pub(crate) system_file: Option<PathBuf>,
    /// `--max-steps` and the other flags of the loop.
    pub(crate) turn: LoopSettings,
    /// Flags of the context.
    pub(crate) context: ContextSettings,
    /// Grants given by `--grant`.
    pub(crate) grants: Vec<FlagGrant>,
    /// Data-flow guard action given by `--flow`.
    pub(crate) flow: Option<FlowRule>,
    /// True if `--dangerous` is given.
    pub(crate) dangerous: bool,
    /// Directory given by `--scratch`.
    pub(crate) scratch: Option<PathBuf>,
    /// Limits given by `--limit`.
    pub(crate) limits: Vec<FlagLimit>,
    /// Budgets given by `--budget`.
    pub(crate) budget: Vec<NamedBudget>,
}

impl Settings {
    /// Returns the scratch directory of a tool: from the command line, or from its configuration.
    pub(crate) fn scratch_of(&self, tool: &ToolSettings) -> Option<Sourced<String>> {
        let flag = self.overrides.scratch.as_ref();
        flag.map(|dir| Sourced::flag("--scratch", dir.to_string_lossy().into_owned()))
            .or_else(|| tool.scratch.clone())
    }
}

impl Overrides {
    /// Returns the limits of the command line for one component. For a component of a project, a limit without a name
    /// only lowers.
    pub(crate) fn limits_for<'a>(&'a self, tool: &'a ToolSettings) -> impl Iterator<Item = NamedLimit> + 'a {
        self.limits
            .iter()
            .filter(move |flag| match &flag.component {
                Some(name) => *name == tool.name,
                None if tool.is_of_project() => {
                    flag.limit.value <= limits::get(&tool.limits.limits, flag.limit.name)
                }
                None => true,
            })
            .map(|flag| flag.limit)
    }

    /// Returns the grants of the command line for one component. For a component of a project, only denials apply
    /// without a name.
    pub(crate) fn grants_for<'a>(&'a self, tool: &'a ToolSettings) -> impl Iterator<Item = &'a Grant> + 'a {
        self.grants
            .iter()
            .filter(move |flag| match &flag.component {
                Some(name) => *name == tool.name,
                None => !tool.is_of_project() || flag.grant.is_denial(),
            })
            .map(|flag| &flag.grant)
    }
}

impl GrantLine {
    /// Resolves the grant.
    ///
    /// # Errors
    /// Returns an error with the location of the line if a directory does not exist.
    pub(crate) fn resolve(&self, environment: &Environment) -> Result<ResolvedGrant, Failure> {
        let placed =
            grants::resolve(&self.grant, &self.base, environment).map_err(|failure| match &self.origin {
                Origin::Flag(_) => failure,
                // Advice that repeats what a project wrote would be the project's advice.
                origin if origin.layer() == Some(Layer::Project) => {
                    failure.without_hints().why(origin.point_at())
                }
                origin => failure.why(origin.point_at()),
            })?;
        Ok(placed.written_at(&self.origin))
    }
}

impl ToolSettings {
    /// Creates settings for a component without configuration: no grants, default limits.
    pub(crate) fn new(name: impl Into<String>, component: ComponentSource) -> Self {
        Self {
            name: name.into(),
            component,
            description: None,
            enabled: Sourced::default(true),
            only: None,
            grants: Vec::new(),
            limits: SourcedLimits::default(),
            bindings: Vec::new(),
            scratch: None,
            dangerous: false,
        }
    }

    /// Creates settings for a built-in component.
    pub(crate) fn shipped(shipped: &'static Shipped) -> Self {
        let is_on = !builtin::OFF_BY_DEFAULT.contains(&shipped.name);
        Self {
            enabled: Sourced::default(is_on),
            ..Self::new(shipped.name, ComponentSource::Shipped(shipped))
        }
    }

    /// True if the component can be named on the command line: it is not explicitly disabled.
    pub(crate) fn is_usable(&self) -> bool {
        self.enabled.value || matches!(self.enabled.origin, Origin::Default)
    }

    /// Returns the grant without which no tool of a built-in component can do anything, if it is missing.
    pub(crate) fn missing_grant(&self) -> Option<&'static str> {
        let ComponentSource::Shipped(shipped) = &self.component else {
            return None;
        };
        let (_, tools) = builtin::TOOLS.iter().find(|(name, _)| *name == shipped.name)?;
        let missing: Option<Vec<&str>> = tools.iter().map(|tool| self.missing_grant_of(tool)).collect();
        // `read=DIR` comes before `write=DIR`.
        missing?.into_iter().min()
    }

    /// Returns the grant without which this tool of a built-in component can do nothing, if it is missing.
    pub(crate) fn missing_grant_of(&self, tool: &str) -> Option<&'static str> {
        let grants = self.grants.iter().map(|line| &line.grant);
        match &self.component {
            ComponentSource::Shipped(_) => builtin::missing_grant(tool, grants),
            ComponentSource::File(_) => None,
        }
    }

    /// True if the tool is offered.
    pub(crate) fn offers(&self, tool: &str) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.value.iter().any(|name| name == tool))
    }

    /// Applies the flags for this component.
    pub(crate) fn apply(&mut self, overrides: &Overrides, environment: &Environment) {
        let of_flag = |grant: &Grant| GrantLine {
            grant: grant.clone(),
            base: environment.cwd.clone(),
            origin: Origin::Flag("--grant"),
        };
        let grants: Vec<GrantLine> = overrides.grants_for(self).map(of_flag).collect();
        self.grants.extend(grants);
        self.dangerous = overrides.dangerous;
        let limits: Vec<NamedLimit> = overrides.limits_for(self).collect();
        for limit in limits {
            self.limits.set(limit, Origin::Flag("--limit"));
        }
    }

    /// Applies the denials of the command line. Hooks get nothing else from it.
    pub(crate) fn apply_denials(&mut self, overrides: &Overrides, environment: &Environment) {
        let flags = overrides.grants.iter().filter(|flag| flag.component.is_none());
        for flag in flags.filter(|flag| flag.grant.is_denial()) {
            self.grants.push(GrantLine {
                grant: flag.grant.clone(),
                base: environment.cwd.clone(),
                origin: Origin::Flag("--grant"),
            });
        }
    }

    /// Returns a copy with additional denials.
    pub(crate) fn denying(&self, deny: &[GrantLine]) -> Self {
        let mut denying = self.clone();
        denying.grants.extend(deny.iter().cloned());
        denying
    }

    /// True if a project's file defines the component. It is used only if the user names it.
    pub(crate) fn is_of_project(&self) -> bool {
        matches!(&self.component, ComponentSource::File(path) if path.origin.layer() == Some(Layer::Project))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// Loads the user's file and that of a project which defines `theirs`, with these flags.
    fn load(own: &str, flags: Overrides) -> Settings {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("config.toml");
        std::fs::write(&user, own).unwrap();
        let project = "[tools.theirs]\ncomponent = \"t.wasm\"\n";
        std::fs::write(dir.path().join("toolcell.toml"), project).unwrap();
        let overrides = Overrides {
            config: Some(user),
            ..flags
        };
        config::load(&Environment::for_tests(dir.path(), &[]), overrides).unwrap()
    }

    fn grants(component: &ToolSettings) -> Vec<String> {
        component
            .grants
            .iter()
            .map(|line| line.grant.to_string())
            .collect()
    }

    #[test]
    fn flag_without_name_gives_nothing_to_project_components() {
        let flags = Overrides {
            grants: ["read=docs", "deny=x", "project:theirs:env=A", "files:deny=y"]
                .map(|grant| grant.parse().unwrap())
                .to_vec(),
            limits: ["memory=8GiB", "wall=10ms", "project:theirs:fuel=700"]
                .map(|limit| limit.parse().unwrap())
                .to_vec(),
            ..Overrides::default()
        };
        let settings = load("[hooks.h]\ncomponent = \"h.wasm\"\n", flags);
        let (files, theirs) = (&settings.tools["files"], &settings.tools["project:theirs"]);
        assert_eq!(grants(files), ["read=docs", "deny=x", "deny=y"]);
        assert_eq!(grants(theirs), ["deny=x", "env=A"]);
        assert_eq!(grants(&settings.hooks["h"].component), ["deny=x"]);
        let limits = |tool: &ToolSettings| {
            let limits = &tool.limits.limits;
            (limits.memory, limits.wall_ms, limits.fuel)
        };
        let default = toolcell_core::Limits::default();
        assert_eq!(limits(files), (8 << 30, 10, default.fuel));
        assert_eq!(limits(theirs), (default.memory, 10, 700));
    }

    #[test]
    fn component_is_usable_unless_the_user_disables_it() {
        let own = "[tools.text]\nenabled = false\n[tools.json]\nenabled = true\nonly = [\"json_query\"]\n";
        let settings = load(own, Overrides::default());
        for (name, is_enabled, is_usable) in [
            ("text", false, false),
            ("memory", false, true),
            ("json", true, true),
            ("files", true, true),
        ] {
            let tool = &settings.tools[name];
            assert_eq!(
                (tool.enabled.value, tool.is_usable()),
                (is_enabled, is_usable),
                "{name}"
            );
        }
        let json = &settings.tools["json"];
        assert!(json.offers("json_query") && !json.offers("json_other"));
        assert!(settings.tools["files"].offers("files_read"));
    }

    #[test]
    fn component_without_its_needed_grant_is_known() {
        let missing = |name: &str, grants: &[&str]| {
            let flags = Overrides {
                grants: grants.iter().map(|grant| grant.parse().unwrap()).collect(),
                ..Overrides::default()
            };
            load("", flags).tools[name].missing_grant()
        };
        for (name, grants, expected) in [
            ("files", &[][..], Some("read=DIR")),
            ("files", &["http=example.com"], Some("read=DIR")),
            ("files", &["read=docs"], None),
            ("files", &["delete=docs"], None),
            ("fetch", &[], Some("http=HOST")),
            ("fetch", &["read=docs"], Some("http=HOST")),
            ("fetch", &["http=example.com"], None),
            ("text", &[], None),
            ("project:theirs", &[], None),
        ] {
            assert_eq!(missing(name, grants), expected, "{name} {grants:?}");
        }
    }

    #[test]
    fn advice_about_a_grant_never_comes_from_a_project() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let failure = |origin: Origin| {
            let line = GrantLine {
                grant: "read=absent".parse().unwrap(),
                base: dir.path().into(),
                origin,
            };
            format!("{:?}", line.resolve(&environment).unwrap_err())
        };
        let file = |layer| {
            let source = Source {
                layer,
                path: "/c.toml".into(),
                shown: "c.toml".into(),
                text: "\"read=absent\"".into(),
                line_starts: std::sync::OnceLock::new(),
            };
            Origin::File(Arc::new(source), 0..13)
        };
        for (origin, has_advice, has_place) in [
            (Origin::Flag("--grant"), true, false),
            (file(Layer::User), true, true),
            (file(Layer::Project), false, true),
        ] {
            let shown = failure(origin);
            assert_eq!(shown.contains("mkdir"), has_advice, "{shown}");
            assert_eq!(shown.contains("c.toml, line 1"), has_place, "{shown}");
        }
    }
}
