//! Subagents of `[agents]`, offered to the main agent as tools. Each has its own model, components and budget, and is
//! subject to the same approval rules, hooks and approver.

use std::sync::Arc;

use toolcell_agent::{Agent, AgentBuilder, Approvals, BuildError, Hook, LoopPolicy};
use toolcell_core::Tool;
use toolcell_core::event::DataFlow;

use crate::agent::{model, prices, system_prompt};
use crate::components::data_flow;
use crate::components::loader::Loaded;
use crate::config::layers::profiles::find;
use crate::config::{AgentSettings, ProviderSettings, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::servers::{Running, Servers};
use crate::ui::terminal::text;

/// Returns the names of all components used by subagents.
pub(crate) fn components(settings: &Settings) -> Vec<String> {
    let agents = settings.agents.values();
    let named = agents.flat_map(|agent| agent.tools.iter().flatten());
    named.map(|tool| tool.value.clone()).collect()
}

/// Rules that apply to every agent, so that a subagent cannot bypass them.
pub(crate) struct SharedRules {
    /// Approval rules.
    pub(crate) approvals: Approvals,
    /// Hooks of every call.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    /// Data-flow labels of the hooks.
    pub(crate) hook_flow: DataFlow,
}

impl SharedRules {
    /// Applies the rules to an agent with the tools of these components and servers.
    pub(crate) fn apply<'a>(
        &self,
        mut agent: AgentBuilder,
        loaded: impl IntoIterator<Item = &'a Loaded>,
        servers: impl IntoIterator<Item = &'a Running>,
    ) -> AgentBuilder {
        agent = agent.approvals(self.approvals.clone());
        let of_servers = servers
            .into_iter()
            .flat_map(|running| running.flows(self.hook_flow));
        for (tool, flow) in data_flow::of_tools(loaded, self.hook_flow)
            .into_iter()
            .chain(of_servers)
        {
            agent = agent.flow(tool, flow);
        }
        for hook in &self.hooks {
            agent = agent.hook(hook.clone());
        }
        agent
    }
}

/// Agent of `[agents]`.
pub(crate) struct NamedAgent {
    /// Its name.
    pub(crate) name: String,
    /// Its purpose.
    pub(crate) description: String,
    /// Its builder.
    pub(crate) builder: AgentBuilder,
}

/// Offers all subagents as tools, and returns them. `loaded` are the components of all agents, of which the first `mains` belong to the
/// main one.
///
/// # Errors
/// Returns an error if the model of a subagent cannot be set up, or its tools cannot be offered together.
pub(crate) fn offer(
    mut main: AgentBuilder,
    settings: &Settings,
    (loaded, mains): (&[Loaded], usize),
    servers: &Servers,
    rules: &SharedRules,
    environment: &Environment,
) -> Result<(AgentBuilder, Vec<NamedAgent>), Failure> {
    let mut all = Vec::new();
    for agent in settings.agents.values() {
        let builder = builder(agent, settings, (loaded, mains), servers, rules, environment)?;
        let built = (builder.clone().build()).map_err(|error| of(agent, cannot_build(error)))?;
        main = main
            .agent(&agent.name, &agent.description.value, &built)
            .map_err(|error| Failure::new(Exit::Config, "an agent cannot be offered").because(error))?;
        all.push(NamedAgent {
            name: agent.name.clone(),
            description: agent.description.value.clone(),
            builder,
        });
    }
    Ok((main, all))
}

/// Builds a subagent. `loaded` and `mains` are as for [`offer`].
///
/// # Errors
/// Returns an error if its model cannot be set up, or its tools cannot be offered together.
pub(crate) fn build(
    agent: &AgentSettings,
    settings: &Settings,
    (loaded, mains): (&[Loaded], usize),
    servers: &Servers,
    rules: &SharedRules,
    environment: &Environment,
) -> Result<Agent, Failure> {
    let builder = builder(agent, settings, (loaded, mains), servers, rules, environment)?;
    builder.build().map_err(|error| of(agent, cannot_build(error)))
}

fn cannot_build(error: BuildError) -> Failure {
    Failure::new(Exit::Config, "the tools cannot be offered together").because(error)
}

/// Configures a subagent, as [`build`] builds it.
fn builder(
    agent: &AgentSettings,
    settings: &Settings,
    (loaded, mains): (&[Loaded], usize),
    servers: &Servers,
    rules: &SharedRules,
    environment: &Environment,
) -> Result<AgentBuilder, Failure> {
    let own: Vec<&Loaded> = match &agent.tools {
        None => loaded[..mains].iter().collect(),
        Some(names) => loaded
            .iter()
            .filter(|loaded| names.iter().any(|name| name.value == loaded.settings.name))
            .collect(),
    };
    let of_agent = |running: &&Running| match &agent.tools {
        None => true,
        Some(names) => names.iter().any(|name| name.value == running.settings.name),
    };
    let servers: Vec<&Running> = servers.iter().filter(of_agent).collect();
    one(agent, settings, &own, &servers, rules, environment).map_err(|failure| of(agent, failure))
}

/// Says for which subagent something failed.
pub(crate) fn of(agent: &AgentSettings, failure: Failure) -> Failure {
    failure.why(text!(
        "it is for the agent `{}`\n{}",
        agent.name,
        agent.origin.point_at()
    ))
}

/// Returns the settings of the provider of a subagent.
///
/// # Errors
/// Returns an error if there is no such profile.
pub(crate) fn provider(agent: &AgentSettings, settings: &Settings) -> Result<ProviderSettings, Failure> {
    let mut provider = settings.provider.clone();
    if let Some(profile) = &agent.provider.profile {
        provider = provider.with(find(&settings.profiles, &profile.value, profile)?);
    }
    Ok(provider.with(&agent.provider))
}

fn one(
    agent: &AgentSettings,
    settings: &Settings,
    loaded: &[&Loaded],
    servers: &[&Running],
    rules: &SharedRules,
    environment: &Environment,
) -> Result<AgentBuilder, Failure> {
    let provider = provider(agent, settings)?;
    let chosen = model::choose(&provider, &settings.profiles, &settings.prices, environment)?;
    let prices = prices::of(&chosen, &agent.budget, &settings.prices, environment)?;
    let mut policy = LoopPolicy {
        budget: agent.budget.budget(prices),
        ..LoopPolicy::default()
    };
    settings.turn.apply_shared(&settings.context, &mut policy);
    if let Some(steps) = &agent.max_steps {
        policy.max_steps = steps.value;
    }
    if let Some(reasoning) = provider.reasoning() {
        policy.reasoning = reasoning;
    }
    let of_servers = servers.iter().flat_map(|running| running.tools.iter().cloned());
    let tools = loaded
        .iter()
        .flat_map(|loaded| loaded.tools.iter().cloned())
        .chain(of_servers);
    let builder = Agent::builder(chosen.provider)
        .tools(tools.collect::<Vec<Arc<dyn Tool>>>())
        .instructions(system_prompt::of_subagent(
            agent,
            settings,
            loaded,
            servers,
            environment,
        )?)
        .policy(policy)
        .model(provider.model_settings());
    Ok(rules.apply(builder, loaded.iter().copied(), servers.iter().copied()))
}
