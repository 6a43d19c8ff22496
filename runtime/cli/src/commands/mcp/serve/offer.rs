//! Tools that are served: those of components, or an agent as a tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcell_agent::budget::Budget;
use toolcell_agent::{ApprovalCause, ApprovalHint, Approvals, ClientGuard, ClientHooks, ClientRules};
use toolcell_core::Tool;
use toolcell_core::event::{DataFlow, EventSink};
use toolcell_core::suggest::nearest;
use toolcell_mcp::Offered;

use super::directories::{Directories, Listing, Reader};
use crate::agent::{call_limit, setup};
use crate::approval::terminal::Known;
use crate::approval::{project_rules, terminal};
use crate::components::loader::{ComponentLoader, Loaded, LoadedHook};
use crate::components::{data_flow, lock, selection, tool_lint};
use crate::config::user_files::user_file_shown;
use crate::config::{ComponentSource, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::servers::Servers;
use crate::ui::hints::BudgetHints;
use crate::ui::render::Console;
use crate::ui::terminal::text;

/// Lint findings by component.
pub(super) type Findings = BTreeMap<String, Vec<String>>;

/// Tools that are served, and what applies to each client of them.
pub(super) struct Offer {
    /// Components that are called, also by an agent.
    pub(super) loaded: Vec<Loaded>,
    /// Facts about each tool for questions.
    pub(super) known: Arc<BTreeMap<String, Known>>,
    offered: Offered,
    flows: BTreeMap<String, DataFlow>,
    approvals: Approvals,
    budget: Budget,
    /// Hooks around the calls of a client; `None` for an agent, which runs them itself.
    hooks: Option<ClientHooks>,
    /// MCP servers of an agent.
    servers: Servers,
    /// Name of the agent, and whether its tools are compared with the lock file.
    agent: Option<(String, bool)>,
    /// What lists the directories that are offered, and their files.
    pub(super) directories: Option<(Reader, Listing)>,
}

impl Offer {
    /// Loads components. Returns the lint findings for their descriptions as well, unless they are locked.
    pub(super) async fn components(
        loader: &ComponentLoader<'_>,
        wanted: &[ToolSettings],
        directories: Option<&Directories>,
        hooks: &[LoadedHook],
        is_locked: bool,
    ) -> Result<(Self, Findings), Failure> {
        let (settings, environment) = (loader.settings, loader.environment);
        let mut loaded = selection::load_all(loader, wanted).await?;
        for component in &mut loaded {
            // Files are offered as resources only where the user says so.
            if matches!(component.settings.component, ComponentSource::File(_)) {
                loader.add_context(component).await?;
            }
        }
        selection::check_tools(&loaded, environment)?;
        let components = loaded.len();
        let mut listed = None;
        if let Some(directories) = directories {
            let (directory, reader, listing) = directories.load(loader).await?;
            loaded.push(directory);
            listed = Some((reader, listing));
        }
        for component in &mut loaded {
            call_limit::apply(&mut component.tools, environment);
            let context = &mut component.context;
            let reader = context
                .resources
                .iter_mut()
                .map(|resources| &mut resources.reader);
            let getter = context.prompts.iter_mut().map(|prompts| &mut prompts.getter);
            for tool in reader.chain(getter) {
                call_limit::apply(std::slice::from_mut(tool), environment);
            }
        }
        check_names(&loaded)?;
        let findings = tool_lint::among(&loaded);
        if is_locked {
            // Directories are no component of the user.
            lock::check(&loaded[..components], Some(hooks), environment)?;
        }
        let mut approvals = terminal::rules(settings, environment);
        let of_projects = project_rules::of(&loaded, &approvals.rules);
        approvals.rules.extend(of_projects);
        let flows = data_flow::of_tools(&loaded, data_flow::of_hooks(hooks));
        let offer = Self {
            known: Arc::new(setup::known(&loaded, &findings, settings, environment)?),
            offered: Offered {
                tools: loaded.iter().flat_map(|loaded| loaded.tools.clone()).collect(),
                resources: named(&loaded, |loaded| loaded.context.resources.clone()),
                prompts: named(&loaded, |loaded| loaded.context.prompts.clone()),
                tells_updates: false,
            },
            flows: flows.into_iter().collect(),
            approvals,
            budget: settings.budget.budget(None),
            hooks: client_hooks(hooks)?,
            servers: Servers::default(),
            agent: None,
            directories: listed,
            loaded,
        };
        let findings = if is_locked { Findings::new() } else { findings };
        Ok((offer, findings))
    }

    /// Sets up an agent of `[agents]`. It asks about the calls of its tools, and runs the hooks, as when another one calls it.
    pub(super) async fn agent(
        name: &str,
        is_locked: bool,
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Self, Failure> {
        let wanted = settings.agents.get(name).ok_or_else(|| {
            let failure = Failure::new(Exit::Usage, text!("there is no agent `{}`", name));
            let names: Vec<&str> = settings.agents.keys().map(String::as_str).collect();
            match nearest(name, &names).first() {
                Some(near) => failure.hint(text!("did you mean `{}`?", near)),
                None => failure.hint("define it in your configuration: [agents.NAME] description = \"…\""),
            }
        })?;
        let sole = setup::sole(wanted, is_locked, settings, environment, console).await?;
        // Questions and hooks tell calls of the agent from its own calls by their names.
        if sole.known.contains_key(name) {
            return Err(
                Failure::new(Exit::Config, text!("the agent `{}` cannot be served", name))
                    .why("one of its tools has its name")
                    .hint("rename the agent"),
            );
        }
        let tool = sole.agent.as_tool(name, &wanted.description.value);
        let tool =
            tool.map_err(|error| Failure::new(Exit::Config, "an agent cannot be offered").because(error))?;
        Ok(Self {
            flows: BTreeMap::from([(name.to_owned(), sole.agent.flow())]),
            offered: Offered::from([tool]),
            known: Arc::new(sole.known),
            approvals: sole.approvals,
            budget: sole.budget,
            hooks: None,
            servers: sole.servers,
            agent: Some((name.to_owned(), is_locked)),
            directories: None,
            loaded: sole.loaded,
        })
    }

    /// Arguments of [`Offer::agent`] for another client, if it cannot share what this one has.
    pub(super) fn again(&self) -> Option<(String, bool)> {
        let has_servers = self.servers.iter().next().is_some();
        self.agent.clone().filter(|_| has_servers)
    }

    /// Creates the guard of a client, with its budget. Hooks know the client as `session`.
    pub(super) fn guard(&self, session: &str, events: Arc<dyn EventSink>) -> ClientGuard {
        let budget = self.budget.clone();
        match &self.hooks {
            Some(hooks) => ClientGuard::with_hooks(budget, hooks.clone(), session, events),
            None => ClientGuard::new(budget),
        }
    }

    /// Returns what is offered to one client, under the approval rules, the flow guard and the budget.
    pub(super) fn of_client(
        &self,
        guard: &ClientGuard,
        settings: &Settings,
        environment: &Environment,
    ) -> Offered {
        let budget_hints = BudgetHints::new(settings, None, environment).without_flag();
        let rules = ClientRules {
            approvals: self.approvals.clone(),
            flows: self.flows.clone(),
            approval_hint: approval_hint(environment),
            budget_hint: Arc::new(move |spent| budget_hints.of(spent, 0)),
        };
        let mut offered = self.offered.clone();
        let tools = offered.tools.iter_mut();
        let readers = offered
            .resources
            .iter_mut()
            .map(|(_, resources)| &mut resources.reader);
        let getters = offered.prompts.iter_mut().map(|(_, prompts)| &mut prompts.getter);
        let all: Vec<&mut Arc<dyn Tool>> = tools.chain(readers).chain(getters).collect();
        let guarded = guard.tools(all.iter().map(|tool| Arc::clone(tool)), rules);
        for (tool, guarded) in all.into_iter().zip(guarded) {
            *tool = guarded;
        }
        offered
    }

    /// Says that [`Clients`](super::clients::Clients) are told when resources change.
    pub(super) fn tells_updates(mut self) -> Self {
        self.offered.tells_updates = true;
        self
    }

    /// Ends the MCP servers of an agent.
    pub(super) async fn end(&self) {
        self.servers.stop().await;
    }
}

/// Returns what components have, each with the name of its component.
fn named<T>(loaded: &[Loaded], of: impl Fn(&Loaded) -> Option<T>) -> Vec<(String, T)> {
    let all = loaded.iter();
    all.filter_map(|loaded| Some((loaded.settings.name.clone(), of(loaded)?)))
        .collect()
}

/// Refuses two components whose resources or prompts could not be told apart by rules, or from a tool.
fn check_names(loaded: &[Loaded]) -> Result<(), Failure> {
    let mut names = BTreeMap::new();
    let tools = loaded
        .iter()
        .flat_map(|of| of.tools.iter().map(move |tool| (of, tool)));
    for (of, tool) in tools {
        names.insert(tool.spec().name.clone(), of.settings.name.as_str());
    }
    for of in loaded {
        for tool in of.called().skip(of.tools.len()) {
            let name = &tool.spec().name;
            if let Some(other) = names.insert(name.clone(), &of.settings.name) {
                return Err(Failure::new(
                    Exit::Config,
                    text!("`{}` cannot be served beside `{}`", of.settings.name, other),
                )
                .why(text!("both have `{}`, by which approval rules name them", name))
                .hint("give one of them another name: `[tools.NAME]`"));
            }
        }
    }
    Ok(())
}

/// Returns the hooks around the calls of clients, if there are some.
fn client_hooks(hooks: &[LoadedHook]) -> Result<Option<ClientHooks>, Failure> {
    if hooks.is_empty() {
        return Ok(None);
    }
    let hooks = hooks.iter().map(|hook| hook.hook.clone()).collect();
    ClientHooks::new(hooks).map(Some).map_err(setup::cannot_build)
}

/// Reason for which a client's user is not asked.
pub(super) const CANNOT_ASK: &str = "its MCP client cannot ask for approval";

/// Returns the hint for a call that needs approval, which its client cannot ask for.
fn approval_hint(environment: &Environment) -> Arc<ApprovalHint> {
    let change = approval_change(environment);
    Arc::new(move |tool, cause| format!("{CANNOT_ASK}; {}", change(tool, cause)))
}

/// Returns the change of the configuration that allows a call which needs approval.
pub(super) fn approval_change(environment: &Environment) -> Arc<ApprovalHint> {
    let file = user_file_shown(environment);
    Arc::new(move |tool, cause| {
        let rule = || format!("end the rules with {{ tool = \"{tool}\", verdict = \"allow\" }}");
        let flow = "add flow = \"off\", or --flow off";
        let change = match cause {
            ApprovalCause::Rule => rule(),
            ApprovalCause::Flow => flow.to_owned(),
            ApprovalCause::RuleAndFlow | ApprovalCause::Client => format!("{}, and {flow}", rule()),
        };
        format!("to allow it, in {file}, [approval]: {change}")
    })
}
