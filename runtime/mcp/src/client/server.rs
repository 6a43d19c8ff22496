//! A server: started, restarted after a crash, and asked to run calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::time::Instant;
use toolcell_core::redact::Redactor;
use toolcell_core::tool::CallObserver;
use toolcell_core::{Receipt, Secrets, Tool, ToolError, ToolSpec};

use super::definition::{Definition, LeftOut};
use super::elicitation::{Asking, Elicitor, Stopwatch};
use super::error::{ServerError, StartError};
use super::http::{Endpoint, Remote};
use super::link::Link;
use super::process::{InProcessServer, Launch, ServerProgram};
use super::session::{Live, Session};
use super::tool::ServerTool;
use crate::server::Identity;
use crate::version::Version;

/// Pause before a server that ended is started again. It doubles with each further failure in a row.
pub const RESTART_DELAY: Duration = Duration::from_millis(500);

/// Maximum pause before a server is started again.
pub const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// Maximum pause that a call waits for; before a longer one it fails at once.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Maximum time for a start or a call. A longer one counts as this.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the server, with which the names of its tools begin.
    pub name: String,
    /// Names of its tools that are offered, as the server calls them; `None` means all.
    pub only: Option<Vec<String>>,
    /// Names of its tools that are not offered, as the server calls them.
    pub except: Vec<String>,
    /// Time in which it starts and lists its tools, at most [`MAX_TIMEOUT`].
    pub start_timeout: Duration,
    /// Time limit of a call, at most [`MAX_TIMEOUT`].
    pub call_timeout: Duration,
    /// True if its annotations are taken as hints.
    pub trusts_annotations: bool,
    /// True if it runs in a cell, for the receipts of its calls.
    pub in_cell: bool,
    /// Removes the secrets that the server got from what it returns.
    pub redactor: Redactor,
    /// Asks the user on behalf of the server; `None` refuses its questions.
    pub elicitor: Option<Arc<dyn Elicitor>>,
}

impl Options {
    /// Default settings of a server with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            only: None,
            except: Vec::new(),
            start_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(60),
            trusts_annotations: false,
            in_cell: false,
            redactor: Secrets::default().redactor(),
            elicitor: None,
        }
    }

    pub(super) fn offers(&self, tool: &str) -> bool {
        let is_it = |name: &String| name == tool;
        self.only.as_ref().is_none_or(|only| only.iter().any(is_it)) && !self.except.iter().any(is_it)
    }
}

/// Streams to and from a server.
pub(super) struct Streams {
    pub(super) input: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) output: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) program: Option<ServerProgram>,
}

/// Connection to a server.
pub(super) enum Connection {
    /// To a process.
    Streams(Streams),
    /// Over HTTP.
    Http(Endpoint),
}

/// Returns what a server accessed since the last time, as entries of a receipt.
pub(super) type Accessed = dyn Fn() -> Receipt + Send + Sync;

/// Starts a server, or opens the connection to it.
pub(super) type Connect = dyn Fn() -> Result<Connection, ServerError> + Send + Sync;

/// A server. Dropping it ends its process group.
pub struct McpServer {
    pub(super) options: Options,
    /// Asks the user; `None` if no user can be asked.
    pub(super) asking: Option<Arc<Asking>>,
    identity: Identity,
    connect: Box<Connect>,
    accessed: Box<Accessed>,
    definitions: Vec<Definition>,
    left_out: Vec<LeftOut>,
    state: Mutex<State>,
    /// Failures since the last answer.
    failures: AtomicU32,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// Time before which it is not started again.
    ready_at: Option<Instant>,
    /// Tools whose definitions are not those of the start, by their names on the server.
    changed: BTreeSet<String>,
}

impl McpServer {
    /// Starts the process of a server, and reads the definitions of its tools.
    ///
    /// # Errors
    /// Fails if it does not start in time, speaks no supported version, or has too many tools.
    pub async fn start(
        launch: Launch,
        options: Options,
        identity: Identity,
    ) -> Result<Arc<Self>, StartError> {
        let (name, redactor) = (options.name.clone(), options.redactor.clone());
        Self::connect(
            Box::new(move || launch.start(&name, &redactor).map(Connection::Streams)),
            options,
            identity,
        )
        .await
    }

    /// Starts a server inside of this process, such as in a cell, and reads the definitions of its tools. `accessed` returns what
    /// the server accessed since it was asked before, for the receipt of the next call.
    ///
    /// # Errors
    /// As [`McpServer::start`].
    pub async fn in_process(
        start: impl Fn() -> Result<InProcessServer, String> + Send + Sync + 'static,
        accessed: impl Fn() -> Receipt + Send + Sync + 'static,
        options: Options,
        identity: Identity,
    ) -> Result<Arc<Self>, StartError> {
        let connect = move || {
            let server = start().map_err(ServerError::InProcess)?;
            Ok(Connection::Streams(server.streams()))
        };
        let server = Self::opened(Box::new(connect), Box::new(accessed), options, identity);
        server.await.map(Arc::new)
    }

    /// Connects to a server over HTTP, and reads the definitions of its tools.
    ///
    /// # Errors
    /// Fails if it cannot be reached in time, refuses the client, speaks no supported version, or has too many tools.
    pub async fn over_http(
        remote: Remote,
        options: Options,
        identity: Identity,
    ) -> Result<Arc<Self>, StartError> {
        let client = Remote::client().map_err(|error| StartError::new(error, String::new()))?;
        let connect = move || Ok(Connection::Http(Endpoint::new(client.clone(), remote.clone())));
        Self::connect(Box::new(connect), options, identity).await
    }

    pub(super) async fn connect(
        connect: Box<Connect>,
        options: Options,
        identity: Identity,
    ) -> Result<Arc<Self>, StartError> {
        let server = Self::opened(connect, Box::new(Receipt::default), options, identity);
        server.await.map(Arc::new)
    }

    async fn opened(
        connect: Box<Connect>,
        accessed: Box<Accessed>,
        mut options: Options,
        identity: Identity,
    ) -> Result<Self, StartError> {
        options.start_timeout = options.start_timeout.min(MAX_TIMEOUT);
        options.call_timeout = options.call_timeout.min(MAX_TIMEOUT);
        let Options { name, redactor, .. } = &options;
        let asking = (options.elicitor.clone()).map(|asks| Asking::new(name, asks, redactor.clone()));
        let mut server = Self {
            asking: asking.map(Arc::new),
            options,
            identity,
            connect,
            accessed,
            definitions: Vec::new(),
            left_out: Vec::new(),
            state: Mutex::default(),
            failures: AtomicU32::new(0),
        };
        let (live, definitions, left_out) = server.open().await?;
        server.state.get_mut().live = Some(Arc::new(live));
        server.definitions = definitions;
        server.left_out = left_out;
        Ok(server)
    }

    /// Name of the server in the configuration.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Takes what it accessed since the last time, as entries of a receipt; empty for a process.
    pub fn take_accessed(&self) -> Receipt {
        (self.accessed)()
    }

    /// Definitions of the tools that are offered, by name. They stay those of the start.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// Tools that are not offered because something is wrong with them.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Version of the protocol that is spoken; `None` while it does not run, and with plain endpoints.
    pub async fn version(&self) -> Option<Version> {
        let state = self.state.lock().await;
        state.live.as_ref().and_then(|live| live.session.spoken())
    }

    /// Returns the tools of the server.
    pub fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let tool = |definition: &Definition| -> Arc<dyn Tool> {
            Arc::new(ServerTool::new(self.clone(), definition.clone()))
        };
        self.definitions.iter().map(tool).collect()
    }

    /// Ends the server: it can end by itself in a short time after its input was closed.
    pub async fn stop(&self) {
        let live = self.state.lock().await.live.take();
        if let Some(live) = live {
            let program = live.take_program();
            live.session.link.end_session().await;
            live.session.link.close(ServerError::Ended { status: None });
            if let Some(program) = program {
                program.end().await;
            }
        }
    }

    /// Starts it and lists its tools, within the time of a start.
    async fn open(&self) -> Result<(Live, Vec<Definition>, Vec<LeftOut>), StartError> {
        let deadline = Instant::now() + self.options.start_timeout;
        let mut opened = self.attempt(deadline, true).await;
        // A server of an older version can end at a request that it does not know.
        if let Err(StartError {
            error: ServerError::Ended { .. },
            ..
        }) = &opened
        {
            opened = self.attempt(deadline, false).await;
        }
        opened.map_err(|failed| StartError {
            error: failed.error.redacted(&self.options.redactor),
            accessed: Box::new(self.take_accessed()),
            ..failed
        })
    }

    async fn attempt(
        &self,
        deadline: Instant,
        discover: bool,
    ) -> Result<(Live, Vec<Definition>, Vec<LeftOut>), StartError> {
        let connection = (self.connect)().map_err(|error| StartError::new(error, String::new()))?;
        let (asking, redactor) = (self.asking.clone(), &self.options.redactor);
        let (link, program) = match connection {
            Connection::Streams(streams) => {
                let link = Link::start(streams.input, streams.output, asking, redactor.clone());
                (link, streams.program)
            }
            Connection::Http(endpoint) => (Link::over_http(endpoint, asking, redactor.clone()), None),
        };
        let left = || deadline.saturating_duration_since(Instant::now());
        let opened = async {
            let session = Session::open(link, self.identity.clone(), left(), discover).await?;
            let (definitions, left_out) = session.tools(&self.options, left()).await?;
            Ok((session, definitions, left_out))
        };
        match opened.await {
            Ok((session, definitions, left_out)) => Ok((Live::new(session, program), definitions, left_out)),
            Err(error) => Err(StartError::of(error, program).await),
        }
    }

    /// Runs a call.
    pub(super) async fn call(
        &self,
        definition: &Definition,
        arguments: Map<String, Value>,
        limit: Duration,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Value, ToolError> {
        let stopwatch = Stopwatch::start(self.asking.clone());
        let name = &self.options.name;
        let too_late = |_| ToolError::Unavailable {
            message: format!("the MCP server `{name}` was not ready in time; nothing was called"),
        };
        let left = || limit.saturating_sub(stopwatch.elapsed());
        let ready = async || {
            let ready = tokio::time::timeout(left(), self.live(definition));
            ready.await.map_err(too_late)?
        };
        let live = ready().await?;
        let session = &live.session;
        let mut called = session
            .call(definition, arguments.clone(), left(), observer.clone())
            .await;
        if matches!(called, Err(ServerError::SessionLost)) {
            // Nothing was called. A server forgets its sessions when it is started again.
            tracing::info!(server = name, "an MCP server ended the session");
            let live = ready().await?;
            called = live.session.call(definition, arguments, left(), observer).await;
        }
        let called = called.map_err(|error| error.redacted(&self.options.redactor));
        match &called {
            Ok(_) | Err(ServerError::Answered { .. } | ServerError::Invalid { .. }) => {
                self.failures.store(0, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(server = name, %error, "a call to an MCP server failed"),
        }
        called.map_err(|error| error.of_call(name))
    }

    /// Error of a call, without secrets.
    pub(super) fn told(&self, error: ServerError) -> ToolError {
        error.redacted(&self.options.redactor).of_call(&self.options.name)
    }

    /// Lists the prompts, which belong to `definition`, and hands each to `add`.
    pub(super) async fn list_prompts(
        &self,
        definition: &Definition,
        limit: Duration,
        add: &mut (dyn FnMut(Value) -> Result<(), ServerError> + Send),
    ) -> Result<(), ToolError> {
        let live = self.live(definition).await?;
        let listed = live.session.list("prompts/list", "prompts", limit, add).await;
        listed.map_err(|error| self.told(error))
    }

    /// Returns the running server with the definitions of the start, started again if it ended.
    async fn live(&self, definition: &Definition) -> Result<Arc<Live>, ToolError> {
        let mut state = self.state.lock().await;
        if state
            .live
            .as_ref()
            .is_some_and(|live| live.session.link.end().is_some())
        {
            state.live = None;
            state.ready_at = Some(Instant::now() + self.delay());
        }
        state.live = state.live.take().filter(|live| !live.session.link.is_lost());
        let live = match &state.live {
            Some(live) => {
                let live = live.clone();
                if let Some(unread) = live.session.link.take_stale() {
                    let listed = self.list(&live).await;
                    if live.session.link.is_lost() {
                        drop(state);
                        // Opening a session reads the list as well.
                        return Box::pin(self.live(definition)).await;
                    }
                    let listed = listed.map_err(|error| {
                        let error = error.redacted(&self.options.redactor);
                        error.of_list(&self.options.name)
                    })?;
                    unread.end();
                    state.changed = self.changed(&listed);
                }
                live
            }
            None => {
                self.wait(state.ready_at).await?;
                let (live, definitions, _) = match self.open().await {
                    Ok(opened) => opened,
                    Err(failure) => {
                        tracing::warn!(server = self.options.name, error = %failure, "an MCP server did not start");
                        state.ready_at = Some(Instant::now() + self.delay());
                        return Err(self.not_running());
                    }
                };
                tracing::info!(server = self.options.name, "an MCP server was started again");
                state.changed = self.changed(&definitions);
                let live = Arc::new(live);
                state.live = Some(live.clone());
                live
            }
        };
        if state.changed.contains(&definition.remote) {
            return Err(self.refused(&definition.spec));
        }
        Ok(live)
    }

    async fn list(&self, live: &Live) -> Result<Vec<Definition>, ServerError> {
        let listed = live.session.tools(&self.options, self.options.start_timeout);
        Ok(listed.await?.0)
    }

    /// Tools that are not defined as at the start.
    fn changed(&self, now: &[Definition]) -> BTreeSet<String> {
        let now: BTreeMap<&str, &Definition> = now.iter().map(|tool| (tool.remote.as_str(), tool)).collect();
        let changed = self
            .definitions
            .iter()
            .filter(|tool| now.get(tool.remote.as_str()) != Some(tool));
        changed.map(|tool| tool.remote.clone()).collect()
    }

    fn refused(&self, spec: &ToolSpec) -> ToolError {
        let hint = format!(
            "the MCP server `{}` changed the definition of `{}` while it was in use; begin again to review the new one",
            self.options.name, spec.name
        );
        ToolError::denied(
            "the definition of this tool has changed since it was offered",
            Some(hint),
        )
    }

    fn not_running(&self) -> ToolError {
        ToolError::Unavailable {
            message: format!(
                "the MCP server `{}` is not running; nothing was called",
                self.options.name
            ),
        }
    }

    /// Counts a failure, and returns the pause after it.
    fn delay(&self) -> Duration {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(16);
        (RESTART_DELAY * 2_u32.pow(failures)).min(MAX_RESTART_DELAY)
    }

    async fn wait(&self, ready_at: Option<Instant>) -> Result<(), ToolError> {
        let Some(ready_at) = ready_at else { return Ok(()) };
        if ready_at.saturating_duration_since(Instant::now()) > MAX_WAIT {
            return Err(self.not_running());
        }
        tokio::time::sleep_until(ready_at).await;
        Ok(())
    }
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "McpServer({})", self.options.name)
    }
}
