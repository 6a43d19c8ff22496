//! Call of a tool: waits for a permit, runs, and is answered once.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, depth_of};
use toolcell_core::tool::{CallObserver, LogLevel, LogLine, Progress};
use toolcell_core::{
    ApprovalRequest, BoxFuture, CallContext, CallResult, Decision, Event, Receipt, Tool, ToolCall, ToolError,
};

use crate::message::{self, RequestId, RpcError};
use crate::server::context::Form;
use crate::server::in_flight::Ticket;
use crate::server::outbox::measured::{self, Writable};
use crate::server::outbox::{Message, Outbox, Reply};
use crate::server::question::{self, Subject};
use crate::server::result::Unsent;
use crate::server::session::SessionState;
use crate::server::state::ServerState;
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

/// Way in which the user of a client is asked.
#[derive(Clone)]
pub(crate) enum Asks {
    /// The client cannot ask.
    Not,
    /// By a request in the session.
    ByRequest(Arc<SessionState>),
    /// By the result, with the answer that the repeated call has.
    ByResult(Option<(Subject, Decision)>),
}

/// Protocol version, and what a request asks for beside its result.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) version: Version,
    /// Minimum severity of log messages; `None` disables them.
    pub(crate) log: Option<Severity>,
    /// Token of progress notifications, if the client wants them.
    pub(crate) progress: Option<Value>,
    pub(crate) asks: Asks,
}

/// Call in progress.
pub(crate) struct Call {
    pub(crate) server: Arc<ServerState>,
    pub(crate) tool: Arc<dyn Tool>,
    /// That of the catalog with the tool.
    pub(crate) generation: u64,
    pub(crate) call: ToolCall,
    pub(crate) form: Form,
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
            generation,
            call,
            form,
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
            generation,
            scope: scope.clone(),
            outbox: outbox.clone(),
            state: Mutex::default(),
            asks: Notify::new(),
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
                let _running = Running::new(&server);
                tokio::select! {
                    // The call first: one that was cancelled before it began would leave no receipt.
                    biased;
                    result = run(tool.as_ref(), call, cx) => result,
                    () = watch.asks.notified() => {
                        let error = ToolError::denied("the user is asked for approval", None);
                        CallResult::refused(error)
                    }
                    () = ticket.cancelled() => CallResult::failed(ToolError::Cancelled),
                }
            }
        };
        let (dropped, question) = watch.close();
        result.receipt = result.receipt.or(dropped);
        server.observer.finished(&id, &name, &result);
        let answer = Answer {
            server,
            version: scope.version,
            body: match (question, &result.error) {
                (Some(question), _) => Body::Question(question),
                (None, Some(ToolError::Host { .. })) => Body::Internal,
                (None, _) => Body::Result(Unsent::new(result, form)),
            },
        };
        answer.send(ticket, permit, &outbox, &reply).await;
    }
}

/// Tells the observer that a call runs, until this is dropped.
struct Running(Arc<ServerState>);

impl Running {
    fn new(server: &Arc<ServerState>) -> Self {
        server.observer.running(1);
        Self(server.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.observer.running(-1);
    }
}

/// Answer to a call, which waits with its permit until there is room for it.
struct Answer {
    server: Arc<ServerState>,
    version: Version,
    body: Body,
}

#[expect(clippy::large_enum_variant, reason = "the usual one is the large one")]
enum Body {
    Result(Unsent),
    /// An internal error, of which the client learns nothing.
    Internal,
    /// A question to the user, instead of a result.
    Question(Value),
}

impl Answer {
    async fn send(
        self,
        ticket: Ticket,
        permit: Option<OwnedSemaphorePermit>,
        outbox: &Outbox,
        reply: &Reply,
    ) {
        let unsent = (&self, ticket.id());
        // Escapes make a message many times as long as its result: it is written when there is room.
        let (bytes, message) = measured::measure(&unsent);
        let room = match outbox.try_room(bytes) {
            Some(room) => Some(room),
            None => tokio::select! {
                room = outbox.room(bytes) => room,
                () = ticket.withdrawn() => None,
            },
        };
        let Some(room) = room else { return };
        let message = message.unwrap_or_else(|| measured::written(&unsent, bytes));
        drop(self);
        if ticket.is_answered() {
            outbox.send(reply, Message::of_call(message, room, ticket, permit));
        }
    }
}

impl Writable for (&Answer, &RequestId) {
    fn write(&self, output: &mut impl io::Write) -> io::Result<()> {
        let (answer, id) = *self;
        match &answer.body {
            Body::Internal => output.write_all(&message::error(Some(id), &RpcError::internal())),
            Body::Question(question) => message::write_response(output, id, question),
            Body::Result(result) => result.write(output, id, &answer.server.info, answer.version),
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
    generation: u64,
    scope: Scope,
    outbox: Outbox,
    state: Mutex<State>,
    /// Notified when the result is a question.
    asks: Notify,
}

#[derive(Default)]
struct State {
    /// True once the call has ended: nothing about it follows its response.
    is_closed: bool,
    progress: Option<u64>,
    receipt: Option<Receipt>,
    /// Result that asks the user.
    question: Option<Value>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all notifications, and returns the receipts that no result carries, and the question instead of a result.
    fn close(&self) -> (Option<Receipt>, Option<Value>) {
        let mut state = self.lock();
        state.is_closed = true;
        (state.receipt.take(), state.question.take())
    }

    /// Asks about a call by its result, and waits for its end; the repeated call has the answer.
    async fn ask_by_result(&self, request: &ApprovalRequest, text: &str) -> Decision {
        let state = self.server.questions.add(Subject::of(request, self.generation));
        self.lock().question = Some(question::input_required(text, &state, &self.server.info));
        self.asks.notify_one();
        std::future::pending().await
    }

    async fn ask_by_request(&self, session: &SessionState, text: &str) -> Decision {
        let waiting = session.asked.begin();
        let params = question::params(text, self.scope.version >= Version::V2025_11_25);
        let request = message::request(&waiting.id, question::METHOD, &params);
        self.outbox.ask(request).await;
        waiting.decided().await
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

    fn nested(&self, event: &Event) {
        self.server.observer.nested(&self.call, event);
    }

    fn can_ask(&self) -> bool {
        !matches!(self.scope.asks, Asks::Not)
    }

    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Decision> {
        Box::pin(async move {
            // A session runs inside of the call. Repeated with an answer, it would begin again, and do everything twice.
            let is_nested = request.tool != self.tool;
            if is_nested && !matches!(self.scope.asks, Asks::ByRequest(_)) {
                self.server.observer.unasked(&request);
                return Decision::Later;
            }
            let text = match self.server.observer.question(&request, self.generation) {
                Ok(text) => text,
                Err(reason) => {
                    return Decision::Deny {
                        reason: Some(reason.into()),
                    };
                }
            };
            match &self.scope.asks {
                Asks::Not => Decision::Later,
                Asks::ByRequest(session) => self.ask_by_request(session, &text).await,
                Asks::ByResult(Some((subject, decision)))
                    if *subject == Subject::of(&request, self.generation) =>
                {
                    decision.clone()
                }
                Asks::ByResult(_) => self.ask_by_result(&request, &text).await,
            }
        })
    }

    fn receipt(&self, receipt: Receipt) {
        let mut state = self.lock();
        match &mut state.receipt {
            Some(sum) => sum.merge(receipt),
            None => state.receipt = Some(receipt),
        }
    }
}
