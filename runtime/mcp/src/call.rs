//! Call of a tool: waits for a permit, runs, and is answered once.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, depth_of};
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, Progress};
use toolcell_core::{CallContext, CallResult, Receipt, Tool, ToolCall, ToolError};

use crate::in_flight::Ticket;
use crate::message::{self, RequestId, RpcError};
use crate::outbox::{Message, Outbox, Reply};
use crate::result::Unsent;
use crate::state::ServerState;
use crate::version::Version;

/// Maximum number of calls of a client that run at a time; further ones wait.
pub const MAX_RUNNING: usize = 32;

/// Key in the `_meta` of a log message: `source` says who wrote the line (`log`, `stdout` and `stderr` of the tool, or
/// `host`), and `requestId` for which call.
pub const LOG_KEY: &str = "io.github.toolcell/log";

/// Severities of log messages of the protocol (RFC 5424), least severe first.
const SEVERITIES: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// Minimum severity of the log messages that a client wants, as an index of [`SEVERITIES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Severity(usize);

impl Severity {
    pub(crate) fn named(name: &Value) -> Result<Self, RpcError> {
        let index = SEVERITIES
            .iter()
            .position(|severity| Some(*severity) == name.as_str());
        let unknown = || RpcError::invalid_params(format!("the level is one of {}", SEVERITIES.join(", ")));
        index.map(Self).ok_or_else(unknown)
    }

    fn of(level: LogLevel) -> Self {
        Self(match level {
            LogLevel::Trace | LogLevel::Debug => 0,
            LogLevel::Info => 1,
            LogLevel::Warn => 3,
            LogLevel::Error => 4,
        })
    }
}

/// Protocol version and notifications that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) version: Version,
    /// Minimum severity of log messages; `None` disables them.
    pub(crate) log: Option<Severity>,
    /// Token of progress notifications, if the client wants them.
    pub(crate) progress: Option<Value>,
}

/// Call in progress.
pub(crate) struct Call {
    pub(crate) server: Arc<ServerState>,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) call: ToolCall,
    pub(crate) scope: Scope,
    pub(crate) ticket: Ticket,
    pub(crate) outbox: Outbox,
    pub(crate) reply: Reply,
}

impl Call {
    /// Runs the call to its end and sends its result. If it is cancelled, its cell is dropped, and no response is sent.
    pub(crate) async fn complete(self, running: Arc<Semaphore>) {
        let Self {
            server,
            tool,
            call,
            scope,
            ticket,
            outbox,
            reply,
        } = self;
        let (id, name) = (call.id.clone(), call.name.clone());
        let watch = Arc::new(Watch {
            server: server.clone(),
            call: id.clone(),
            request: ticket.id().clone(),
            tool: name.to_string(),
            scope: scope.clone(),
            outbox: outbox.clone(),
            state: Mutex::default(),
        });
        let permit = tokio::select! {
            biased;
            () = ticket.cancelled() => None,
            permit = running.acquire_owned() => permit.ok(),
        };
        let mut result = match &permit {
            None => CallResult::refused(ToolError::Cancelled),
            Some(_) => {
                let cx = CallContext {
                    values: std::collections::BTreeMap::new(),
                    observer: watch.clone(),
                };
                tokio::select! {
                    // The call first: one that was cancelled before it began would leave no receipt.
                    biased;
                    result = run(tool.as_ref(), call, cx) => result,
                    () = ticket.cancelled() => CallResult::failed(ToolError::Cancelled),
                }
            }
        };
        let dropped = watch.close();
        result.receipt = result.receipt.or(dropped);
        server.observer.finished(&id, &name, &result);
        let answer = Answer {
            server,
            version: scope.version,
            result: match &result.error {
                Some(ToolError::Host { .. }) => None,
                _ => Some(Unsent::new(result)),
            },
        };
        answer.send(ticket, permit, &outbox, &reply).await;
    }
}

/// Answer to a call, which waits with its permit until there is room for it.
struct Answer {
    server: Arc<ServerState>,
    version: Version,
    /// `None` for an internal error.
    result: Option<Unsent>,
}

impl Answer {
    fn message(&self, ticket: &Ticket) -> Vec<u8> {
        match &self.result {
            None => message::error(Some(ticket.id()), &RpcError::internal()),
            Some(result) => result.response(ticket.id(), &self.server.info, self.version),
        }
    }

    async fn send(
        self,
        ticket: Ticket,
        permit: Option<OwnedSemaphorePermit>,
        outbox: &Outbox,
        reply: &Reply,
    ) {
        let mut message = self.message(&ticket);
        let mut room = outbox.try_room(message.len());
        if room.is_none() {
            // Escapes make a message many times as long as its result: it is written again when there is room.
            let bytes = message.len();
            drop(message);
            room = tokio::select! {
                room = outbox.room(bytes) => room,
                () = ticket.withdrawn() => None,
            };
            message = match room {
                Some(_) => self.message(&ticket),
                None => return,
            };
        }
        drop(self);
        if let Some(room) = room
            && ticket.is_answered()
        {
            outbox.send(reply, Message::of_call(message, room, ticket, permit));
        }
    }
}

/// Runs the tool. A panic is an error of this call only.
async fn run(tool: &dyn Tool, call: ToolCall, cx: CallContext) -> CallResult {
    if call
        .arguments
        .values()
        .any(|value| depth_of(value) >= MAX_ARGUMENT_DEPTH)
    {
        let reason = format!("nesting exceeds the limit of {MAX_ARGUMENT_DEPTH} levels");
        return CallResult::refused(ToolError::invalid(reason));
    }
    let called = AssertUnwindSafe(async { tool.call(call, cx).await });
    called
        .catch_unwind()
        .await
        .unwrap_or_else(|_| CallResult::failed(ToolError::crashed("the tool panicked")))
}

/// Observer of a call: sends notifications that the client asked for, and keeps the receipt of a dropped call.
struct Watch {
    server: Arc<ServerState>,
    call: String,
    request: RequestId,
    tool: String,
    scope: Scope,
    outbox: Outbox,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// True once the call has ended: nothing about it follows its response.
    is_closed: bool,
    progress: Option<u64>,
    receipt: Option<Receipt>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all notifications, and returns the receipts that no result carries.
    fn close(&self) -> Option<Receipt> {
        let mut state = self.lock();
        state.is_closed = true;
        state.receipt.take()
    }
}

impl CallObserver for Watch {
    fn log(&self, line: LogLine) {
        self.server.observer.log(&self.call, &line);
        let severity = Severity::of(line.level);
        if self.scope.log.is_none_or(|minimum| severity < minimum) {
            return;
        }
        let state = self.lock();
        if !state.is_closed {
            // A guest can write the words of the host; `source` tells them apart.
            let params = json!({
                "level": SEVERITIES[severity.0],
                "logger": self.tool,
                "data": line.message,
                "_meta": { LOG_KEY: { "source": line.source, "requestId": self.request } },
            });
            self.outbox
                .offer(message::notification("notifications/message", &params));
        }
    }

    fn progress(&self, progress: Progress) {
        let Some(token) = &self.scope.progress else {
            return;
        };
        let mut state = self.lock();
        // The protocol wants it to increase with each notification.
        if state.is_closed || state.progress.is_some_and(|last| progress.done <= last) {
            return;
        }
        state.progress = Some(progress.done);
        let mut params = json!({ "progressToken": token, "progress": progress.done });
        if let Some(total) = progress.total {
            params["total"] = total.into();
        }
        if let Some(text) = progress
            .message
            .filter(|_| self.scope.version >= Version::V2025_03_26)
        {
            params["message"] = text.into();
        }
        self.outbox
            .offer(message::notification("notifications/progress", &params));
    }

    fn receipt(&self, receipt: Receipt) {
        let mut state = self.lock();
        match &mut state.receipt {
            Some(sum) => sum.merge(receipt),
            None => state.receipt = Some(receipt),
        }
    }
}
