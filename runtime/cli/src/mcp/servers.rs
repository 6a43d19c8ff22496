//! Starts the MCP servers of the configuration, and says what is known of their tools.
//!
//! A server that does not start is a warning, unless it is required: a run goes on without its tools.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use toolcell_agent::Control;
use toolcell_core::event::DataFlow;
use toolcell_core::{Tool, ToolError};
use toolcell_mcp::client::{LeftOut, McpServer, PromptInfo};
use toolcell_sandbox::Digest;

use crate::agent::call_limit;
use crate::approval::question;
use crate::approval::terminal::Known;
use crate::components::loader::{ComponentLoader, Loaded};
use crate::components::{lock, secrets, tool_lint};
use crate::config::mcp::Transport;
use crate::config::{McpSettings, Settings, ToolSettings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::elicitor::TerminalElicitor;
use crate::mcp::lock::{Difference, LockedServer};
use crate::mcp::start::{Started, start};
use crate::ui::render::Console;
use crate::ui::terminal::{Own, ShownUrl, Text, text};

/// Maximum number of warnings about the tools of a server at its start, so that they do not scroll away everything else.
const MAX_WARNINGS: usize = 8;

/// Servers that run. Dropping them ends their processes.
#[derive(Default)]
pub(crate) struct Servers(Vec<Running>);

/// A server that runs.
pub(crate) struct Running {
    /// Settings of the server.
    pub(crate) settings: McpSettings,
    /// Tools that are offered.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    server: Arc<McpServer>,
    /// Digest of its component, if it runs in a cell.
    digest: Option<Digest>,
    /// Lint findings for its descriptions.
    findings: Vec<String>,
}

/// Divides names into those of components and the servers among them. Without names, all enabled servers are used.
pub(crate) fn select(names: &[String], settings: &Settings) -> (Vec<String>, Vec<McpSettings>) {
    let (servers, components): (Vec<_>, Vec<_>) =
        (names.iter().cloned()).partition(|name| settings.mcp.contains_key(name));
    let is_used = |server: &&McpSettings| match names.is_empty() {
        true => server.enabled.value,
        false => servers.contains(&server.name),
    };
    (
        components,
        settings.mcp.values().filter(is_used).cloned().collect(),
    )
}

impl Servers {
    /// Starts servers at the same time, each within its own time. The names of their tools must differ from those of
    /// `components`.
    ///
    /// # Errors
    /// Returns an error if a required server does not start, or the user cancels.
    pub(crate) async fn start(
        wanted: Vec<McpSettings>,
        components: &[Loaded],
        loader: &ComponentLoader<'_>,
        console: &Console,
    ) -> Result<Self, Failure> {
        let (settings, environment) = (loader.settings, loader.environment);
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let known = secrets::read(settings, environment)?;
        let elicitor = TerminalElicitor::at_terminal(environment, console);
        let starting = wanted.into_iter().map(|wanted| {
            let (known, elicitor) = (&known, elicitor.clone());
            async move {
                let started = start(&wanted, known, loader, elicitor).await;
                (wanted, started)
            }
        });
        let started = {
            let _activity = console.activity("starting MCP servers");
            tokio::select! {
                started = join_all(starting) => started,
                () = interrupted() => {
                    return Err(Failure::new(Exit::Cancelled, "cancelled while MCP servers were starting"));
                }
            }
        };
        let mut servers = Vec::new();
        for (mut settings, started) in started {
            let is_in_cell = matches!(settings.transport, Transport::Cell { .. });
            if is_in_cell && environment.client.is_some() {
                // Sessions of the client use it at the same time: what one has sent it, another may read.
                let kept = DataFlow {
                    reads_private: true,
                    untrusted_content: true,
                    ..DataFlow::default()
                };
                settings.flow = settings.flow.union(kept);
            }
            match started {
                Ok(started) => servers.push(Running::new(settings, started)),
                Err(failure) if settings.required => {
                    return Err(failure.why(text!("it is required\n{}", settings.origin.point_at())));
                }
                Err(failure) => console.warn(&failure),
            }
        }
        let mut servers = Self(servers);
        servers.check_names(components, settings, console);
        servers.check_descriptions(components);
        Ok(servers)
    }

    /// Limits the calls of their tools to the places of a client of `toolcell serve`.
    pub(crate) fn limit_calls(&mut self, environment: &Environment) {
        for running in &mut self.0 {
            call_limit::apply(&mut running.tools, environment);
        }
    }

    /// Servers that run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Running> {
        self.0.iter()
    }

    /// Returns the server of this name, if it runs.
    pub(crate) fn find(&self, name: &str) -> Option<&Running> {
        self.0.iter().find(|running| running.settings.name == name)
    }

    /// Lint findings by server.
    pub(crate) fn findings(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0
            .iter()
            .map(|running| (running.settings.name.as_str(), &running.findings[..]))
    }

    /// Facts about each tool that an approval question shows.
    pub(crate) fn known(&self, environment: &Environment) -> BTreeMap<String, Known> {
        let known = self.0.iter().flat_map(|running| {
            let tools = running.tools.iter();
            tools.map(|tool| {
                (
                    tool.spec().name.to_string(),
                    running.known(tool.as_ref(), environment),
                )
            })
        });
        known.collect()
    }

    /// Withholds tools whose definitions are not those of the lock file, if it has their server, and shows what changed.
    pub(crate) fn withhold_changed(
        &mut self,
        environment: &Environment,
        console: &Console,
    ) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        let locked = lock::servers(environment)?;
        for running in &mut self.0 {
            let Some(locked) = locked.get(&running.settings.name) else {
                continue;
            };
            let mut withheld: BTreeSet<String> = BTreeSet::new();
            let mut warnings = Vec::new();
            for Difference { tool, what, lines } in locked.differences(&LockedServer::of(running)) {
                let Some(tool) = tool else {
                    // A changed command is what the user wrote; the bytes of a component change by themselves.
                    if running.is_in_cell() {
                        let warning = text!(
                            "warning: the component of the MCP server `{}`, or what is granted to it, changed since `{}` was written; --locked refuses it",
                            running.settings.name,
                            Own(lock::FILE)
                        );
                        let lines = lines.into_iter().map(|line| text!("  {}", line));
                        warnings.push(once(warning).chain(lines).collect());
                    }
                    continue;
                };
                let warning = text!(
                    "warning: the tool `{}` of the MCP server `{}` is not offered: {} since `{}` was written",
                    tool,
                    running.settings.name,
                    Text::sentence(&what, []),
                    Own(lock::FILE)
                );
                let lines = lines.into_iter().map(|line| text!("  {}", line));
                warnings.push(once(warning).chain(lines).collect());
                withheld.insert(tool);
            }
            warn(&running.settings.name, warnings, console);
            running
                .tools
                .retain(|tool| !withheld.contains(tool.spec().name.as_str()));
            if !withheld.is_empty() {
                console.note("to accept the changes: toolcell lock");
            }
        }
        Ok(())
    }

    /// Ends the servers in cells, which begin anew at their next call: a new session gets nothing that they have kept. What
    /// the others keep is in their data-flow labels.
    pub(crate) async fn renew(&self) {
        let in_cells = self.0.iter().filter(|running| running.is_in_cell());
        join_all(in_cells.map(|running| running.server.stop())).await;
    }

    /// Ends all servers: each can end by itself in a short time.
    pub(crate) async fn stop(&self) {
        join_all(self.0.iter().map(|running| running.server.stop())).await;
    }

    /// Says which tools are not offered. A tool with the name of another one is not: of a component, an agent, or the loop.
    fn check_names(&mut self, components: &[Loaded], settings: &Settings, console: &Console) {
        let controls = Control::ALL.map(|control| (control.name().to_owned(), "Toolcell".to_owned()));
        let mut taken: BTreeMap<String, String> = BTreeMap::from(controls);
        for agent in settings.agents.keys() {
            taken.insert(agent.clone(), format!("the agent `{agent}`"));
        }
        for loaded in components {
            for tool in &loaded.tools {
                taken.insert(
                    tool.spec().name.to_string(),
                    format!("the component `{}`", loaded.settings.name),
                );
            }
        }
        for Running {
            settings,
            server,
            tools,
            ..
        } in &mut self.0
        {
            let left_out = server.left_out().iter().map(|left| {
                vec![text!(
                    "warning: the tool `{}` of the MCP server `{}` is not offered: {}",
                    left.tool,
                    settings.name,
                    reason_of(left)
                )]
            });
            let mut warnings: Vec<_> = left_out.collect();
            tools.retain(|tool| {
                let name = tool.spec().name.to_string();
                let Some(owner) = taken.get(&name) else {
                    taken.insert(name, format!("the MCP server `{}`", settings.name));
                    return true;
                };
                warnings.push(vec![text!(
                    "warning: the tool `{}` of the MCP server `{}` is not offered: {} has a tool of this name",
                    name,
                    settings.name,
                    Text::sentence(owner, [])
                )]);
                false
            });
            warn(&settings.name, warnings, console);
        }
    }

    fn check_descriptions(&mut self, components: &[Loaded]) {
        let of_components = components.iter().flat_map(|loaded| &loaded.tools);
        let of_servers = self.0.iter().flat_map(|running| &running.tools);
        let all: Vec<String> = of_components
            .chain(of_servers)
            .map(|tool| tool.spec().name.to_string())
            .collect();
        for running in &mut self.0 {
            let specs = running.tools.iter().map(|tool| tool.spec());
            running.findings = tool_lint::findings_in_component(specs, &all);
        }
    }
}

/// Returns the reason why a tool is not offered.
pub(crate) fn reason_of(left: &LeftOut) -> Text {
    let reason = Text::sentence(&left.reason, []);
    match &left.cause {
        Some(cause) => text!("{}: {}", reason, Text::of_others(cause.as_str())),
        None => reason,
    }
}

/// Shows the first warnings about tools of a server, each of several lines, and the number of the others.
fn warn(server: &str, warnings: Vec<Vec<Text>>, console: &Console) {
    let omitted = warnings.len().saturating_sub(MAX_WARNINGS);
    for line in warnings.into_iter().take(MAX_WARNINGS).flatten() {
        console.note(line);
    }
    if omitted > 0 {
        console.note(text!(
            "{} more warnings about this server; to see all its tools: toolcell mcp test {}",
            omitted,
            server
        ));
    }
}

/// Grants and bindings of secrets of a server in a cell, in a fixed order.
fn granted(component: &ToolSettings) -> Vec<String> {
    let secrets = (component.bindings.iter()).map(|binding| format!("secret {binding}"));
    let grants = component.grants.iter().map(|line| line.grant.to_string());
    let mut all: Vec<String> = grants.chain(secrets).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Running {
    pub(crate) fn new(settings: McpSettings, started: Started) -> Self {
        let Started { server, digest } = started;
        Self {
            settings,
            tools: server.tools(),
            server,
            digest,
            findings: Vec::new(),
        }
    }

    /// Its command line or address, and the bytes and the grants of its component, for the lock file.
    pub(crate) fn identity(&self) -> String {
        let address = self.settings.address();
        match (&self.settings.transport, &self.digest) {
            (Transport::Cell { component, .. }, Some(digest)) => {
                let grants = granted(component);
                format!("{address} ({digest}, grants: [{}])", grants.join(", "))
            }
            _ => address,
        }
    }

    fn is_in_cell(&self) -> bool {
        matches!(self.settings.transport, Transport::Cell { .. })
    }

    /// Returns the tool that reads its resources, if it is offered.
    pub(crate) fn resource_reader(&self) -> Option<Arc<dyn Tool>> {
        self.server.resource_reader().filter(|tool| self.offers(&**tool))
    }

    /// Returns the tool that gets its prompts, if it is offered.
    pub(crate) fn prompt_reader(&self) -> Option<Arc<dyn Tool>> {
        self.server.prompt_reader().filter(|tool| self.offers(&**tool))
    }

    /// Lists its prompts; none if they are not offered.
    pub(crate) async fn prompts(&self) -> Result<Vec<PromptInfo>, ToolError> {
        match self.prompt_reader() {
            Some(_) => self.server.prompts().await,
            None => Ok(Vec::new()),
        }
    }

    fn offers(&self, tool: &dyn Tool) -> bool {
        self.tools
            .iter()
            .any(|offered| offered.spec().name == tool.spec().name)
    }

    /// Tools that are not offered because something is wrong with them.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        self.server.left_out()
    }

    /// Ends the server.
    pub(crate) async fn stop(&self) {
        self.server.stop().await;
    }

    /// Data-flow labels of its tools, combined with those of the hooks.
    pub(crate) fn flows(&self, hooks: DataFlow) -> impl Iterator<Item = (String, DataFlow)> {
        let flow = self.settings.flow.union(hooks);
        self.tools
            .iter()
            .map(move |tool| (tool.spec().name.to_string(), flow))
    }

    fn known(&self, tool: &dyn Tool, environment: &Environment) -> Known {
        let settings = &self.settings;
        let digest = |value: serde_json::Value| Digest::of(value.to_string().as_bytes());
        let (what, access, reach) = match &settings.transport {
            Transport::Cell { component, arguments } => {
                let grants = granted(component);
                let digest = self.digest.map(|digest| digest.to_string());
                // A secret first: it reaches what the tool alone cannot.
                let secrets = component.bindings.iter().map(question::of_secret);
                let reach = (component.grants.iter()).map(|line| question::of_grant(line, environment));
                let reach: Vec<Text> = secrets.chain(reach).collect();
                let reach = match reach.is_empty() {
                    true => "compute and keep what it is sent: it is an MCP server in a cell, without grants"
                        .into(),
                    false => text!("as an MCP server in a cell: {}", Text::join(reach, "; ")),
                };
                (
                    json!([digest, arguments, tool.spec()]),
                    json!([grants, settings.flow]),
                    reach,
                )
            }
            Transport::Process(process) => {
                let env: Vec<&String> = process.env.keys().collect();
                (
                    json!([process.command, process.arguments, tool.spec()]),
                    json!([process.directory, env, settings.flow]),
                    text!(
                        "do anything that you can: it is an MCP server outside of every cell, the program `{}`",
                        process.command_line()
                    ),
                )
            }
            Transport::Http { url, headers, .. } => {
                let headers: Vec<&String> = headers.keys().collect();
                (
                    json!([url, tool.spec()]),
                    json!([headers, settings.flow]),
                    text!(
                        "send its arguments to {}, an MCP server outside of every cell, which can do anything with them",
                        ShownUrl(url)
                    ),
                )
            }
        };
        Known {
            digest: digest(what).to_string(),
            access: digest(access).hex(),
            component: settings.name.clone(),
            reach: vec![reach],
            findings: self.findings.clone(),
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
