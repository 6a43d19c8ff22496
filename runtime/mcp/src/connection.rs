//! Connection of one client: dispatch of its requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::AsyncRead;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::{Call, MAX_RUNNING, Scope, Severity};
use crate::catalog::cacheable;
use crate::in_flight::{Full, InFlight, MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES};
use crate::lines::{Line, Lines, MAX_MESSAGE_BYTES};
use crate::message::{self, Incoming, Request, RequestId, RpcError, excerpt};
use crate::outbox::{Outbox, Reply};
use crate::state::ServerState;
use crate::version::Version;

/// Maximum number of messages in a batch, a third of [`MAX_IN_FLIGHT`]: a batch is answered as a whole.
pub const MAX_BATCH: usize = 100;

/// Names in the `_meta` of a request of version 2026-07-28.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// State of one client.
pub(crate) struct Connection {
    server: Arc<ServerState>,
    outbox: Outbox,
    /// Result of `initialize`; `None` before, and for clients that state the version in each request.
    session: Option<Session>,
    in_flight: Arc<InFlight>,
    running: Arc<Semaphore>,
    tasks: JoinSet<()>,
    /// Cancelled when the connection ends.
    ended: CancellationToken,
}

/// Result of the negotiation with a client of a version before 2026-07-28.
#[derive(Clone, Copy)]
struct Session {
    version: Version,
    log: Option<Severity>,
}

impl Connection {
    pub(crate) fn new(server: Arc<ServerState>, outbox: Outbox) -> Self {
        Self {
            server,
            outbox,
            session: None,
            in_flight: Arc::default(),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            tasks: JoinSet::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Handles messages until the end of the input.
    pub(crate) async fn read<R: AsyncRead + Unpin>(&mut self, mut lines: Lines<R>) -> std::io::Result<()> {
        while let Some(line) = lines.next().await? {
            while self.tasks.try_join_next().is_some() {}
            match line {
                Line::TooLong => {
                    let error = format!("the message has more than {MAX_MESSAGE_BYTES} bytes");
                    let error = RpcError::invalid_request(error);
                    self.outbox.send(message::error(None, &error)).await;
                }
                Line::Whole(line) if line.trim_ascii().is_empty() => {}
                Line::Whole(line) => {
                    let bytes = line.len();
                    match message::parse(line) {
                        Incoming::Batch(items) => self.batch(items, bytes).await,
                        message => {
                            let reply = Reply::Alone(self.outbox.clone());
                            self.message(message, bytes, reply).await;
                        }
                    }
                }
            }
        }
        Ok(())
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
    async fn batch(&mut self, items: Vec<Value>, bytes: usize) {
        let version = self.session.map(|session| session.version);
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
            return self.outbox.send(message::error(None, &error)).await;
        }
        let share = bytes.div_ceil(items.len());
        let mut responses = Vec::new();
        for item in items {
            let (sender, receiver) = oneshot::channel();
            responses.push(receiver);
            self.message(message::of_value(item), share, Reply::InBatch(sender))
                .await;
        }
        let outbox = self.outbox.clone();
        self.tasks.spawn(async move {
            let mut all = vec![b'['];
            for response in responses {
                // Notifications and cancelled requests have no response.
                if let Ok(response) = response.await {
                    if all.len() > 1 {
                        all.push(b',');
                    }
                    all.extend(response);
                }
            }
            if all.len() > 1 {
                all.push(b']');
                outbox.send(all).await;
            }
        });
    }

    async fn message(&mut self, message: Incoming, bytes: usize, reply: Reply) {
        match message {
            Incoming::Request(request) => self.request(request, bytes, reply).await,
            Incoming::Notification { method, params } => self.notification(&method, &params),
            Incoming::Response => {}
            Incoming::Invalid(id, error) => reply.send(message::error(id.as_ref(), &error)).await,
            Incoming::Batch(_) => {
                let error = RpcError::invalid_request("a batch in a batch");
                reply.send(message::error(None, &error)).await;
            }
        }
    }

    fn notification(&self, method: &str, params: &Map<String, Value>) {
        if method == "notifications/cancelled"
            && let Some(id) = params.get("requestId").and_then(RequestId::of)
        {
            self.in_flight.cancel(&id);
        }
    }

    async fn request(&mut self, request: Request, bytes: usize, reply: Reply) {
        let Request { id, method, params } = request;
        if self.in_flight.contains(&id) {
            // An error with this identifier would be taken for the answer to the first request.
            let shown = serde_json::to_string(&id).unwrap_or_default();
            let error = format!("a request with the id {} is not answered yet", excerpt(&shown));
            return reply
                .send(message::error(None, &RpcError::invalid_request(error)))
                .await;
        }
        let answer = match method.as_str() {
            "tools/call" => match self.begin_call(&id, params, bytes) {
                Ok(begun) => {
                    let call = begun.into_call(self, reply);
                    self.tasks.spawn(call.complete(self.running.clone()));
                    return;
                }
                Err(error) => Err(error),
            },
            _ => self.answer(&method, &params),
        };
        let message = match answer {
            Ok(result) => message::response(&id, &result),
            Err(error) => message::error(Some(&id), &error),
        };
        reply.send(message).await;
    }

    /// Answers a request that calls no tool.
    fn answer(&mut self, method: &str, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let is_stateless = meta(params)?.is_some_and(|meta| meta.contains_key(PROTOCOL_VERSION));
        match (method, is_stateless) {
            ("initialize", false) => return self.initialize(params),
            // Also before `initialize`.
            ("ping", false) => return Ok(json!({})),
            _ => {}
        }
        let scope = self.scope(params)?;
        let mut result = match (method, &mut self.session) {
            ("tools/list", _) => self.server.catalog.page(params.get("cursor"), scope.version)?,
            ("server/discover", _) if is_stateless => self.discover(),
            ("logging/setLevel", Some(session)) if !is_stateless => {
                session.log = Some(Severity::named(params.get("level").unwrap_or(&Value::Null))?);
                Map::new()
            }
            _ => return Err(RpcError::unknown_method(method)),
        };
        if scope.version.is_stateless() {
            result.insert("resultType".into(), "complete".into());
            let meta = json!({ "io.modelcontextprotocol/serverInfo": self.server.info });
            result.insert("_meta".into(), meta);
        }
        Ok(Value::Object(result))
    }

    fn initialize(&mut self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        if self.session.is_some() {
            return Err(RpcError::invalid_request("the session is initialized already"));
        }
        let Some(requested) = params.get("protocolVersion").and_then(Value::as_str) else {
            return Err(RpcError::invalid_params("`protocolVersion` is missing"));
        };
        let version = Version::negotiated(requested);
        self.session = Some(Session { version, log: None });
        let mut result = json!({
            "protocolVersion": version.as_str(),
            "capabilities": capabilities(),
            "serverInfo": self.server.info,
        });
        if let Some(instructions) = &self.server.identity.instructions {
            result["instructions"] = instructions.as_str().into();
        }
        Ok(result)
    }

    fn discover(&self) -> Map<String, Value> {
        let mut result = Map::new();
        result.insert("supportedVersions".into(), json!(Version::stateless_names()));
        result.insert("capabilities".into(), capabilities());
        if let Some(instructions) = &self.server.identity.instructions {
            result.insert("instructions".into(), instructions.as_str().into());
        }
        cacheable(&mut result);
        result
    }

    /// Returns the version of a request, and the notifications that it requests.
    fn scope(&self, params: &Map<String, Value>) -> Result<Scope, RpcError> {
        let meta = meta(params)?;
        let of = |name: &str| meta.and_then(|meta| meta.get(name));
        let progress = match of("progressToken") {
            None => None,
            Some(token) if RequestId::of(token).is_some() => Some(token.clone()),
            Some(_) => {
                return Err(RpcError::invalid_params(
                    "`progressToken` is a string or an integer",
                ));
            }
        };
        let (version, log) = match (of(PROTOCOL_VERSION), self.session) {
            (Some(Value::String(name)), _) => {
                let version = Version::named(name).filter(|version| version.is_stateless());
                let version = version
                    .ok_or_else(|| RpcError::unsupported_version(name, &Version::stateless_names()))?;
                if !of(CLIENT_CAPABILITIES).is_some_and(Value::is_object) {
                    let error = format!("`_meta` has no object `{CLIENT_CAPABILITIES}`");
                    return Err(RpcError::invalid_params(error));
                }
                (version, of(LOG_LEVEL).map(Severity::named).transpose()?)
            }
            (Some(_), _) => {
                return Err(RpcError::invalid_params(format!(
                    "`{PROTOCOL_VERSION}` is a string"
                )));
            }
            (None, Some(session)) => (session.version, session.log),
            (None, None) => {
                let error = format!(
                    "the request has no `_meta` with `{PROTOCOL_VERSION}`, and none before it was `initialize`"
                );
                return Err(RpcError::invalid_params(error));
            }
        };
        Ok(Scope {
            version,
            log,
            progress,
        })
    }

    /// Checks the parameters of a call and counts it.
    fn begin_call(
        &self,
        id: &RequestId,
        mut params: Map<String, Value>,
        bytes: usize,
    ) -> Result<Begun, RpcError> {
        let scope = self.scope(&params)?;
        let Some(Value::String(name)) = params.get("name") else {
            return Err(RpcError::invalid_params("`name` is not a string"));
        };
        let Some(tool) = self.server.catalog.get(name) else {
            return Err(RpcError::invalid_params(format!(
                "unknown tool: `{}`",
                excerpt(name)
            )));
        };
        let tool = tool.clone();
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(RpcError::invalid_params("`arguments` is not an object")),
        };
        let ticket = self.in_flight.begin(id.clone(), bytes, self.ended.child_token());
        let ticket = ticket.map_err(|full| {
            RpcError::busy(match full {
                Full::Calls => format!("{MAX_IN_FLIGHT} calls are not answered yet; wait for one to end"),
                Full::Bytes => format!("the calls that are not answered yet have {MAX_IN_FLIGHT_BYTES} bytes; wait for one to end"),
            })
        })?;
        Ok(Begun {
            tool,
            arguments,
            scope,
            ticket,
        })
    }
}

/// Call with accepted parameters.
struct Begun {
    tool: Arc<dyn toolcell_core::Tool>,
    arguments: Map<String, Value>,
    scope: Scope,
    ticket: crate::in_flight::Ticket,
}

impl Begun {
    fn into_call(self, connection: &Connection, reply: Reply) -> Call {
        Call {
            server: connection.server.clone(),
            tool: self.tool,
            arguments: self.arguments,
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
        None => Ok(None),
        Some(Value::Object(meta)) => Ok(Some(meta)),
        Some(_) => Err(RpcError::invalid_params("`_meta` is not an object")),
    }
}

fn capabilities() -> Value {
    json!({ "tools": {}, "logging": {} })
}
