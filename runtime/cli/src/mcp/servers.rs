//! Starts the MCP servers of the configuration, and says what is known of their tools.
//!
//! A server that does not start is a warning, unless it is required: a run goes on without its tools.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::iter::once;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use toolcell_agent::Control;
use toolcell_core::event::DataFlow;
use toolcell_core::suggest::nearest;
use toolcell_core::{Secrets, Tool};
use toolcell_mcp::Identity;
use toolcell_mcp::client::{Elicitor, Launch, LeftOut, McpServer, Options, Remote, ServerError, StartError};
use toolcell_sandbox::Digest;

use crate::approval::terminal::Known;
use crate::components::keyring::Keyring;
use crate::components::loader::Loaded;
use crate::components::{lock, secrets, tool_lint};
use crate::config::mcp::{EnvValue, Process, Transport};
use crate::config::{McpSettings, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::mcp::elicitor::TerminalElicitor;
use crate::mcp::lock::{Difference, LockedServer};
use crate::ui::render::Console;
use crate::ui::terminal::{Own, ShownUrl, Text, text};

/// Variables that every server gets: without them most programs do not find their parts.
const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// Headers for a token, as they are written in the configuration.
const BEARER: &str = "{ Authorization = { secret = \"NAME\", template = \"Bearer {}\" } }";

/// Maximum length of the output of a failed server that is shown, in characters.
const MAX_OUTPUT: usize = 1_000;

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
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Self, Failure> {
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let known = secrets::read(settings, environment)?;
        let elicitor = TerminalElicitor::at_terminal(environment, console);
        let starting = wanted.into_iter().map(|wanted| {
            let (known, elicitor) = (&known, elicitor.clone());
            async move {
                let started = start(&wanted, known, settings, environment, elicitor).await;
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
        for (settings, started) in started {
            match started {
                Ok(server) => servers.push(Running::new(settings, server)),
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

    /// Servers that run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Running> {
        self.0.iter()
    }

    /// Lint findings of all servers.
    pub(crate) fn findings(&self) -> impl Iterator<Item = &String> {
        self.0.iter().flat_map(|running| &running.findings)
    }

    /// Facts about each tool that an approval question shows.
    pub(crate) fn known(&self) -> BTreeMap<String, Known> {
        let known = self.0.iter().flat_map(|running| {
            let tools = running.tools.iter();
            tools.map(|tool| (tool.spec().name.to_string(), running.known(tool.as_ref())))
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
                // A changed command is what the user wrote.
                let Some(tool) = tool else { continue };
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
                    Text::sentence(&left.reason, [left.tool.as_str()])
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

impl Running {
    pub(crate) fn new(settings: McpSettings, server: Arc<McpServer>) -> Self {
        Self {
            settings,
            tools: server.tools(),
            server,
            findings: Vec::new(),
        }
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

    fn known(&self, tool: &dyn Tool) -> Known {
        let settings = &self.settings;
        let digest = |value: serde_json::Value| Digest::of(value.to_string().as_bytes());
        let (what, access, reach) = match &settings.transport {
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
            Transport::Http { url, headers } => {
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

/// Starts a server, or connects to it. Its questions go to `elicitor`, and are refused without one.
///
/// # Errors
/// Returns an error that says what the server lacks or did, with a hint for the user.
pub(crate) async fn start(
    server: &McpSettings,
    known: &Secrets,
    settings: &Settings,
    environment: &Environment,
    elicitor: Option<Arc<dyn Elicitor>>,
) -> Result<Arc<McpServer>, Failure> {
    let secrets = secrets_of(server, known, settings)
        .map_err(|failure| failure.why(text!("it is for the MCP server `{}`", server.name)))?;
    let options = Options {
        only: server.only.clone(),
        except: server.except.clone(),
        start_timeout: server.start_timeout,
        call_timeout: server.call_timeout,
        trusts_annotations: server.trusts_annotations,
        redactor: secrets.redactor(),
        elicitor,
        ..Options::new(server.name.as_str())
    };
    let identity = Identity {
        name: "toolcell".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: None,
    };
    match &server.transport {
        Transport::Process(process) => {
            let fail = || {
                Failure::new(
                    Exit::Config,
                    text!("the MCP server `{}` did not start", server.name),
                )
            };
            let program = process.program.clone().ok_or_else(|| {
                fail()
                    .why(text!("there is no program `{}` in PATH", process.command))
                    .hint("install it, or set `command` to its path")
            })?;
            let launch = Launch {
                program,
                new_session: environment.session_child(),
                arguments: process.arguments.iter().map(OsString::from).collect(),
                environment: variables(process, &secrets, environment),
                directory: process.directory.clone(),
            };
            let started = McpServer::start(launch, options, identity).await;
            started.map_err(|StartError { error, output }| {
                let failure = fail().because(error);
                let failure = match output.as_str() {
                    "" => failure,
                    output => failure.why(text!("it wrote: {}", Text::of_others(output)).excerpt(MAX_OUTPUT)),
                };
                failure.hint(text!("to see it alone: {}", process.command_line()))
            })
        }
        Transport::Http { url, headers } => {
            let fail = || {
                Failure::new(
                    Exit::Config,
                    text!("the MCP server `{}` cannot be used", server.name),
                )
            };
            let values = headers.iter().filter_map(|(name, value)| {
                let value = value.with(|secret| secrets.get(secret).map(|value| value.expose()));
                Some((name.clone(), value?))
            });
            let remote = Remote::new(url, values).map_err(|error| fail().because(error))?;
            let connected = McpServer::over_http(remote, options, identity).await;
            connected.map_err(|StartError { error, .. }| {
                let hint = hint_over_http(&error, server);
                fail().because(error).hints(hint)
            })
        }
    }
}

/// Action of the user after a server over HTTP refused the client.
fn hint_over_http(error: &ServerError, server: &McpSettings) -> Option<Text> {
    Some(match error {
        ServerError::Unauthorized if server.secrets().next().is_some() => text!(
            "replace the secret by a valid one; if the server wants it after a word: headers = {}",
            Own(BEARER)
        ),
        ServerError::Unauthorized => text!(
            "store a token as a secret, and add to [mcp.{}]: headers = {}",
            server.name,
            Own(BEARER)
        ),
        ServerError::Redirected(_) => "set `url` to the address that the operator of the server gives".into(),
        ServerError::Unreachable(_) => "check `url`, and the connection to its host".into(),
        ServerError::Status {
            status: 404 | 405, ..
        } => "check the path of `url`, which often ends with /mcp".into(),
        _ => return None,
    })
}

/// Adds the secrets of the server that are in the keyring, and refuses one without a value.
fn secrets_of(server: &McpSettings, known: &Secrets, settings: &Settings) -> Result<Secrets, Failure> {
    let secrets = secrets::with_keyring(known, settings, server.secrets(), &Keyring::of_system())?;
    let Some(missing) = server.secrets().find(|name| secrets.get(name).is_none()) else {
        return Ok(secrets);
    };
    let failure = Failure::new(Exit::Config, text!("the secret `{}` has no value", missing));
    let names: Vec<&str> = settings.secrets.keys().map(String::as_str).collect();
    Err(
        match (names.contains(&missing), nearest(missing, &names).first()) {
            (false, Some(near)) => failure.hint(text!("did you mean `{}`?", near)),
            (false, None) => failure.hint(text!("say where it is: [secrets.{}] env = \"VARIABLE\"", missing)),
            (true, _) => failure.hint("set its variable, or store it in its file"),
        },
    )
}

/// The whole environment of a server.
fn variables(server: &Process, secrets: &Secrets, environment: &Environment) -> Vec<(String, OsString)> {
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), environment.var_os(name)?)));
    let own = server.env.iter().filter_map(|(name, value)| {
        let value = match value {
            EnvValue::Text(text) => text.as_str(),
            EnvValue::Secret(name) => secrets.get(&name.secret)?.expose(),
        };
        Some((name.clone(), OsString::from(value)))
    });
    inherited.chain(own).collect()
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
