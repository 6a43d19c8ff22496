//! Sets up the agent of a command: tools with their policies, model, approval rules, approver, session store.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use toolcell_agent::budget::Budget;
use toolcell_agent::{Agent, BuildError, Hook, LoopPolicy, preset};
use toolcell_core::{SessionStore, Tool};

use crate::agent::{model, prices, subagents};
use crate::approval::project_rules;
use crate::approval::terminal::{self, Known, TerminalApprover};
use crate::components::data_flow;
use crate::components::loader::{ComponentLoader, Loaded};
use crate::components::lock;
use crate::components::selection;
use crate::components::tool_lint;
use crate::config::budget::NamedBudget;
use crate::config::file::FlowRule;
use crate::config::provider::ProviderFlags;
use crate::config::units::Span;
use crate::config::{self, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::scratch::overlay::Scratch;
use crate::telemetry::log_files::Logs;
use crate::ui::hints::{AllowHints, BudgetHints};
use crate::ui::render::Console;
use crate::ui::terminal::{Text, text};

/// Flags that select the tools and the behaviour of an agent.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentFlags {
    /// Offer only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// What to do with a call that would combine private data, untrusted content and network egress [default: ask].
    #[arg(long, value_name = "ACTION")]
    flow: Option<FlowRule>,

    /// Set a budget of the session, over all its turns (repeatable), such as `calls=20`, `tokens=200k`, `wall=10m`,
    /// `cost=0.50`.
    #[arg(long = "budget", value_name = "NAME=VALUE")]
    budget: Vec<NamedBudget>,

    /// Refuse tools and hooks that differ from `toolcell.lock`.
    #[arg(long)]
    locked: bool,

    #[command(flatten)]
    model: ModelFlags,
}

/// Model and limits of a turn.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
struct ModelFlags {
    #[command(flatten)]
    provider: ProviderFlags,

    /// Maximum number of model requests in one turn [default: 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,

    /// Maximum wall time of one turn, such as `90s` or `5m` [default: none].
    #[arg(long, value_name = "TIME")]
    deadline: Option<Span>,

    /// Preset of the agent loop: `default`, `sequential`, `task`, `resilient`, `stepwise`.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
}

/// An agent, with everything needed to display its turns.
pub(crate) struct AgentSetup {
    /// The agent.
    pub(crate) agent: Agent,
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
    /// True if its sessions are saved.
    pub(crate) is_kept: bool,
    /// True if a user can be asked.
    pub(crate) is_attended: bool,
}

impl AgentFlags {
    /// Copies the flags into the last configuration layer.
    fn apply(&self, overrides: &mut Overrides) {
        self.policy.apply(overrides);
        overrides.flow = self.flow;
        overrides.budget.clone_from(&self.budget);
        let model = &self.model;
        overrides.provider = model.provider.0.clone();
        overrides.max_steps = model.max_steps;
        overrides.deadline = model.deadline.map(|span| span.0);
        overrides.preset.clone_from(&model.preset);
    }

    /// Sets up an agent.
    ///
    /// # Errors
    /// Returns an error if the configuration, the model or a tool cannot be used.
    pub(crate) async fn assemble(
        &self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
        store: Option<Arc<dyn SessionStore>>,
    ) -> Result<AgentSetup, Failure> {
        self.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let chosen = model::choose(&settings.provider, environment)?;
        let model = &chosen.provider.info().model;
        let prices = prices::of_model(&settings.budget, &settings.prices, model, environment)?;
        let toolbox = ComponentLoader::open(environment, &settings, console)?;
        let also = subagents::components(&settings);
        let (loaded, mains) = selection::load_with(&toolbox, &self.tools, &also, console).await?;
        let hooks = toolbox.hooks().await?;
        let findings = tool_lint::among(&loaded);
        if self.locked {
            lock::check(&loaded, Some(&hooks), environment)?;
        } else {
            // Locked tools have been reviewed.
            for finding in findings.values().flatten() {
                console.note(text!("warning: {}", finding));
            }
        }
        let tools: Vec<Arc<dyn Tool>> = loaded[..mains]
            .iter()
            .flat_map(|loaded| loaded.tools.iter().cloned())
            .collect();
        let hook_flow = data_flow::of_hooks(&hooks);
        let hooks: Vec<Arc<dyn Hook>> = hooks
            .into_iter()
            .map(|hook| -> Arc<dyn Hook> { Arc::new(hook.hook) })
            .collect();
        let mut approvals = terminal::rules(&settings, environment);
        let of_projects = project_rules::of(&loaded, &approvals.rules);
        approvals.rules.extend(of_projects);
        let mut agent = Agent::builder(chosen.provider)
            .tools(tools)
            .policy(loop_policy(&settings, settings.budget.budget(prices)))
            .model(settings.provider.model_settings())
            .approvals(approvals.clone());
        for (tool, flow) in data_flow::of_tools(&loaded[..mains], hook_flow) {
            agent = agent.flow(tool, flow);
        }
        for hook in &hooks {
            agent = agent.hook(hook.clone());
        }
        let rules = subagents::Rules {
            approvals: &approvals,
            hooks: &hooks,
            hook_flow,
        };
        agent = subagents::offer(agent, &settings, &loaded, mains, &rules, environment)?;
        let is_kept = store.is_some();
        if let Some(store) = store {
            agent = agent.store(store);
        }
        let known = known(&loaded, &findings, environment);
        let approver = TerminalApprover::new(environment, console, known, is_kept);
        let is_attended = approver.is_some();
        if let Some(approver) = approver {
            agent = agent.approver(approver);
        }
        let agent = agent.build().map_err(|e| match e {
            BuildError::DuplicateHook { .. } | BuildError::HookCycle { .. } => {
                Failure::new(Exit::Config, "the hooks have conflicting orders")
                    .because(e)
                    .hint("set their order in `[hooks.NAME]`: `priority`, `before`, `after`")
            }
            e => Failure::new(Exit::Config, "the tools cannot be offered together")
                .because(e)
                .hint("choose among them with --tool"),
        })?;
        Ok(AgentSetup {
            agent,
            note: chosen.note,
            hints: Arc::new(AllowHints::new(&loaded, environment)),
            budget_hints: BudgetHints::new(&settings, prices, environment),
            scratch: Scratch::of(
                loaded.iter().map(|loaded| &loaded.settings),
                &settings,
                environment,
            )?,
            logs: Logs::open(settings.log.as_ref(), environment)?,
            is_kept,
            is_attended,
        })
    }
}

/// Returns the loop policy with the configured settings.
fn loop_policy(settings: &Settings, budget: Budget) -> LoopPolicy {
    let preset = settings
        .preset
        .as_ref()
        .and_then(|preset| preset::named(&preset.value));
    let mut policy = preset.unwrap_or_default();
    policy.budget = budget;
    if let Some(reasoning) = settings.provider.reasoning() {
        policy.reasoning = reasoning;
    }
    if let Some(steps) = &settings.max_steps {
        policy.max_steps = steps.value;
    }
    if let Some(deadline) = &settings.deadline {
        policy.deadline_ms = Some(u64::try_from(deadline.value.as_millis()).unwrap_or(u64::MAX));
    }
    policy
}

/// Collects what an approval question shows about each tool.
fn known(
    loaded: &[Loaded],
    findings: &BTreeMap<String, Vec<String>>,
    environment: &Environment,
) -> BTreeMap<String, Known> {
    let of_component = |loaded: &Loaded| {
        let known = Known {
            digest: loaded.component.digest().to_string(),
            component: loaded.settings.name.clone(),
            reach: (loaded.settings.grants.iter())
                .map(|line| terminal::reach(line, environment))
                .collect(),
            findings: findings.get(&loaded.settings.name).cloned().unwrap_or_default(),
        };
        let names: Vec<String> = loaded
            .tools
            .iter()
            .map(|tool| tool.spec().name.to_string())
            .collect();
        names.into_iter().map(move |name| (name, known.clone()))
    };
    loaded.iter().flat_map(of_component).collect()
}
