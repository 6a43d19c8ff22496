//! `toolcell mcp serve`: serves tools to clients of the Model Context Protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use toolcell_agent::{ApprovalCause, ApprovalHint, ClientRules, guarded};
use toolcell_core::event::{DataFlow, Event, EventSink as _};
use toolcell_core::tool::LogLine;
use toolcell_core::{ApprovalRequest, CallResult, Tool, ToolCall, ToolName};
use toolcell_mcp::{Access, HttpServer, Identity, Metrics, Server, ServerObserver};
use toolcell_store::LogFiles;

use super::http::{self, Http};
use crate::agent::setup;
use crate::approval::terminal::Known;
use crate::approval::{project_rules, question, terminal};
use crate::components::keyring::Keyring;
use crate::components::loader::{ComponentLoader, Loaded};
use crate::components::{data_flow, lock, selection, tool_lint};
use crate::config::file::FlowRule;
use crate::config::user_files::user_file_shown;
use crate::config::{self, Overrides, Settings};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::telemetry::log_files::Logs;
use crate::ui::hints::{AllowHints, BudgetHints};
use crate::ui::interrupt::Interrupts;
use crate::ui::render::Console;
use crate::ui::terminal::{Size, text};

/// Serve tools to an MCP client over standard input and output, or to many over HTTP.
///
/// The client starts this command; with --http, it serves until Ctrl-C or SIGTERM. Grants come from these flags and your configuration; the client cannot change them.
/// Messages for you go to standard error, which most clients keep as the log of the server.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell mcp serve --http 127.0.0.1:8080 --tool text
  toolcell mcp serve --http 0.0.0.0:8080 --token-file tokens --allow-host tools.example

Example of a client's configuration:
  {{\"mcpServers\": {{\"toolcell\": {{\"command\": \"toolcell\",
    \"args\": [\"mcp\", \"serve\", \"--tool\", \"files\", \"--grant\", \"files:read=/home/me/notes\"]}}}}}}

{}", crate::exit::TABLE))]
pub(crate) struct Serve {
    /// Serve only this component: a name or a `.wasm` file (repeatable). Defaults to all built-in and configured ones.
    #[arg(long = "tool", value_name = "NAME|FILE")]
    tools: Vec<String>,

    #[command(flatten)]
    policy: PolicyFlags,

    /// What to do with a call that would combine private data, untrusted content and network egress [default: ask].
    #[arg(long, value_name = "ACTION")]
    flow: Option<FlowRule>,

    /// Refuse tools that differ from `toolcell.lock`.
    #[arg(long)]
    locked: bool,

    #[command(flatten)]
    http: Http,
}

impl Serve {
    /// True if clients connect to an address.
    pub(super) fn is_over_http(&self) -> bool {
        self.http.address.is_some()
    }

    /// Loads the settings and the tools once, as [`run`](Self::run) does. Returns the settings.
    ///
    /// # Errors
    /// Returns the error with which the server would end.
    pub(super) async fn check(
        &self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Settings, Failure> {
        let settings = self.settings(overrides, environment)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let loaded = selection::load(&loader, &self.tools, console).await?;
        if self.locked {
            lock::check(&loaded, Some(&[]), environment)?;
        }
        drop((loaded, loader));
        Ok(settings)
    }

    fn settings(&self, mut overrides: Overrides, environment: &Environment) -> Result<Settings, Failure> {
        self.policy.apply(&mut overrides);
        overrides.flow = self.flow;
        let settings = config::load(environment, overrides)?;
        check_enforced(&settings)?;
        Ok(settings)
    }

    pub(super) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        let terminals = environment.terminals;
        if self.http.address.is_none() && (terminals.stdin || terminals.stdout) {
            return Err(
                Failure::new(Exit::Usage, "there is no MCP client to serve")
                    .why("standard input or output is a terminal")
                    .hint("add `toolcell mcp serve` to the configuration of an MCP client, which starts it, or add --http 127.0.0.1:8080; `toolcell call` calls a tool by hand"),
            );
        }
        let settings = self.settings(overrides, environment)?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let loaded = selection::load(&loader, &self.tools, console).await?;
        if self.locked {
            lock::check(&loaded, Some(&[]), environment)?;
        } else {
            for finding in tool_lint::among(&loaded).values().flatten() {
                console.note(text!("warning: {}", finding));
            }
        }
        let clients = Clients {
            loaded: &loaded,
            settings: &settings,
            environment,
            console,
        };
        let stop = CancellationToken::new();
        let interrupts = Interrupts::watch(console.clone());
        let _guard = interrupts.stop_next(stop.clone());
        match self.http.address {
            None => clients.serve_stdio(&stop).await,
            Some(address) => Box::pin(clients.serve_http(&self.http, address, &stop)).await,
        }
    }
}

/// Parts that the servers of all clients share.
struct Clients<'a> {
    loaded: &'a [Loaded],
    settings: &'a Settings,
    environment: &'a Environment,
    console: &'a Console,
}

impl Clients<'_> {
    /// Creates the server of one client, with a budget, a data flow and a log of its own.
    fn server(&self, metrics: Option<&Arc<Metrics>>) -> Result<(Server, Arc<CallLog>), Failure> {
        let log = CallLog::open(self.loaded, self.settings, self.environment, self.console)?;
        let observer: Arc<dyn ServerObserver> = match metrics {
            Some(metrics) => metrics.observing(log.clone()),
            None => log.clone(),
        };
        let identity = Identity {
            name: "toolcell".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            instructions: None,
        };
        let tools = tools(self.loaded, self.settings, self.environment);
        let server = Server::new(tools, identity, observer).map_err(|error| {
            Failure::new(Exit::Config, "the tools cannot be served together")
                .because(error)
                .hint("choose among them with --tool")
        })?;
        Ok((server, log))
    }

    async fn serve_stdio(&self, stop: &CancellationToken) -> Result<Exit, Failure> {
        let (server, log) = self.server(None)?;
        let ended = stop.child_token();
        cancel_when_unread(ended.clone());
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        let served = server.serve(input, output, &ended).await;
        log.end();
        served.map_err(|error| {
            Failure::new(Exit::Failed, "the connection to the MCP client failed").because(error)
        })?;
        Ok(if stop.is_cancelled() {
            Exit::Cancelled
        } else {
            Exit::Ok
        })
    }

    async fn serve_http(
        &self,
        http: &Http,
        address: SocketAddr,
        stop: &CancellationToken,
    ) -> Result<Exit, Failure> {
        let tokens = http.tokens(address, self.environment, &Keyring::of_system())?;
        let metrics = Arc::new(Metrics::default());
        let mut logs = Vec::new();
        let mut server = || -> Result<Server, Failure> {
            let (server, log) = self.server(Some(&metrics))?;
            logs.push(log);
            Ok(server)
        };
        let access = if tokens.is_empty() {
            Access::Open(server()?)
        } else {
            let clients = tokens.into_iter().map(|token| Ok((token, server()?)));
            Access::Tokens(clients.collect::<Result<_, Failure>>()?)
        };
        let listener = http::listen(address, self.console).await?;
        let server = HttpServer::new(access, http.reached(), metrics);
        let served = server.serve(listener, stop).await;
        for log in logs {
            log.end();
        }
        served.map_err(|error| {
            Failure::new(Exit::Failed, "the MCP clients could not be served").because(error)
        })?;
        Ok(Exit::Ok)
    }
}

/// Time between two looks at a standard output of which the system does not tell at once that it was closed.
const LOOK: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Cancels when the client has closed its end of standard output, which a server with nothing to write would not notice.
fn cancel_when_unread(ended: CancellationToken) {
    let look = move || {
        while !ended.is_cancelled() {
            // Errors and hang-ups are always reported.
            let output = std::io::stdout();
            let mut output = [PollFd::new(&output, PollFlags::empty())];
            match poll(&mut output, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => ended.cancel(),
                Err(_) => return,
            }
        }
    };
    // Without the thread, the next message shows that nobody reads.
    let _ = std::thread::Builder::new().name("stdout".into()).spawn(look);
}

/// Refuses settings that this command would not enforce: serving without them would be weaker than what the user wrote.
fn check_enforced(settings: &Settings) -> Result<(), Failure> {
    let mut hooks = settings.hooks.values();
    if let Some(hook) = hooks.find(|hook| hook.component.enabled.value) {
        let failure = Failure::new(Exit::Config, "hooks do not run for MCP clients yet").why(text!(
            "the hook `{}` is enabled, and the calls of a client would bypass it",
            hook.component.name
        ));
        return Err(failure
            .hint("serve with a configuration of its own, without them: toolcell --config FILE mcp serve"));
    }
    Ok(())
}

/// Returns the tools under the approval rules, the flow guard and the budget.
fn tools(loaded: &[Loaded], settings: &Settings, environment: &Environment) -> Vec<Arc<dyn Tool>> {
    let mut approvals = terminal::rules(settings, environment);
    let of_projects = project_rules::of(loaded, &approvals.rules);
    approvals.rules.extend(of_projects);
    let budget_hints = BudgetHints::new(settings, None, environment);
    let rules = ClientRules {
        approvals,
        flows: data_flow::of_tools(loaded, DataFlow::default())
            .into_iter()
            .collect(),
        budget: settings.budget.budget(None),
        approval_hint: approval_hint(environment),
        budget_hint: Arc::new(move |spent| budget_hints.of(spent, 0)),
    };
    let tools = loaded.iter().flat_map(|loaded| loaded.tools.iter().cloned());
    guarded(tools, rules)
}

/// Returns the hint for a call that needs approval, which its client cannot ask for.
fn approval_hint(environment: &Environment) -> Arc<ApprovalHint> {
    let file = user_file_shown(environment);
    Arc::new(move |tool, cause| {
        let rule = || format!("end the rules with {{ tool = \"{tool}\", verdict = \"allow\" }}");
        let flow = "add flow = \"off\", or --flow off";
        let change = match cause {
            ApprovalCause::Rule => rule(),
            ApprovalCause::Flow => flow.to_owned(),
            ApprovalCause::RuleAndFlow => format!("{}, and {flow}", rule()),
        };
        format!("its MCP client cannot ask for approval; to allow it, in {file}, [approval]: {change}")
    })
}

/// Maximum number of hints that are printed. Each is printed once: a client that does not read standard error must not
/// block calls when the pipe is full.
const MAX_HINTS: usize = 64;

/// Files the calls of the client, and tells the user on standard error how to allow what was denied.
struct CallLog {
    console: Console,
    hints: AllowHints,
    /// Facts about each tool for questions.
    known: Arc<BTreeMap<String, Known>>,
    size: Size,
    told: Mutex<BTreeSet<String>>,
    log: Option<Arc<LogFiles>>,
}

impl CallLog {
    fn open(
        loaded: &[Loaded],
        settings: &Settings,
        environment: &Environment,
        console: &Console,
    ) -> Result<Arc<Self>, Failure> {
        let session = format!("mcp-{}", uuid::Uuid::now_v7());
        let log = match Logs::open(settings.log.as_ref(), environment)? {
            Some(mut logs) => Some(logs.of(&session)?),
            None => None,
        };
        Ok(Arc::new(Self {
            console: console.clone(),
            hints: AllowHints::new(loaded, environment),
            known: Arc::new(setup::known(
                loaded,
                &tool_lint::among(loaded),
                settings,
                environment,
            )?),
            size: Size::of_error(environment),
            told: Mutex::default(),
            log,
        }))
    }

    fn file(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.event(event);
        }
    }

    /// Tells the user something once.
    fn tell(&self, message: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_HINTS && told.insert(message.clone()) {
            self.console.note(message);
        }
    }

    /// Reports a log that could not be written.
    fn end(&self) {
        if let Some(error) = self.log.as_ref().and_then(|log| log.error()) {
            self.console.note(text!("the log is incomplete: {}", error));
        }
    }
}

impl ServerObserver for CallLog {
    fn question(&self, request: &ApprovalRequest) -> Option<String> {
        question::of_call(request, self.known.get(&request.tool), false).plain(self.size)
    }

    fn started(&self, call: &ToolCall) {
        tracing::debug!(tool = %call.name, id = call.id, "the call starts");
        self.file(&Event::CallStarted {
            id: call.id.clone(),
            tool: call.name.to_string(),
            arguments: call.arguments.clone().into(),
        });
    }

    fn log(&self, call: &str, line: &LogLine) {
        self.file(&Event::CallLog {
            id: call.to_owned(),
            line: line.clone(),
        });
    }

    fn finished(&self, call: &str, tool: &ToolName, result: &CallResult) {
        let error = result.error.as_ref();
        tracing::debug!(%tool, id = call, error = error.map(|error| error.kind()), "the call ended");
        self.file(&Event::CallFinished {
            id: call.to_owned(),
            tool: tool.to_string(),
            result: result.clone(),
        });
        let receipt = result.receipt.clone().unwrap_or_default();
        if let Some(hint) = error.and_then(|error| error.hint()) {
            self.tell(format!("a call of `{tool}` was refused; {hint}"));
        }
        for hint in self.hints.of_denials(tool.as_str(), &receipt, error) {
            self.tell(format!("an access of `{tool}` was denied; {hint}"));
        }
        if let Some(error) = error
            && let Some(hint) = self.hints.of_limit(tool.as_str(), &receipt, error)
        {
            self.tell(format!("a call of `{tool}` was {error}; {hint}"));
        }
    }
}
