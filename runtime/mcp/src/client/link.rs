//! One connection to a server: requests, their answers, and what the server sends without being asked.
//!
//! Every request has a time limit and ends by itself. Answers that come late, twice or with an unknown identifier are
//! counted and dropped; beyond [`MAX_UNASKED`] of them and other unasked messages the connection is closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolcell_core::tool::{CallObserver, Progress};

use super::error::{ServerError, excerpt};
use super::message::{self, Answer, Received};
use crate::lines::{Line, Lines};

/// Maximum size of a message of a server, in bytes: a result of the maximum size in base64, and its escapes. A longer one
/// is skipped.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Maximum number of values in a message of a server. Parsed, each takes up to a hundred bytes.
pub const MAX_VALUES: usize = 200_000;

/// Maximum number of messages that nobody asked for between two answers: notifications, requests of the server, and
/// answers that are late or belong to no request.
pub const MAX_UNASKED: u32 = 10_000;

/// Maximum number of messages that wait to be written. A server that does not read gets no more requests.
const MAX_UNWRITTEN: usize = 64;

/// Number of requests without an answer, and without any message between them, after which a server counts as hung.
const MAX_UNANSWERED: u32 = 3;

/// Maximum size of a text in a progress report, in bytes.
const MAX_PROGRESS_TEXT: usize = 1 << 10;

/// A connection. Dropping it ends its tasks.
pub(super) struct Link {
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Vec<u8>>,
    last_id: AtomicI64,
    _tasks: JoinSet<()>,
}

struct Shared {
    state: Mutex<State>,
    closed: CancellationToken,
    /// True once a list of the server changed, until it is read again.
    is_stale: AtomicBool,
    /// Requests that ran out of time since the last message.
    unanswered: AtomicU32,
}

#[derive(Default)]
struct State {
    waiting: HashMap<i64, Waiting>,
    unasked: u32,
    end: Option<ServerError>,
}

struct Waiting {
    method: &'static str,
    answer: oneshot::Sender<Result<Value, ServerError>>,
    observer: Option<Arc<dyn CallObserver>>,
    progress: Option<f64>,
}

impl Link {
    /// Starts to read and write.
    pub(super) fn start(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            closed: CancellationToken::new(),
            is_stale: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
        });
        let (outbox, unwritten) = mpsc::channel(MAX_UNWRITTEN);
        let mut tasks = JoinSet::new();
        tasks.spawn(read(input, shared.clone(), outbox.clone()));
        tasks.spawn(write(output, unwritten, shared.clone()));
        Self {
            shared,
            outbox,
            last_id: AtomicI64::new(0),
            _tasks: tasks,
        }
    }

    /// Sends a request and waits for its answer. Dropping the future tells the server that the request is cancelled.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
        limit: Duration,
        observer: Option<Arc<dyn CallObserver>>,
    ) -> Result<Value, ServerError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let mut params = params;
        if observer.is_some() {
            params["_meta"]["progressToken"] = id.into();
        }
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            method,
            answer,
            observer,
            progress: None,
        };
        {
            let mut state = self.shared.lock();
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            state.waiting.insert(id, waiting);
        }
        let _forget = Forget { link: self, id };
        let message = message::request(id, method, &params);
        drop(params);
        let asked = async {
            // A closed channel means that the connection ended, which answers the request.
            let _ = self.outbox.send(message).await;
            answered.await
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ServerError::Ended { status: None }),
            Err(_) => {
                if self.shared.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNANSWERED {
                    self.close(ServerError::Ended { status: None });
                }
                Err(ServerError::Timeout {
                    method: method.to_owned(),
                    ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
                })
            }
        }
    }

    /// Sends a notification, unless the server reads too slowly.
    pub(super) fn notify(&self, method: &str, params: &Value) {
        let _ = self.outbox.try_send(message::notification(method, params));
    }

    /// Returns the reason for which the connection ended, if it did.
    pub(super) fn end(&self) -> Option<ServerError> {
        self.shared.lock().end.clone()
    }

    /// Ends the connection; every request that waits fails with this error.
    pub(super) fn close(&self, error: ServerError) {
        self.shared.close(error);
    }

    /// Returns `true` once after the lists of the server changed.
    pub(super) fn take_stale(&self) -> bool {
        self.shared.is_stale.swap(false, Ordering::Relaxed)
    }

    /// Marks the lists of the server as changed.
    pub(super) fn set_stale(&self) {
        self.shared.is_stale.store(true, Ordering::Relaxed);
    }
}

/// Forgets a request; one that was not answered is cancelled.
struct Forget<'a> {
    link: &'a Link,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let waiting = self.link.shared.lock().waiting.remove(&self.id);
        // Requests of the handshake cannot be cancelled.
        if waiting.is_some_and(|waiting| !matches!(waiting.method, "initialize" | "server/discover")) {
            self.link
                .notify("notifications/cancelled", &json!({ "requestId": self.id }));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, error: ServerError) {
        let mut state = self.lock();
        let error = state.end.get_or_insert(error).clone();
        for (_, waiting) in state.waiting.drain() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
        drop(state);
        self.closed.cancel();
    }

    /// Counts a message that nobody asked for. Returns `false` if it is one too many.
    fn count_unasked(&self) -> bool {
        let mut state = self.lock();
        state.unasked += 1;
        state.unasked <= MAX_UNASKED
    }

    /// Delivers an answer. Returns `false` if no request waits for it.
    fn deliver(&self, id: i64, answer: Answer) -> bool {
        let mut state = self.lock();
        let Some(Waiting {
            method, answer: to, ..
        }) = state.waiting.remove(&id)
        else {
            return false;
        };
        state.unasked = 0;
        let _ = to.send(match answer {
            Answer::Result(value) => Ok(value),
            Answer::Error { code, message } => Err(ServerError::Answered {
                method: method.to_owned(),
                code,
                message,
            }),
            Answer::Invalid(reason) => Err(ServerError::invalid(method, reason)),
        });
        true
    }

    /// Fails the only request that waits with a message that was too long to be read. Of several requests it is unknown
    /// which one it answers.
    fn deliver_too_long(&self) {
        let only = {
            let state = self.lock();
            let mut ids = state.waiting.keys().copied();
            match (ids.next(), ids.next()) {
                (Some(only), None) => Some(only),
                _ => None,
            }
        };
        if let Some(id) = only {
            let reason = format!("has more than {MAX_ANSWER_BYTES} bytes");
            self.deliver(id, Answer::Invalid(reason));
        }
    }

    fn notified(&self, method: &str, params: &Map<String, Value>) {
        match method {
            "notifications/tools/list_changed" => self.is_stale.store(true, Ordering::Relaxed),
            "notifications/progress" => self.progressed(params),
            "notifications/message" => {
                let text = params.get("data").map(Value::to_string).unwrap_or_default();
                tracing::debug!(message = excerpt(&text), "an MCP server logs");
            }
            _ => {}
        }
    }

    fn progressed(&self, params: &Map<String, Value>) {
        let id = params.get("progressToken").and_then(Value::as_i64);
        let (Some(id), Some(done)) = (id, params.get("progress").and_then(Value::as_f64)) else {
            return;
        };
        let mut state = self.lock();
        let Some(waiting) = state.waiting.get_mut(&id) else {
            return;
        };
        // The protocol wants it to increase with each notification.
        if !done.is_finite() || done < 0.0 || waiting.progress.is_some_and(|last| done <= last) {
            return;
        }
        waiting.progress = Some(done);
        let Some(observer) = waiting.observer.clone() else {
            return;
        };
        drop(state);
        let message = params.get("message").and_then(Value::as_str);
        observer.progress(Progress {
            done: whole(done),
            total: params.get("total").and_then(Value::as_f64).map(whole),
            message: message.map(|text| text[..text.floor_char_boundary(MAX_PROGRESS_TEXT)].to_owned()),
        });
    }
}

/// The whole part of a number of steps, which servers may count in fractions.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
fn whole(steps: f64) -> u64 {
    steps as u64
}

async fn read(input: impl AsyncRead + Unpin, shared: Arc<Shared>, outbox: mpsc::Sender<Vec<u8>>) {
    let mut lines = Lines::up_to(input, MAX_ANSWER_BYTES);
    let ended = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = shared.closed.cancelled() => return,
        };
        let received = match line {
            Ok(Some(Line::Whole([]))) => continue,
            Ok(Some(Line::Whole(line))) => message::parse(line),
            Ok(Some(Line::TooLong)) => {
                shared.deliver_too_long();
                Received::Nonsense
            }
            Ok(None) | Err(_) => break ServerError::Ended { status: None },
        };
        shared.unanswered.store(0, Ordering::Relaxed);
        let was_asked = match received {
            Received::Answer { id, answer } => shared.deliver(id, answer),
            Received::Request { id, method } => {
                // A server that does not read gets no answers.
                let _ = outbox.try_send(message::response(&id, &method));
                false
            }
            Received::Notification { method, params } => {
                shared.notified(&method, &params);
                false
            }
            Received::Nonsense => false,
        };
        if !was_asked && !shared.count_unasked() {
            break ServerError::Flood;
        }
        // A server that always has a line ready does not keep the thread.
        tokio::task::consume_budget().await;
    };
    shared.close(ended);
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut unwritten: mpsc::Receiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    loop {
        let message = tokio::select! {
            message = unwritten.recv() => message,
            () = shared.closed.cancelled() => None,
        };
        let Some(message) = message else { return };
        let written = async {
            output.write_all(&message).await?;
            output.flush().await
        };
        let written = tokio::select! {
            written = written => written,
            () = shared.closed.cancelled() => return,
        };
        if written.is_err() {
            return shared.close(ServerError::Ended { status: None });
        }
    }
}
