//! What the layers come to: each setting with the place that decided it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolcell_agent::budget::Prices;
use toolcell_core::denial::{DeniedUse, PathDenial};
use toolcell_core::grant_risk::dangerous;
use toolcell_core::policy::DirGrant;
use toolcell_core::{Grant, Policy, SecretBinding};

use super::agents::AgentSettings;
use super::budget::{NamedBudget, SourcedBudget};
use super::file::{FlowRule, RuleTable, SecretTable};
use super::limits::{self, FlagLimit, NamedLimit, SourcedLimits};
use super::provider::ProviderSettings;
use super::source::{Layer, Origin, Source, Sourced};
use crate::components::builtin::{self, Shipped};
use crate::config::grants::{self, FlagGrant, ResolvedGrant};
use crate::config::own_directories::own_places;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Everything that configuration decides.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The files that were read, in the order of their layers.
    pub(crate) files: Vec<Arc<Source>>,
    /// The variables that were read.
    pub(crate) variables: Vec<&'static str>,
    /// The model.
    pub(crate) provider: ProviderSettings,
    /// Requests to the model in one turn; `None` leaves it to the loop.
    pub(crate) max_steps: Option<Sourced<u32>>,
    /// Wall time of one turn; `None` means none.
    pub(crate) deadline: Option<Sourced<Duration>>,
    /// What a whole session may use.
    pub(crate) budget: SourcedBudget,
    /// What a million tokens cost, by name of the model.
    pub(crate) prices: BTreeMap<String, Prices>,
    /// Agents that the main one can call as tools.
    pub(crate) agents: BTreeMap<String, AgentSettings>,
    /// Where everything is written down; `None` means nowhere.
    pub(crate) log: Option<LogSettings>,
    /// The style of the loop.
    pub(crate) preset: Option<Sourced<String>>,
    /// Which calls a person decides on: the rules, the project's first.
    pub(crate) rules: Vec<RuleTable>,
    /// What the flow guard does.
    pub(crate) flow: Sourced<FlowRule>,
    /// Where the values of secrets are.
    pub(crate) secrets: BTreeMap<String, SecretTable>,
    /// Every component that is known by name, shipped and configured.
    pub(crate) tools: BTreeMap<String, ToolSettings>,
    /// What is denied to every tool and hook.
    pub(crate) deny: Vec<GrantLine>,
    /// The hooks that are configured, by name.
    pub(crate) hooks: BTreeMap<String, HookSettings>,
    /// Grants and limits of the command line, which also hold for components named by a path.
    pub(crate) overrides: Overrides,
}

/// Where everything is written down that happens.
#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    /// The directory.
    pub(crate) dir: Sourced<PathBuf>,
    /// How long files are kept; `None` means for ever.
    pub(crate) retention: Option<Duration>,
    /// Who decided that.
    pub(crate) retention_origin: Origin,
}

/// One component with everything that configuration says about it.
#[derive(Debug, Clone)]
pub(crate) struct ToolSettings {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Where its bytes are.
    pub(crate) component: ComponentSource,
    /// Whether it is offered at all.
    pub(crate) enabled: Sourced<bool>,
    /// Which of its tools are offered, and that the person or the project said so; `None` means all.
    pub(crate) only: Option<Sourced<Vec<String>>>,
    /// What it may reach.
    pub(crate) grants: Vec<GrantLine>,
    /// How much one call may use.
    pub(crate) limits: SourcedLimits,
    /// Which secrets go with its requests.
    pub(crate) bindings: Vec<SecretBinding>,
    /// Where its changes of files go, in the place of the files themselves.
    pub(crate) scratch: Option<Sourced<String>>,
    /// Whether a person allowed grants that give away more than one may think.
    pub(crate) dangerous: bool,
}

/// One hook with everything that configuration says about it.
#[derive(Debug, Clone)]
pub(crate) struct HookSettings {
    /// Its component, and what it may reach and use.
    pub(crate) component: ToolSettings,
    /// Whether it guards; `None` leaves it to what the component says.
    pub(crate) guard: Option<Sourced<bool>>,
    /// Its priority; `None` leaves it to what the component says.
    pub(crate) priority: Option<Sourced<i32>>,
    /// Hooks that it runs before; `None` leaves it to what the component says.
    pub(crate) before: Option<Sourced<Vec<String>>>,
    /// Hooks that it runs after; `None` leaves it to what the component says.
    pub(crate) after: Option<Sourced<Vec<String>>>,
}

/// Where the bytes of a component are.
#[derive(Debug, Clone)]
pub(crate) enum ComponentSource {
    /// In this binary.
    Shipped(&'static Shipped),
    /// In a file.
    File(Sourced<PathBuf>),
}

/// One grant as somebody wrote it.
#[derive(Debug, Clone)]
pub(crate) struct GrantLine {
    /// The grant.
    pub(crate) grant: Grant,
    /// Where relative paths start.
    pub(crate) base: PathBuf,
    /// Who wrote it.
    pub(crate) origin: Origin,
}

/// What the command line decides.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// `--config`
    pub(crate) config: Option<PathBuf>,
    /// `--provider`, `--model` and the other flags of the provider
    pub(crate) provider: ProviderSettings,
    /// `--max-steps`
    pub(crate) max_steps: Option<u32>,
    /// `--deadline`
    pub(crate) deadline: Option<Duration>,
    /// `--grant`
    pub(crate) grants: Vec<FlagGrant>,
    /// `--preset`
    pub(crate) preset: Option<String>,
    /// `--flow`
    pub(crate) flow: Option<FlowRule>,
    /// `--dangerous`
    pub(crate) dangerous: bool,
    /// `--scratch`
    pub(crate) scratch: Option<PathBuf>,
    /// `--limit`
    pub(crate) limits: Vec<FlagLimit>,
    /// `--budget`
    pub(crate) budget: Vec<NamedBudget>,
}

/// Requests to the model in one turn, where nothing else is set.
pub(crate) fn default_max_steps() -> u32 {
    toolcell_agent::LoopPolicy::default().max_steps
}

impl Settings {
    /// Where the changes of files of a tool go: where the command line says, or its configuration.
    pub(crate) fn scratch_of(&self, tool: &ToolSettings) -> Option<Sourced<String>> {
        let flag = self.overrides.scratch.as_ref();
        flag.map(|dir| Sourced::flag("--scratch", dir.to_string_lossy().into_owned()))
            .or_else(|| tool.scratch.clone())
    }
}

impl Overrides {
    /// The limits of the command line for one component. What is written without a name only lowers those of a component
    /// of a project.
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

    /// The grants of the command line for one component. What is written without a name gives nothing to one of a project,
    /// and denies it.
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
    /// Makes the grant hold here.
    ///
    /// # Errors
    /// When a directory does not exist; the failure points at the line.
    pub(crate) fn place(&self, environment: &Environment) -> Result<ResolvedGrant, Failure> {
        let placed =
            grants::place(&self.grant, &self.base, environment).map_err(|failure| match &self.origin {
                Origin::Flag(_) => failure,
                origin => failure.why(origin.point_at()),
            })?;
        Ok(placed.written_at(&self.origin))
    }
}

impl GrantLine {
    /// Refuses a directory that lies in a denied one: the tool would see a directory in which everything is refused.
    fn check_denied(
        &self,
        dir: &DirGrant,
        denied: &[PathDenial],
        environment: &Environment,
    ) -> Result<(), Failure> {
        let holds = |denial: &&PathDenial| {
            let real = denial.host.canonicalize();
            let host = real.as_ref().unwrap_or(&denial.host);
            denial.uses == DeniedUse::All && dir.host.starts_with(host)
        };
        let Some(denial) = denied.iter().find(holds) else {
            return Ok(());
        };
        Err(
            Failure::new(Exit::Denied, text!("the grant `{}` cannot be given", self.grant))
                .why(text!(
                    "`{}` is denied by {}, whatever is granted",
                    environment.shown(&dir.host),
                    denial.by
                ))
                .why(self.origin.point_at())
                .hint("grant another directory"),
        )
    }

    fn check_danger(&self, dir: &DirGrant, environment: &Environment) -> Result<(), Failure> {
        let Some(danger) = dangerous(dir, environment.home.as_deref()) else {
            return Ok(());
        };
        Err(
            Failure::new(Exit::Denied, text!("the grant `{}` is dangerous", self.grant))
                .why(text!("`{}` {}", environment.shown(&dir.host), danger))
                .why(self.origin.point_at())
                .hint("grant a directory further down; if you mean it, add --dangerous"),
        )
    }
}

impl ToolSettings {
    /// A component that nobody configured: nothing granted, default limits.
    pub(crate) fn new(name: impl Into<String>, component: ComponentSource) -> Self {
        Self {
            name: name.into(),
            component,
            enabled: Sourced::default(true),
            only: None,
            grants: Vec::new(),
            limits: SourcedLimits::default(),
            bindings: Vec::new(),
            scratch: None,
            dangerous: false,
        }
    }

    /// A component that ships with Toolcell.
    pub(crate) fn shipped(shipped: &'static Shipped) -> Self {
        let is_on = !builtin::OFF_BY_DEFAULT.contains(&shipped.name);
        Self {
            enabled: Sourced::default(is_on),
            ..Self::new(shipped.name, ComponentSource::Shipped(shipped))
        }
    }

    /// Whether it is used when a person names it on the command line: not where somebody switched it off.
    pub(crate) fn is_usable(&self) -> bool {
        self.enabled.value || matches!(self.enabled.origin, Origin::Default)
    }

    /// Whether one of its tools is offered.
    pub(crate) fn offers(&self, tool: &str) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.value.iter().any(|name| name == tool))
    }

    /// Adds what the command line says for this component.
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

    /// Adds what the command line denies to everything. It gives hooks nothing.
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

    /// The same, with what is denied to every tool.
    pub(crate) fn denying(&self, deny: &[GrantLine]) -> Self {
        let mut denying = self.clone();
        denying.grants.extend(deny.iter().cloned());
        denying
    }

    /// The policy, as the sandbox takes it.
    ///
    /// # Errors
    /// When a grant cannot be given, lies in a place that no tool gets, or is dangerous and nobody said that it is meant.
    pub(crate) fn policy(&self, settings: &Settings, environment: &Environment) -> Result<Policy, Failure> {
        let own = own_places(settings, environment);
        let placed: Vec<ResolvedGrant> = self
            .grants
            .iter()
            .chain(&settings.deny)
            .map(|line| {
                let placed = line.place(environment)?;
                if let ResolvedGrant::Dir(dir) = &placed {
                    line.check_denied(dir, &own, environment)?;
                    if !self.dangerous {
                        line.check_danger(dir, environment)?;
                    }
                }
                Ok(placed)
            })
            .collect::<Result<_, Failure>>()?;
        let mut grants = grants::gather(&placed, environment)?;
        for (line, placed) in self.grants.iter().zip(&placed) {
            if let ResolvedGrant::Dir(dir) = placed {
                line.check_denied(dir, &grants.denied.paths, environment)?;
            }
        }
        grants.denied.paths.extend(own);
        grants.denied.programs = self.dangerous;
        grants.secrets.clone_from(&self.bindings);
        Ok(Policy {
            grants,
            limits: self.limits.limits.clone(),
        })
    }

    /// Whether the component itself comes from a project's file. It is used only when a person names it.
    pub(crate) fn is_of_project(&self) -> bool {
        matches!(&self.component, ComponentSource::File(path) if path.origin.layer() == Some(Layer::Project))
    }
}
