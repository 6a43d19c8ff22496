//! All components and hooks of the configuration, loaded to check it.

use toolcell_agent::{ApprovalRule, Control, UnusedRule};
use toolcell_core::ToolSpec;
use toolcell_sandbox::Component;

use crate::approval::terminal;
use crate::components::loader::ComponentLoader;
use crate::components::secrets;
use crate::config::{ComponentSource, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::Failure;
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

/// Components of the configuration.
pub(crate) struct ConfiguredComponents {
    /// Those that can be loaded, also if they are disabled.
    loaded: Vec<Component>,
    /// True if `loaded` contains every component.
    is_whole: bool,
    /// Reasons why enabled components and hooks cannot be used.
    pub(crate) failures: Vec<Failure>,
}

impl ConfiguredComponents {
    /// Loads the components that the checks need, and none of a project that the user does not trust.
    ///
    /// # Errors
    /// Returns an error if the sandbox does not start.
    pub(crate) async fn load(
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Self, Failure> {
        let loader = ComponentLoader::open(environment, settings, console)?;
        let mut all = Self {
            loaded: Vec::new(),
            // The tools of MCP servers are known only when they run.
            is_whole: settings.mcp.is_empty(),
            failures: Vec::new(),
        };
        // Nothing can be wrong with a component of this program. For the rules and `only`, its tools matter.
        let matters = |tool: &&ToolSettings| {
            let is_shipped = matches!(tool.component, ComponentSource::Shipped(_));
            !is_shipped || !settings.rules.is_empty() || tool.only.is_some()
        };
        for tool in settings.tools.values().filter(matters) {
            if !loader.is_trusted(tool) {
                all.is_whole = false;
                continue;
            }
            let component = match &tool.only {
                Some(_) if tool.is_usable() => loader.load(tool).await.map(|loaded| loaded.component),
                _ => loader.component(tool).await,
            };
            match component {
                Ok(component) => all.loaded.push(component),
                Err(failure) => {
                    all.is_whole = false;
                    all.failures.extend(tool.enabled.value.then_some(failure));
                }
            }
        }
        for hook in settings
            .hooks
            .values()
            .filter(|hook| hook.component.enabled.value)
        {
            all.failures.extend(loader.hook(hook).await.err());
        }
        Ok(all)
    }

    /// Describes the approval rules that apply to none of the tools. They may be misspelt.
    pub(crate) fn unused_rules(&self, settings: &Settings, environment: &Environment) -> Vec<Text> {
        let specs: Vec<&ToolSpec> = (self.loaded.iter())
            .flat_map(Component::definitions)
            .map(|spec| &**spec)
            .collect();
        let is_of_loop = |rule: &ApprovalRule| {
            Control::ALL.into_iter().any(|tool| rule.names(tool.name()))
                || settings.agents.keys().any(|agent| rule.names(agent))
        };
        let rules = terminal::rules(settings, environment).rules;
        rules
            .iter()
            .filter_map(|rule| match rule.unused(&specs)? {
                UnusedRule::Tool { .. } if !self.is_whole || is_of_loop(rule) => None,
                unused => Some(words(rule, &unused)),
            })
            .collect()
    }
}

/// Describes the secrets that components are bound to and that have no value now. The keyring is not opened.
///
/// # Errors
/// Returns an error if a value cannot be read or used.
pub(crate) fn absent_secrets(settings: &Settings, environment: &Environment) -> Result<Vec<Text>, Failure> {
    let secrets = secrets::read(settings, environment)?;
    let is_in_keyring =
        |name: &str| (settings.secrets.get(name)).is_some_and(|table| table.value.keyring.is_some());
    let hooks = settings.hooks.values().map(|hook| &hook.component);
    let components = settings.tools.values().chain(hooks);
    Ok(components
        .filter(|component| component.enabled.value)
        .flat_map(|component| {
            component
                .bindings
                .iter()
                .map(move |binding| (component, &binding.name))
        })
        .filter(|(_, name)| secrets.get(name).is_none() && !is_in_keyring(name))
        .map(|(component, name)| text!("the secret `{}` of `{}` has no value now", *name, component.name))
        .collect())
}

fn words(rule: &ApprovalRule, unused: &UnusedRule) -> Text {
    let rule = rule.to_string();
    match unused {
        UnusedRule::Argument { pointer, near } if !near.is_empty() => text!(
            "the rule `{}` applies to no call: no tool that it names has the argument `{}`; there is `{}`",
            rule,
            *pointer,
            near[0]
        ),
        UnusedRule::Argument { pointer, .. } => text!(
            "the rule `{}` applies to no call: no tool that it names has the argument `{}`",
            rule,
            *pointer
        ),
        UnusedRule::Tool { near } if !near.is_empty() => text!(
            "the rule `{}` applies to no call: no tool of the configuration has such a name; there is `{}`",
            rule,
            near[0]
        ),
        _ => text!(
            "the rule `{}` applies to no call: no tool of the configuration has such a name",
            rule
        ),
    }
}
