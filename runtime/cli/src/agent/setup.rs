//! An agent put together for a command: tools under their policies, a model, rules, a person to ask, a store.

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

/// Everything that decides what an agent is.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentFlags {
    /// Offer only this component: a name or a `.wasm` file; may be repeated. Otherwise all that ship or are configured.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// What happens to the call with which the session would have read private data, read what strangers can write, and
    /// be able to send outside [default: ask].
    #[arg(long, value_name = "WHAT")]
    flow: Option<FlowRule>,

    /// Set what the whole session may use, over all its turns (may be repeated), such as `calls=20`, `tokens=200k`,
    /// `wall=10m`, `cost=0.50`.
    #[arg(long = "budget", value_name = "NAME=VALUE")]
    budget: Vec<NamedBudget>,

    /// Refuse tools and hooks that differ from `toolcell.lock`.
    #[arg(long)]
    locked: bool,

    #[command(flatten)]
    model: ModelFlags,
}

/// Which model is asked, and how far a turn may go.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Model")]
struct ModelFlags {
    #[command(flatten)]
    provider: ProviderFlags,

    /// Requests to the model in one turn [default: 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,

    /// Wall time of one turn, such as `90s` or `5m` [default: none].
    #[arg(long, value_name = "TIME")]
    deadline: Option<Span>,

    /// Preset of the agent loop: `default`, `sequential`, `task`, `resilient`, `stepwise`.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
}

/// An agent, and what is needed to show what it does.
pub(crate) struct AgentSetup {
    /// The agent.
    pub(crate) agent: Agent,
    /// Which model it asks and why, on one line.
    pub(crate) note: Text,
    /// What would allow what is denied to its tools.
    pub(crate) hints: Arc<AllowHints>,
    /// What would raise a budget that is used up.
    pub(crate) budget_hints: BudgetHints,
    /// Where the changes of its tools go that do not go to the files themselves.
    pub(crate) scratch: Vec<Scratch>,
    /// Where everything is written down that happens, if anywhere.
    pub(crate) logs: Option<Logs>,
    /// Whether its sessions are kept.
    pub(crate) is_kept: bool,
    /// Whether a person can be asked.
    pub(crate) is_attended: bool,
}

impl AgentFlags {
    /// Puts the flags into the last layer of the configuration.
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

    /// Puts an agent together.
    ///
    /// # Errors
    /// When the configuration, the model or a tool cannot be used.
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
        let suspicions = tool_lint::among(&loaded);
        if self.locked {
            lock::check(&loaded, Some(&hooks), environment)?;
        } else {
            // What is locked was looked at.
            for suspicion in suspicions.values().flatten() {
                console.note(text!("look out: {}", suspicion));
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
        let known = known(&loaded, &suspicions, environment);
        let approver = TerminalApprover::new(environment, console, known, is_kept);
        let is_attended = approver.is_some();
        if let Some(approver) = approver {
            agent = agent.approver(approver);
        }
        let agent = agent.build().map_err(|e| match e {
            BuildError::DuplicateHook { .. } | BuildError::HookCycle { .. } => {
                Failure::new(Exit::Config, "the hooks cannot run together")
                    .because(e)
                    .hint("say in `[hooks.NAME]` which runs first: `priority`, `before`, `after`")
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
            ),
            logs: Logs::open(settings.log.as_ref(), environment)?,
            is_kept,
            is_attended,
        })
    }
}

/// The rules of the loop, with what configuration says.
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

/// What is known of each tool that a person may be asked about.
fn known(
    loaded: &[Loaded],
    suspicions: &BTreeMap<String, Vec<String>>,
    environment: &Environment,
) -> BTreeMap<String, Known> {
    let of_component = |loaded: &Loaded| {
        let known = Known {
            digest: loaded.component.digest().to_string(),
            component: loaded.settings.name.clone(),
            reach: (loaded.settings.grants.iter())
                .map(|line| terminal::reach(line, environment))
                .collect(),
            suspicions: suspicions.get(&loaded.settings.name).cloned().unwrap_or_default(),
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
