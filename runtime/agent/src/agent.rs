//! Agent: a model, its tools and the rules of its loop. Creates sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolcell_core::event::DataFlow;
use toolcell_core::provider::ProviderInfo;
use toolcell_core::tool::InvalidToolName;
use toolcell_core::{Provider, Schema, SessionStore, Tool, ToolSpec};

use crate::approval::{ApprovalRule, Approvals, Approver};
use crate::budget::{Budget, Prices};
use crate::context;
use crate::context::prompt;
use crate::definition::AgentDefinition;
use crate::error::BuildError;
use crate::hook::{Hook, HookRunner};
use crate::machine::{Machine, Places, ToolFacts};
use crate::policy::{Control, Finish, LoopPolicy, ModelSettings, NoCall};
use crate::tools::control;
use crate::tools::registry::Registry;

/// A model, its tools and the rules of its loop. Cloning it is cheap.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use toolcell_agent::{Agent, preset};
/// # use toolcell_core::{Provider, Tool};
/// # async fn f(provider: Arc<dyn Provider>, tools: Vec<Arc<dyn Tool>>) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(provider)
///     .tools(tools)
///     .instructions("You keep the books of a small shop.")
///     .policy(preset::resilient())
///     .build()?;
/// let mut session = agent.session();
/// let report = session.ask("What did we sell yesterday?").await?;
/// println!("{}", report.text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent {
    pub(crate) definition: Arc<AgentDefinition>,
}

/// Builder of an [`Agent`].
#[derive(Clone)]
pub struct AgentBuilder {
    provider: Arc<dyn Provider>,
    tools: Vec<Arc<dyn Tool>>,
    client_tools: BTreeSet<String>,
    only: Option<Vec<String>>,
    flows: BTreeMap<String, DataFlow>,
    instructions: String,
    policy: LoopPolicy,
    model: ModelSettings,
    answer: Option<Arc<Schema>>,
    approvals: Approvals,
    approver: Option<Arc<dyn Approver>>,
    hooks: Vec<Arc<dyn Hook>>,
    hook_timeout: Duration,
    store: Option<Arc<dyn SessionStore>>,
    values: BTreeMap<String, Value>,
}

impl Agent {
    /// Starts an agent with this model, no tools and the default policy.
    pub fn builder(provider: impl Provider + 'static) -> AgentBuilder {
        AgentBuilder {
            provider: Arc::new(provider),
            tools: Vec::new(),
            client_tools: BTreeSet::new(),
            only: None,
            flows: BTreeMap::new(),
            instructions: String::new(),
            policy: LoopPolicy::default(),
            model: ModelSettings::default(),
            answer: None,
            approvals: Approvals::default(),
            approver: None,
            hooks: Vec::new(),
            hook_timeout: HookRunner::TIMEOUT,
            store: None,
            values: BTreeMap::new(),
        }
    }

    /// Loop settings.
    pub fn policy(&self) -> &LoopPolicy {
        &self.definition.machine.policy
    }

    /// The tools offered to the model, in the order of the request.
    pub fn tools(&self) -> &[ToolSpec] {
        &self.definition.specs
    }

    /// True if calls of one of the tools can change files.
    pub(crate) fn changes_files(&self) -> bool {
        self.definition.registry.iter().any(|tool| tool.changes_files())
    }

    /// Data flow of all tools combined.
    pub fn flow(&self) -> DataFlow {
        let flows = self.definition.machine.tools.values().map(|facts| facts.flow);
        flows.fold(DataFlow::default(), DataFlow::union)
    }

    /// Budget of each session.
    pub(crate) fn budget(&self) -> &Budget {
        &self.definition.machine.policy.budget
    }

    /// Token prices of the model, if set.
    pub(crate) fn prices(&self) -> Option<Prices> {
        self.definition.machine.policy.budget.prices
    }

    /// The system prompt.
    pub fn instructions(&self) -> &str {
        &self.definition.instructions
    }
}

impl AgentBuilder {
    /// Adds tools. Calls of one answer run concurrently, except calls of tools that are destructive or have the
    /// annotation `exclusive`: those wait for earlier calls, and later calls wait for them. Tools with the annotation
    /// `polling` may repeat the same call.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Adds tools that the client of the agent runs itself. Each call waits for a decision with the cause
    /// [`ApprovalCause::Client`](crate::ApprovalCause::Client), to which no rule and no data-flow guard applies; if it is
    /// approved, the tool returns the result of the client.
    #[must_use]
    pub fn client_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        for tool in tools {
            self.client_tools.insert(tool.spec().name.to_string());
            self.tools.push(tool);
        }
        self
    }

    /// Adds one tool.
    #[must_use]
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.tools([Arc::new(tool) as Arc<dyn Tool>])
    }

    /// Offers only the tools with these names: an empty list offers none, `None` offers all. Control tools are set by
    /// the policy.
    #[must_use]
    pub fn only(mut self, names: Option<impl IntoIterator<Item = impl Into<String>>>) -> Self {
        self.only = names.map(|names| names.into_iter().map(Into::into).collect());
        self
    }

    /// Declares the data flow of a tool's calls. Set by the code that grants the tool its access; the tool's own claims
    /// are not trusted.
    #[must_use]
    pub fn flow(mut self, tool: impl Into<String>, flow: DataFlow) -> Self {
        self.flows.insert(tool.into(), flow);
        self
    }

    /// Offers another agent as a tool, with the data flow of its tools. A call is a session of its own that counts
    /// against the budget of this agent's session and ends with it; its events are forwarded as
    /// [`toolcell_core::Event::Nested`], and its approval requests go to this agent's approver unless it has its own.
    ///
    /// # Errors
    /// Fails if the name is not a valid tool name.
    pub fn agent(self, name: &str, description: &str, agent: &Agent) -> Result<Self, InvalidToolName> {
        let flow = agent.flow();
        Ok(self.tools([agent.as_tool(name, description)?]).flow(name, flow))
    }

    /// Instructions for the model. A description of the loop is appended.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = text.into();
        self
    }

    /// Adds instructions after those that are set.
    #[must_use]
    pub fn further_instructions(mut self, text: &str) -> Self {
        if !self.instructions.is_empty() && !text.is_empty() {
            self.instructions.push_str("\n\n");
        }
        self.instructions.push_str(text);
        self
    }

    /// Adds approval rules after those that are set, so that they take precedence.
    #[must_use]
    pub fn further_rules(mut self, rules: impl IntoIterator<Item = ApprovalRule>) -> Self {
        self.approvals.rules.extend(rules);
        self
    }

    /// Removes the session store: sessions live in memory.
    #[must_use]
    pub fn without_store(mut self) -> Self {
        self.store = None;
        self
    }

    /// True if a further tool cannot have this name: one of the tools so far has it, or a control tool, offered or not.
    pub fn has_name(&self, name: &str) -> bool {
        is_reserved(name) || self.tools.iter().any(|tool| tool.spec().name.as_str() == name)
    }

    /// Model of the agent.
    pub fn provider_info(&self) -> &ProviderInfo {
        self.provider.info()
    }

    /// Sets the loop policy.
    #[must_use]
    pub fn policy(mut self, policy: LoopPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the model parameters of every request.
    #[must_use]
    pub fn model(mut self, settings: ModelSettings) -> Self {
        self.model = settings;
        self
    }

    /// Requires the final text to be JSON that fits this schema; [`crate::TurnReport::result`] holds the value.
    /// Providers with structured output are given the schema; if an answer does not fit, the model is told why and
    /// tries again.
    #[must_use]
    pub fn answer_schema(mut self, schema: Schema) -> Self {
        self.answer = Some(Arc::new(schema));
        self
    }

    /// Sets the approval rules.
    #[must_use]
    pub fn approvals(mut self, approvals: Approvals) -> Self {
        self.approvals = approvals;
        self
    }

    /// Sets the approver that decides on calls held for approval. Without one they are refused.
    #[must_use]
    pub fn approver(mut self, approver: Arc<dyn Approver>) -> Self {
        self.approver = Some(approver);
        self
    }

    /// Adds a hook.
    #[must_use]
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Sets the time limit of one method of a hook without its own ([`Hook::timeout`]); 10 seconds unless set.
    #[must_use]
    pub fn hook_timeout(mut self, timeout: Duration) -> Self {
        self.hook_timeout = timeout;
        self
    }

    /// Sets the session store. Without one, sessions live in memory.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Adds a value to the context of every tool call.
    #[must_use]
    pub fn value(mut self, name: impl Into<String>, value: Value) -> Self {
        self.values.insert(name.into(), value);
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// [`BuildError`], which names the conflicting or invalid setting.
    pub fn build(self) -> Result<Agent, BuildError> {
        let mut policy = self.policy;
        check(&policy)?;
        for rule in &self.approvals.rules {
            rule.check().map_err(|reason| BuildError::InvalidRule {
                rule: Box::new(rule.clone()),
                reason,
            })?;
        }
        let offered = offered(self.tools, self.only)?;
        if let Some(tool) = offered.iter().find(|tool| is_reserved(tool.spec().name.as_str())) {
            let name = tool.spec().name.clone();
            return Err(BuildError::ReservedName { name });
        }
        let has_tools = !offered.is_empty();
        if !has_tools {
            single_request(&mut policy);
        }
        let controls = controls_of(&policy);
        let registry = Registry::new(
            offered
                .into_iter()
                .chain(controls.iter().map(|kind| control::tool(*kind))),
        )?;
        // While paths are judged and followed, no other call changes where they lead.
        let judges_arguments = self.approvals.judges_arguments() || !self.hooks.is_empty();
        let facts = |tool: &Arc<dyn Tool>| {
            let spec = tool.spec();
            let name = spec.name.as_str();
            let has_claim = |claim: &str| spec.annotations.get(claim) == Some(&Value::Bool(true));
            let facts = ToolFacts {
                idempotent: spec.hints.idempotent,
                exclusive: spec.hints.destructive
                    || has_claim("exclusive")
                    || (judges_arguments && tool.changes_files()),
                polling: has_claim("polling"),
                flow: self.flows.get(name).copied().unwrap_or_default(),
                control: controls.iter().copied().find(|kind| kind.name() == name),
                of_client: self.client_tools.contains(name),
            };
            (name.to_owned(), facts)
        };
        let tools = registry.iter().map(facts).collect();
        let by_name: BTreeMap<String, Arc<dyn Tool>> = registry
            .iter()
            .map(|tool| (tool.spec().name.to_string(), tool.clone()))
            .collect();
        let places = Places::new(move |tool, arguments| {
            by_name
                .get(tool)
                .map_or_else(Vec::new, |tool| tool.places(arguments))
        });
        let specs = registry.specs();
        let instructions = prompt::instructions(&self.instructions, &policy, &controls, has_tools);
        let overhead = context::estimate_overhead(&instructions, &specs);
        Ok(Agent {
            definition: Arc::new(AgentDefinition {
                instructions: instructions.into(),
                provider: self.provider,
                registry,
                specs,
                machine: Machine {
                    policy,
                    approvals: self.approvals,
                    places,
                    tools,
                    answer: self.answer,
                    overhead,
                },
                model: self.model,
                hooks: HookRunner::new(self.hooks, self.hook_timeout)?,
                approver: self.approver,
                store: self.store,
                values: self.values,
            }),
        })
    }
}

/// True if the name belongs to a control tool, offered by this policy or not.
fn is_reserved(name: &str) -> bool {
    Control::ALL.iter().any(|control| control.name() == name)
}

fn offered(tools: Vec<Arc<dyn Tool>>, only: Option<Vec<String>>) -> Result<Vec<Arc<dyn Tool>>, BuildError> {
    let Some(only) = only else { return Ok(tools) };
    let named = |name: &String| tools.iter().any(|tool| tool.spec().name.as_str() == name);
    if let Some(name) = only.iter().find(|name| !named(name)) {
        return Err(BuildError::UnknownTool { name: name.clone() });
    }
    let listed = |tool: &Arc<dyn Tool>| only.iter().any(|name| name == tool.spec().name.as_str());
    Ok(tools.into_iter().filter(listed).collect())
}

/// Without tools there is nothing to do in a loop: the first text ends a turn, also of a policy that ends by a tool.
fn single_request(policy: &mut LoopPolicy) {
    policy.finish = Finish::Content;
    policy.no_call = NoCall::End;
    policy.control.clear();
}

/// The control tools to offer.
fn controls_of(policy: &LoopPolicy) -> Vec<Control> {
    let mut controls = policy.control.clone();
    controls.sort_unstable();
    controls.dedup();
    controls
}

fn check(policy: &LoopPolicy) -> Result<(), BuildError> {
    let numbers = [
        ("max_steps", u64::from(policy.max_steps)),
        ("concurrency", policy.concurrency as u64),
        ("tool_retry.attempts", u64::from(policy.tool_retry.attempts)),
        ("result_bytes", policy.result_bytes as u64),
    ];
    if let Some((setting, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
        return Err(BuildError::Zero { setting });
    }
    let ends = |kind: &Control| {
        matches!(
            kind,
            Control::TaskCompletion | Control::TaskComplete | Control::AskQuestion | Control::Converse
        )
    };
    if policy.finish == Finish::Tool && !policy.control.iter().any(ends) {
        return Err(BuildError::NoWayToFinish);
    }
    if policy.budget.cost_micros.is_some() && policy.budget.prices.is_none() {
        return Err(BuildError::NoPrices);
    }
    Ok(())
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("model", self.definition.provider.info())
            .field("registry", &self.definition.registry)
            .finish_non_exhaustive()
    }
}
