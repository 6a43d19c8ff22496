//! Connection of one client: dispatch of its requests.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolcell_core::ToolCall;

use crate::lines::{Line, Lines, MAX_MESSAGE_BYTES};
use crate::message::{self, Incoming, Request, RequestId, RpcError, excerpt};
use crate::server::call::{Asks, Call, Scope, Severity};
use crate::server::catalog::cacheable;
use crate::server::context::ContextCall;
use crate::server::in_flight::{Full, MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, Ticket, memory_of_call};
use crate::server::listeners::{self, Listening, Subscription};
use crate::server::outbox::{Outbox, Reply};
use crate::server::question;
use crate::server::session::{Session, SessionState};
use crate::server::state::ServerState;
use crate::version::Version;

/// Maximum number of messages in a batch, a third of [`MAX_IN_FLIGHT`]: a batch is answered as a whole.
pub const MAX_BATCH: usize = 100;

/// Maximum number of batches that are not answered completely. Each holds answers of up to
/// [`BATCH_PART_BYTES`](crate::BATCH_PART_BYTES), together half of [`MAX_UNREAD_BYTES`](crate::MAX_UNREAD_BYTES).
pub const MAX_BATCHES: usize = 8;

/// Names in the `_meta` of a request of version 2026-07-28.
pub(crate) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Exchange of messages with one client: all of those on a stream, or a request over HTTP.
pub(crate) struct Connection {
    server: Arc<ServerState>,
    outbox: Outbox,
    state: Arc<SessionState>,
    tasks: JoinSet<()>,
    /// Cancelled when the connection ends.
    ended: CancellationToken,
    /// Held by a session on a stream, which is told when the tools change.
    listening: OnceLock<Listening>,
}

impl Connection {
    pub(crate) fn new(server: Arc<ServerState>, state: Arc<SessionState>, outbox: Outbox) -> Self {
        Self {
            server,
            outbox,
            state,
            tasks: JoinSet::new(),
            ended: CancellationToken::new(),
            listening: OnceLock::new(),
        }
    }

    /// Handles messages until the end of the input.
    ///
    /// # Errors
    /// Fails if the input fails, or if the client reads nothing of what waits for it.
    pub(crate) async fn read<R: AsyncRead + Unpin>(&mut self, mut lines: Lines<R>) -> std::io::Result<()> {
        while let Some(line) = lines.next().await? {
            while self.tasks.try_join_next().is_some() {}
            match line {
                Line::TooLong => {
                    let error = format!("the message has more than {MAX_MESSAGE_BYTES} bytes");
                    let error = RpcError::invalid_request(error);
                    self.outbox.refuse(&Reply::Alone, None, &error).await?;
                }
                Line::Whole(line) if line.trim_ascii().is_empty() => {}
                Line::Whole(line) => self.handle(message::parse(line)).await?,
            }
        }
        Ok(())
    }

    /// Handles a message. Calls begin, and go on after this returns.
    ///
    /// # Errors
    /// Fails if the client reads nothing of what waits for it.
    pub(crate) async fn handle(&mut self, message: Incoming) -> std::io::Result<()> {
        match message {
            Incoming::Batch(items) => self.batch(items).await,
            message => self.message(message, Reply::Alone).await,
        }
    }

    /// Waits until all calls are answered.
    pub(crate) async fn answered(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Cancels all calls, and waits until their receipts are recorded.
    pub(crate) async fn end(mut self, at_most: Duration) {
        self.ended.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(at_most, all).await.is_err() {
            self.tasks.shutdown().await;
        }
    }

    /// Handles the messages of a batch, and answers them together.
    async fn batch(&mut self, items: Vec<Value>) -> std::io::Result<()> {
        let version = self.state.version();
        let refusal = if version != Some(Version::V2025_03_26) {
            Some("a batch is possible only in sessions of protocol version 2025-03-26".to_owned())
        } else if items.is_empty() {
            Some("the batch is empty".to_owned())
        } else if items.len() > MAX_BATCH {
            Some(format!("the batch has more than {MAX_BATCH} messages"))
        } else {
            None
        };
        if let Some(reason) = refusal {
            let error = RpcError::invalid_request(reason);
            return self.outbox.refuse(&Reply::Alone, None, &error).await;
        }
        let Ok(open) = self.state.batches.clone().try_acquire_owned() else {
            let error = format!(
                "{MAX_BATCHES} batches are not answered yet; wait for one, or send requests by themselves"
            );
            return self
                .outbox
                .refuse(&Reply::Alone, None, &RpcError::busy(error))
                .await;
        };
        let (sender, responses) = mpsc::unbounded_channel();
        let outbox = self.outbox.clone();
        self.tasks.spawn(async move {
            outbox.collect(responses).await;
            drop(open);
        });
        for item in items {
            let reply = Reply::InBatch(sender.clone());
            self.message(message::of_value(item), reply).await?;
        }
        Ok(())
    }

    async fn message(&mut self, message: Incoming, reply: Reply) -> std::io::Result<()> {
        match message {
            Incoming::Request(request) => return self.request(request, reply).await,
            Incoming::Notification { method, params } => self.notification(&method, &params),
            Incoming::Response(Some((id, answer))) => self.state.asked.answer(&id, answer),
            Incoming::Response(None) => {}
            Incoming::Invalid(id, error) => {
                return self.outbox.refuse(&reply, id.as_ref(), &error).await;
            }
            Incoming::Batch(_) => {
                let error = RpcError::invalid_request("a batch in a batch");
                return self.outbox.refuse(&reply, None, &error).await;
            }
        }
        Ok(())
    }

    fn notification(&self, method: &str, params: &Map<String, Value>) {
        if method == "notifications/cancelled"
            && let Some(id) = params.get("requestId").and_then(RequestId::of)
        {
            self.state.in_flight.cancel(&id);
        }
    }

    async fn request(&mut self, request: Request, reply: Reply) -> std::io::Result<()> {
        let Request { id, method, params } = request;
        if self.state.in_flight.contains(&id) {
            // An error with this identifier would be taken for the answer to the first request.
            let shown = serde_json::to_string(&id).unwrap_or_default();
            let error = format!("a request with the id {} is not answered yet", excerpt(&shown));
            return self
                .outbox
                .refuse(&reply, None, &RpcError::invalid_request(error))
                .await;
        }
        let answer = match method.as_str() {
            "tools/call" | "resources/read" | "prompts/get" => match self.begin_call(&id, &method, params) {
                Ok(begun) => {
                    let call = begun.into_call(self, reply);
                    // In a box: the set copies a future several times.
                    self.tasks
                        .spawn(Box::pin(call.complete(self.state.running.clone())));
                    return Ok(());
                }
                Err(error) => Err(error),
            },
            listeners::METHOD => match self.begin_subscription(&id, &params) {
                Ok(subscription) => {
                    self.tasks.spawn(subscription.complete(reply));
                    return Ok(());
                }
                Err(error) => Err(error),
            },
            _ => self.answer(&method, &params),
        };
        match answer {
            Ok(result) => self.outbox.answer(&reply, message::response(&id, &result)).await,
            Err(error) => self.outbox.refuse(&reply, Some(&id), &error).await,
        }
    }

    /// Answers a request that calls no tool.
    fn answer(&self, method: &str, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let stated = meta(params)?.and_then(|meta| meta.get(PROTOCOL_VERSION));
        let is_stateless = stated.is_some_and(|version| !version.is_null());
        match (method, is_stateless || self.state.is_stateless) {
            ("initialize", false) => return self.initialize(params),
            // Also before `initialize`.
            ("ping", false) => return Ok(json!({})),
            _ => {}
        }
        let scope = self.scope(params)?;
        self.server.catalog().context.check_method(method)?;
        let mut result = match (method, self.state.session()) {
            ("tools/list", _) => self.server.catalog().page(params.get("cursor"), scope.version)?,
            ("completion/complete", _) => self.server.catalog().context.complete(params)?,
            ("server/discover", _) if is_stateless => self.discover(),
            ("logging/setLevel", Some(session)) if !is_stateless => {
                let log = Some(Severity::named(params.get("level").unwrap_or(&Value::Null))?);
                self.state.set(Session { log, ..session });
                Map::new()
            }
            ("resources/subscribe" | "resources/unsubscribe", Some(_))
                if !is_stateless && self.server.catalog().context.tells_updates() =>
            {
                self.follow(method, params)?;
                Map::new()
            }
            _ => {
                let catalog = self.server.catalog();
                let page = catalog.context.page(method, params.get("cursor"), scope.version);
                page.ok_or_else(|| RpcError::unknown_method(method))??
            }
        };
        if scope.version.is_stateless() {
            result.insert("resultType".into(), "complete".into());
            let meta = json!({ "io.modelcontextprotocol/serverInfo": self.server.info });
            result.insert("_meta".into(), meta);
        }
        Ok(Value::Object(result))
    }

    fn initialize(&self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        if self.state.session().is_some() {
            return Err(RpcError::invalid_request("the session is initialized already"));
        }
        let Some(requested) = params.get("protocolVersion").and_then(Value::as_str) else {
            return Err(RpcError::invalid_params("`protocolVersion` is missing"));
        };
        let version = Version::negotiated(requested);
        let asks = version >= Version::V2025_06_18 && question::is_capable(params.get("capabilities"));
        self.state.set(Session {
            version,
            log: None,
            asks,
        });
        if self.outbox.is_only() {
            let listen = || {
                self.server
                    .listeners
                    .add_session(self.outbox.clone(), self.state.followed.clone())
            };
            self.listening.get_or_init(listen);
        }
        let mut result = json!({
            "protocolVersion": version.as_str(),
            "capabilities": self.server.catalog().capabilities(),
            "serverInfo": self.server.info,
        });
        if let Some(instructions) = &self.server.identity.instructions {
            result["instructions"] = instructions.as_str().into();
        }
        Ok(result)
    }

    /// Follows a resource, or does so no more.
    fn follow(&self, method: &str, params: &Map<String, Value>) -> Result<(), RpcError> {
        let Some(uri) = params.get("uri").and_then(Value::as_str) else {
            return Err(RpcError::invalid_params("`uri` is not a string"));
        };
        if method == "resources/unsubscribe" {
            self.state.followed.remove(uri);
            return Ok(());
        }
        self.server.catalog().context.check_followable(uri)?;
        self.state.followed.add(uri)
    }

    fn discover(&self) -> Map<String, Value> {
        let mut result = Map::new();
        result.insert("supportedVersions".into(), json!(Version::stateless_names()));
        result.insert("capabilities".into(), self.server.catalog().capabilities());
        if let Some(instructions) = &self.server.identity.instructions {
            result.insert("instructions".into(), instructions.as_str().into());
        }
        cacheable(&mut result);
        result
    }

    /// Returns the version of a request, and the notifications that it requests.
    fn scope(&self, params: &Map<String, Value>) -> Result<Scope, RpcError> {
        let meta = meta(params)?;
        // Null is the same as nothing, as for arguments and cursors.
        let of = |name: &str| meta.and_then(|meta| meta.get(name).filter(|value| !value.is_null()));
        let progress = match of("progressToken") {
            None => None,
            Some(token) if RequestId::of(token).is_some() => Some(token.clone()),
            Some(_) => {
                return Err(RpcError::invalid_meta(
                    "`progressToken` is a string or an integer",
                ));
            }
        };
        let (version, log, asks) = match (of(PROTOCOL_VERSION), self.state.session()) {
            (Some(Value::String(name)), _) => {
                let version = Version::named(name).filter(|version| version.is_stateless());
                let version = version
                    .ok_or_else(|| RpcError::unsupported_version(name, &Version::stateless_names()))?;
                if !of(CLIENT_CAPABILITIES).is_some_and(Value::is_object) {
                    let error = format!("`_meta` has no object `{CLIENT_CAPABILITIES}`");
                    return Err(RpcError::invalid_meta(error));
                }
                let asks = match question::is_capable(of(CLIENT_CAPABILITIES)) {
                    true => Asks::ByResult(self.server.questions.answered(params)?),
                    false => Asks::Not,
                };
                (version, of(LOG_LEVEL).map(Severity::named).transpose()?, asks)
            }
            (Some(_), _) => {
                return Err(RpcError::invalid_meta(format!(
                    "`{PROTOCOL_VERSION}` is a string"
                )));
            }
            (None, Some(session)) => {
                let asks = match session.asks && self.outbox.carries_requests() {
                    true => Asks::ByRequest(self.state.clone()),
                    false => Asks::Not,
                };
                (session.version, session.log, asks)
            }
            (None, None) => {
                let error = format!(
                    "the request has no `_meta` with `{PROTOCOL_VERSION}`, and none before it was `initialize`"
                );
                return Err(RpcError::invalid_meta(error));
            }
        };
        Ok(Scope {
            version,
            log,
            progress,
            asks,
        })
    }

    /// Checks the parameters of a call and counts it. Resources and prompts are read by calls, too.
    fn begin_call(
        &self,
        id: &RequestId,
        method: &str,
        mut params: Map<String, Value>,
    ) -> Result<Begun, RpcError> {
        let scope = self.scope(&params)?;
        let catalog = self.server.catalog();
        catalog.context.check_method(method)?;
        let call = match method {
            "resources/read" => catalog.context.read(&params, scope.version.is_stateless())?,
            "prompts/get" => catalog.context.get(&mut params)?,
            _ => catalog.call(params)?,
        };
        let memory = memory_of_call(id, scope.progress.as_ref(), &call.arguments);
        let ticket = self.begin(id, memory)?;
        Ok(Begun {
            call,
            generation: catalog.generation,
            scope,
            ticket,
        })
    }

    /// Begins a request that is not answered at once, and counts it.
    fn begin(&self, id: &RequestId, memory: usize) -> Result<Ticket, RpcError> {
        let ticket = self.state.in_flight.begin(id.clone(), memory, self.ended.clone());
        ticket.map_err(|full| {
            RpcError::busy(match full {
                Full::Calls => format!("{MAX_IN_FLIGHT} calls are not answered yet; wait for one to end"),
                Full::Bytes => format!("the arguments of calls that are not answered yet take up to {MAX_IN_FLIGHT_BYTES} bytes of memory; wait for one to end"),
            })
        })
    }

    /// Checks the parameters of a subscription and counts it as a call: it is answered when it ends.
    fn begin_subscription(
        &self,
        id: &RequestId,
        params: &Map<String, Value>,
    ) -> Result<Subscription, RpcError> {
        if !self.scope(params)?.version.is_stateless() {
            return Err(RpcError::unknown_method(listeners::METHOD));
        }
        let wanted = listeners::wanted(params, &self.server.catalog())?;
        if !self.outbox.carries_requests() {
            let error = "a subscription is answered with `text/event-stream`";
            return Err(RpcError::invalid_request(error));
        }
        Ok(Subscription {
            ticket: self.begin(id, memory_of_call(id, None, &Map::new()))?,
            server: self.server.clone(),
            outbox: self.outbox.clone(),
            wanted,
        })
    }
}

/// Call with accepted parameters.
struct Begun {
    call: ContextCall,
    generation: u64,
    scope: Scope,
    ticket: Ticket,
}

impl Begun {
    fn into_call(self, connection: &Connection, reply: Reply) -> Call {
        let server = connection.server.clone();
        let ContextCall {
            tool,
            arguments,
            form,
        } = self.call;
        let call = ToolCall {
            id: server.next_call(),
            name: tool.spec().name.clone(),
            arguments,
        };
        server.observer.started(&call);
        Call {
            server,
            tool,
            generation: self.generation,
            call,
            form,
            scope: self.scope,
            ticket: self.ticket,
            outbox: connection.outbox.clone(),
            reply,
        }
    }
}

/// Returns the `_meta` of a request.
fn meta(params: &Map<String, Value>) -> Result<Option<&Map<String, Value>>, RpcError> {
    match params.get("_meta") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(meta)) => Ok(Some(meta)),
        Some(_) => Err(RpcError::invalid_meta("`_meta` is not an object")),
    }
}
