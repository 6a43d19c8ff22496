//! Sets up the agent of a command: settings, model, components, approval, subagents, session store.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcell_agent::budget::Budget;
use toolcell_agent::{Agent, AgentBuilder, Approvals, BuildError, LoopPolicy};
use toolcell_core::{Provider, SessionStore, Tool};

use crate::agent::subagents::{NamedAgent, SharedRules};
use crate::agent::{call_limit, model, prices, project_instructions, subagents, system_prompt};
use crate::approval::question;
use crate::approval::terminal::{self, Known, TerminalApprover};
use crate::approval::{project_rules, saved_approvals};
use crate::components::data_flow;
use crate::components::loader::{ComponentLoader, Loaded, LoadedHook};
use crate::components::lock;
use crate::components::selection;
use crate::components::tool_lint;
use crate::config::{self, AgentSettings, McpSettings, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::AgentFlags;
use crate::mcp::servers::{self, Servers};
use crate::scratch::pending::Scratch;
use crate::telemetry::log_files::Logs;
use crate::ui::hints::{AllowHints, BudgetHints};
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

/// An agent, with everything needed to display its turns.
pub(crate) struct AgentSetup {
    /// The agent.
    pub(crate) agent: Agent,
    /// Builder of the agent, for others that differ from it in their approver and further tools.
    pub(crate) builder: AgentBuilder,
    /// Agents of `[agents]`.
    pub(crate) subagents: Vec<NamedAgent>,
    /// Facts about each tool that a question shows.
    pub(crate) known: Arc<BTreeMap<String, Known>>,
    /// Components of all agents.
    pub(crate) loaded: Vec<Loaded>,
    /// Hooks of every call.
    pub(crate) hooks: Vec<LoadedHook>,
    /// Model and the reason for its choice, on one line.
    pub(crate) note: Text,
    /// Hints that allow denied accesses of its tools.
    pub(crate) hints: Arc<AllowHints>,
    /// Hints that raise an exhausted budget.
    pub(crate) budget_hints: BudgetHints,
    /// Scratch directories of its tools.
    pub(crate) scratch: Vec<Scratch>,
    /// Log files, if enabled.
    pub(crate) logs: Option<Logs>,
    /// MCP servers of its tools.
    pub(crate) servers: Servers,
    /// Approval rules of its calls.
    pub(crate) approvals: Approvals,
    /// True if its sessions are saved.
    pub(crate) is_kept: bool,
    /// True if a user can be asked.
    pub(crate) is_attended: bool,
    /// True if its answers fit a schema.
    pub(crate) has_schema: bool,
    /// Configured source of the provider's key, for the hint about a refused key.
    pub(crate) key_source: Option<Text>,
}

/// Sets up the agent that the flags select.
///
/// # Errors
/// Returns an error if the configuration, the model or a tool cannot be used.
pub(crate) async fn assemble(
    flags: &AgentFlags,
    mut overrides: Overrides,
    environment: &Environment,
    console: &Console,
    store: Option<Arc<dyn SessionStore>>,
) -> Result<AgentSetup, Failure> {
    flags.apply(&mut overrides, environment)?;
    let answer_schema = flags.answer_schema(environment)?;
    let has_schema = answer_schema.is_some();
    let settings = config::load(environment, overrides)?;
    let model = model::choose(
        &settings.provider,
        &settings.profiles,
        &settings.prices,
        environment,
    )?;
    let prices = prices::of(&model, &settings.budget, &settings.prices, environment)?;

    // On the heap: the future of all this would be large with a local model.
    let loading = Components::load(&flags.tools, flags.locked, &settings, environment, console);
    let components = Box::pin(loading).await?;
    let findings = components.check(flags.locked, environment, console)?;
    let approvals = components.approvals(&settings, environment);

    let is_kept = store.is_some();
    let mut all_known = components.servers.known(environment);
    all_known.extend(known(&components.loaded, &findings, &settings, environment)?);
    let approver = TerminalApprover::new(environment, console, all_known.clone(), is_kept);
    let is_attended = approver.is_some();

    let of_project = project_instructions::accepted(&settings, environment, console).await?;
    let policy = loop_policy(&settings, settings.budget.budget(prices));
    let rules = components.shared_rules(approvals.clone());
    let mut agent = main_agent(model.provider, &settings, policy, &components, &rules).instructions(
        system_prompt::of_main(
            &settings,
            of_project.as_ref(),
            components.mains(),
            &components.servers,
            environment,
        )?,
    );
    let subagents;
    (agent, subagents) = subagents::offer(
        agent,
        &settings,
        (&components.loaded, components.mains),
        &components.servers,
        &rules,
        environment,
    )?;
    if let Some(store) = store {
        agent = agent.store(store);
    }
    if let Some(schema) = answer_schema {
        agent = agent.answer_schema(schema);
    }
    if let Some(approver) = approver {
        agent = agent.approver(approver);
    }

    let loaded = &components.loaded;
    let scratch = loaded.iter().map(|loaded| &loaded.settings);
    Ok(AgentSetup {
        agent: agent.clone().build().map_err(cannot_build)?,
        builder: agent,
        subagents,
        known: Arc::new(all_known),
        note: model.note,
        hints: Arc::new(AllowHints::new(loaded, environment)),
        budget_hints: BudgetHints::new(&settings, prices, environment),
        scratch: Scratch::of(scratch, &settings, environment)?,
        logs: Logs::open(settings.log.as_ref(), environment)?,
        servers: components.servers,
        loaded: components.loaded,
        hooks: components.hooks,
        approvals,
        is_kept,
        is_attended,
        has_schema,
        key_source: model::key_source(&settings.provider),
    })
}

/// An agent of `[agents]` that is called without a main one.
pub(crate) struct SoleAgent {
    /// The agent.
    pub(crate) agent: Agent,
    /// Its components.
    pub(crate) loaded: Vec<Loaded>,
    /// MCP servers of its tools.
    pub(crate) servers: Servers,
    /// Facts about each of its tools that a question shows.
    pub(crate) known: BTreeMap<String, Known>,
    /// Approval rules.
    pub(crate) approvals: Approvals,
    /// Budget of all calls of the agent together.
    pub(crate) budget: Budget,
}

/// Sets up an agent of `[agents]` alone, under the rules and hooks of all agents.
///
/// # Errors
/// Returns an error if its model or a tool cannot be used.
pub(crate) async fn sole(
    wanted: &AgentSettings,
    is_locked: bool,
    settings: &Settings,
    environment: &Environment,
    console: &Console,
) -> Result<SoleAgent, Failure> {
    let chosen = || {
        let provider = subagents::provider(wanted, settings)?;
        let model = model::choose(&provider, &settings.profiles, &settings.prices, environment)?;
        prices::of(&model, &settings.budget, &settings.prices, environment)
    };
    let prices = chosen().map_err(|failure| subagents::of(wanted, failure))?;
    let loader = ComponentLoader::open(environment, settings, console)?;
    let names: Option<Vec<String>> =
        (wanted.tools.as_ref()).map(|names| names.iter().map(|name| name.value.clone()).collect());
    let components = match names {
        Some(names) if names.is_empty() => {
            Components::with(&loader, (Vec::new(), 0), Vec::new(), is_locked, console)
        }
        names => {
            let (named, servers) = servers::select(&names.unwrap_or_default(), settings);
            let loaded = match (wanted.tools.is_some(), named.is_empty()) {
                (true, true) => (Vec::new(), 0),
                _ => selection::load_for_agent(&loader, &named, &[], console).await?,
            };
            Components::with(&loader, loaded, servers, is_locked, console)
        }
    };
    let components = components.await?;
    let findings = components.check(is_locked, environment, console)?;
    let approvals = components.approvals(settings, environment);
    let mut all_known = components.servers.known(environment);
    all_known.extend(known(&components.loaded, &findings, settings, environment)?);
    let agent = subagents::build(
        wanted,
        settings,
        (&components.loaded, components.mains),
        &components.servers,
        &components.shared_rules(approvals.clone()),
        environment,
    )?;
    Ok(SoleAgent {
        agent,
        loaded: components.loaded,
        servers: components.servers,
        known: all_known,
        approvals,
        budget: settings.budget.budget(prices),
    })
}

/// Components of the main agent and its subagents, and hooks.
struct Components {
    /// Components of all agents.
    loaded: Vec<Loaded>,
    /// Number of those at the start of `loaded` that belong to the main agent.
    mains: usize,
    hooks: Vec<LoadedHook>,
    /// MCP servers of all agents.
    servers: Servers,
}

impl Components {
    /// Returns the components of the main agent.
    fn mains(&self) -> &[Loaded] {
        &self.loaded[..self.mains]
    }

    async fn load(
        named: &[String],
        is_locked: bool,
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Self, Failure> {
        let loader = ComponentLoader::open(environment, settings, console)?;
        let of_subagents = subagents::components(settings);
        let (components, wanted) = servers::select(named, settings);
        let loaded = match (named.is_empty(), components.is_empty()) {
            // Only servers are named.
            (false, true) => selection::load_named(&loader, &of_subagents).await?,
            _ => selection::load_for_agent(&loader, &components, &of_subagents, console).await?,
        };
        Self::with(&loader, loaded, wanted, is_locked, console).await
    }

    /// Adds the hooks to loaded components, and starts servers.
    async fn with(
        loader: &ComponentLoader<'_>,
        (mut loaded, mains): (Vec<Loaded>, usize),
        wanted: Vec<McpSettings>,
        is_locked: bool,
        console: &Console,
    ) -> Result<Self, Failure> {
        let environment = loader.environment;
        let hooks = loader.hooks().await?;
        let mut servers = Servers::start(wanted, &loaded, loader, console).await?;
        if !is_locked {
            servers.withhold_changed(environment, console)?;
        }
        for component in &mut loaded {
            call_limit::apply(&mut component.tools, environment);
        }
        servers.limit_calls(environment);
        Ok(Self {
            loaded,
            mains,
            hooks,
            servers,
        })
    }

    /// Compares the components with the lock file, or warns about their descriptions: locked ones have been reviewed.
    /// Returns the lint findings by component.
    fn check(
        &self,
        locked: bool,
        environment: &Environment,
        console: &Console,
    ) -> Result<BTreeMap<String, Vec<String>>, Failure> {
        let findings = tool_lint::among(&self.loaded);
        if locked {
            lock::check(&self.loaded, Some(&self.hooks), environment)?;
            lock::check_servers(&self.servers, environment)?;
        } else {
            let of_components = findings.iter().map(|(name, found)| (name.as_str(), &found[..]));
            tool_lint::warn(of_components.chain(self.servers.findings()), console);
        }
        Ok(findings)
    }

    /// Returns the configured approval rules, followed by those for tools of projects.
    fn approvals(&self, settings: &Settings, environment: &Environment) -> Approvals {
        let mut approvals = terminal::rules(settings, environment);
        let of_projects = project_rules::of(&self.loaded, &approvals.rules);
        approvals.rules.extend(of_projects);
        approvals
    }

    fn shared_rules(&self, approvals: Approvals) -> SharedRules {
        SharedRules {
            approvals,
            hooks: self.hooks.iter().map(|hook| hook.hook.clone()).collect(),
            hook_flow: data_flow::of_hooks(&self.hooks),
        }
    }
}

/// Returns the facts about each tool that an approval question shows.
pub(crate) fn known(
    components: &[Loaded],
    findings: &BTreeMap<String, Vec<String>>,
    settings: &Settings,
    environment: &Environment,
) -> Result<BTreeMap<String, Known>, Failure> {
    let mut all = BTreeMap::new();
    for loaded in components {
        let grants = loaded.settings.policy(settings, environment)?.grants;
        let identity = loaded.component.identity();
        let usable = identity.usable(&grants);
        let scratch = settings.scratch_of(&loaded.settings);
        let kept = (scratch.as_ref())
            .filter(|_| usable.dirs.iter().any(|dir| dir.access.can_change()))
            .map(|dir| text!("keep its changes in `{}` for review", dir.value));
        let known = Known {
            digest: loaded.component.digest().to_string(),
            component: loaded.settings.name.clone(),
            access: saved_approvals::access(&grants, scratch.map(|dir| dir.value)),
            // A secret first: of many grants only some are shown.
            reach: (usable.secrets.iter())
                .map(question::of_secret)
                .chain(
                    (loaded.settings.grants.iter())
                        .filter(|line| identity.can_use(&line.grant))
                        .map(|line| question::of_grant(line, environment)),
                )
                .chain(kept)
                .collect(),
            findings: findings.get(&loaded.settings.name).cloned().unwrap_or_default(),
        };
        let names = loaded.called().map(|tool| tool.spec().name.to_string());
        all.extend(names.map(|name| (name, known.clone())));
    }
    Ok(all)
}

/// Configures the main agent: its tools and their data-flow labels, its loop, approval rules and hooks.
fn main_agent(
    provider: Arc<dyn Provider>,
    settings: &Settings,
    policy: LoopPolicy,
    components: &Components,
    rules: &SharedRules,
) -> AgentBuilder {
    let own = components.mains();
    let of_servers = components
        .servers
        .iter()
        .flat_map(|running| running.tools.clone());
    let tools = own
        .iter()
        .flat_map(|loaded| loaded.tools.clone())
        .chain(of_servers);
    let tools: Vec<Arc<dyn Tool>> = tools.collect();
    let agent = Agent::builder(provider)
        .tools(tools)
        .policy(policy)
        .model(settings.provider.model_settings());
    rules.apply(agent, own, components.servers.iter())
}

/// Returns the loop policy with the configured settings.
fn loop_policy(settings: &Settings, budget: Budget) -> LoopPolicy {
    let mut policy = settings.turn.policy(&settings.context);
    policy.budget = budget;
    if let Some(reasoning) = settings.provider.reasoning() {
        policy.reasoning = reasoning;
    }
    policy
}

pub(crate) fn cannot_build(error: BuildError) -> Failure {
    match error {
        BuildError::DuplicateHook { .. } | BuildError::HookCycle { .. } => {
            Failure::new(Exit::Config, "the hooks have conflicting orders")
                .because(error)
                .hint("set their order in `[hooks.NAME]`: `priority`, `before`, `after`")
        }
        BuildError::DuplicateTool { .. } | BuildError::ReservedName { .. } => {
            Failure::new(Exit::Config, "the tools cannot be offered together")
                .because(error)
                .hint("choose among them with --tool")
        }
        error => Failure::new(Exit::Config, "the agent cannot be set up").because(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_the_agent_comes_with_the_hint_for_it_alone() {
        let tool = || toolcell_core::ToolName::new("clock_now").unwrap();
        for (error, what, hint) in [
            (
                BuildError::DuplicateHook { name: "a".into() },
                "the hooks",
                Some("`priority`"),
            ),
            (
                BuildError::HookCycle {
                    names: vec!["a".into()],
                },
                "the hooks",
                Some("`priority`"),
            ),
            (
                BuildError::DuplicateTool { name: tool() },
                "the tools",
                Some("--tool"),
            ),
            (
                BuildError::ReservedName { name: tool() },
                "the tools",
                Some("--tool"),
            ),
            (BuildError::NoPrices, "the agent", None),
        ] {
            let told = cannot_build(error).to_json();
            assert!(told["what"].as_str().unwrap().starts_with(what), "{told:?}");
            let hints = told["hints"].to_string();
            assert_eq!(told["hints"].as_array().unwrap().is_empty(), hint.is_none());
            assert!(hint.is_none_or(|hint| hints.contains(hint)), "{hints}");
            assert!(!told["why"].as_array().unwrap().is_empty());
        }
    }
}
