//! One connection to a server: its requests, on streams or over HTTP, with their time limits.
//!
//! Every request has a time limit and ends by itself. Answers that come late, twice or with an unknown identifier are
//! counted and dropped; beyond [`MAX_UNSOLICITED`](super::MAX_UNSOLICITED) of them and other unsolicited messages the connection is closed.

mod listening;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use toolcell_core::Redactor;
use toolcell_core::tool::CallObserver;

use self::listening::Listening;
use super::elicitation::{self, Asking, Questions, Stopwatch};
use super::error::ServerError;
use super::http::{Endpoint, Outgoing, POST_TIMEOUT};
use super::message::{self, Received};
use super::pending::{Shared, Waiting};
use crate::lines::{Line, Lines};
use crate::version::Version;

/// Maximum size of a message of a server, in bytes: a result of the maximum size in base64, and its escapes. A longer one
/// is skipped.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Maximum number of values in a message of a server.
pub const MAX_VALUES: usize = 200_000;

/// Maximum memory of a message of a server once it is parsed, in bytes. Many small objects take a hundred times as much as their
/// text.
pub const MAX_MESSAGE_MEMORY: u64 = 32 << 20;

/// Maximum number of messages that wait to be written. A server that does not read gets no more requests.
const MAX_UNWRITTEN: usize = 64;

/// Number of requests without an answer, and without any message between them, after which a server counts as hung.
const MAX_UNANSWERED: u32 = 3;

/// A connection. Dropping it ends its tasks.
pub(super) struct Link {
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Vec<u8>>,
    /// Connections over HTTP, where each request is an exchange of its own; `None` for streams.
    http: Option<Arc<Endpoint>>,
    /// Asks the user; `None` if no user can be asked.
    pub(super) asking: Option<Arc<Asking>>,
    tasks: Mutex<JoinSet<()>>,
}

/// The time of a request is over.
struct Elapsed;

/// A request.
pub(super) struct Ask {
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) limit: Duration,
    /// Observer of the call, which gets its progress.
    pub(super) observer: Option<Arc<dyn CallObserver>>,
    /// Arguments that are sent as headers as well, over HTTP.
    pub(super) headers: HeaderMap,
}

impl Ask {
    pub(super) fn new(method: &'static str, params: Value, limit: Duration) -> Self {
        Self {
            method,
            params,
            limit,
            observer: None,
            headers: HeaderMap::new(),
        }
    }
}

impl Link {
    /// Starts to read and write.
    pub(super) fn start(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        asking: Option<Arc<Asking>>,
        redactor: Redactor,
    ) -> Self {
        let (mut link, unwritten) = Self::new(None, asking, redactor);
        let tasks = link.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(read(input, link.shared.clone(), link.outbox.clone()));
        tasks.spawn(write(output, unwritten, link.shared.clone()));
        link
    }

    /// A connection over HTTP.
    pub(super) fn over_http(http: Endpoint, asking: Option<Arc<Asking>>, redactor: Redactor) -> Self {
        let http = Arc::new(http);
        let (mut link, unwritten) = Self::new(Some(http.clone()), asking, redactor);
        let tasks = link.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(post(http, unwritten, link.shared.clone()));
        link
    }

    fn new(
        http: Option<Arc<Endpoint>>,
        asking: Option<Arc<Asking>>,
        redactor: Redactor,
    ) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (outbox, unwritten) = mpsc::channel(MAX_UNWRITTEN);
        let mut shared = Shared::new(redactor);
        let mut tasks = JoinSet::new();
        let questions = asking.clone().map(Questions::new);
        let waiting = questions.map(|(questions, waiting)| {
            shared.questions = Some(questions);
            waiting
        });
        let shared = Arc::new(shared);
        if let Some((asking, waiting)) = asking.clone().zip(waiting) {
            tasks.spawn(elicitation::answer(
                waiting,
                asking,
                shared.clone(),
                outbox.clone(),
            ));
        }
        let link = Self {
            shared,
            outbox,
            http,
            asking,
            tasks: Mutex::new(tasks),
        };
        (link, unwritten)
    }

    /// Sends a request and waits for its answer. Dropping the future tells the server that the request is cancelled.
    pub(super) async fn request(&self, ask: Ask) -> Result<Value, ServerError> {
        let Ask {
            method,
            mut params,
            limit,
            observer,
            headers,
        } = ask;
        let id = self.shared.next_id();
        if observer.is_some() {
            params["_meta"]["progressToken"] = id.into();
        }
        let (answer, mut answered) = oneshot::channel();
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
        let body = message::request(id, method, &params);
        let asked = async {
            if let Some(http) = &self.http {
                let outgoing = Outgoing {
                    id,
                    method,
                    params: &params,
                    headers,
                    body,
                };
                let receive = |received| self.shared.receive(received, &self.outbox);
                return tokio::select! {
                    biased;
                    // The end of the connection answers it as well.
                    answer = &mut answered => answer,
                    exchanged = http.request(outgoing, &receive) => {
                        match exchanged {
                            Ok(()) => answered.await,
                            Err(error) => {
                                self.shared.unanswered.store(0, Ordering::Relaxed);
                                self.shared.fail(id, error);
                                answered.await
                            }
                        }
                    }
                };
            }
            drop(params);
            // A closed channel means that the connection ended, which answers the request.
            let _ = self.outbox.send(body).await;
            answered.await
        };
        match self.within(limit, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ServerError::Ended { status: None }),
            Err(Elapsed) => {
                // Over HTTP each request is an exchange of its own: one that hangs says nothing of the others.
                if self.http.is_none()
                    && self.shared.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNANSWERED
                {
                    self.close(ServerError::Ended { status: None });
                }
                Err(ServerError::Timeout {
                    method: method.to_owned(),
                    ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
                })
            }
        }
    }

    /// Starts a stopwatch that stands still while a question is shown to the user.
    pub(super) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.asking.clone())
    }

    /// Waits at most for a time in which no question is shown to the user.
    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        let stopwatch = self.stopwatch();
        let mut work = std::pin::pin!(work);
        loop {
            let left = limit.saturating_sub(stopwatch.elapsed());
            match tokio::time::timeout(left, &mut work).await {
                Ok(done) => return Ok(done),
                Err(_) if stopwatch.elapsed() < limit => {}
                Err(_) => return Err(Elapsed),
            }
        }
    }

    /// Waits for the end of the connection. Returns its reason.
    pub(super) async fn ended(&self) -> ServerError {
        self.shared.closed.cancelled().await;
        self.end().unwrap_or(ServerError::Ended { status: None })
    }

    /// Sends a notification, unless the server reads too slowly.
    pub(super) fn notify(&self, method: &str, params: &Value) {
        let _ = self.outbox.try_send(message::notification(method, params));
    }

    /// Sends a notification before everything that follows.
    pub(super) async fn notify_first(&self, method: &'static str, params: &Value, limit: Duration) {
        match &self.http {
            None => self.notify(method, params),
            Some(http) => {
                let message = message::notification(method, params);
                let _ = tokio::time::timeout(limit.min(POST_TIMEOUT), http.post(message, method)).await;
            }
        }
    }

    /// Sets the version of the messages that follow; `None` during `initialize`.
    pub(super) fn set_version(&self, version: Option<Version>) {
        if let Some(http) = &self.http {
            http.set_version(version);
        }
    }

    /// Reads what belongs to no request, where a version has it: over HTTP from a stream of its own. `subscription` are the
    /// parameters of a request for it, in versions without sessions. `tells_changes` is true if the server says that it tells
    /// changes of its tools.
    pub(super) fn listen(&self, subscription: Option<Value>, tells_changes: bool) {
        let listening = Listening {
            shared: self.shared.clone(),
            outbox: self.outbox.clone(),
            subscription,
            tells_changes,
        };
        let http = self.http.clone();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(async move {
            let closed = listening.shared.closed.clone();
            let listened = async {
                match http {
                    Some(http) => listening.over_http(&http).await,
                    None => listening.on_stream().await,
                }
            };
            tokio::select! {
                () = listened => {}
                () = closed.cancelled() => {}
            }
        });
    }

    /// Does some work once the connection has ended, unless it is dropped first.
    pub(super) fn at_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closed = self.shared.closed.clone();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(async move {
            closed.cancelled().await;
            work.await;
        });
    }

    /// Removes the secrets that the server got from what it sends.
    pub(super) fn redactor(&self) -> &Redactor {
        self.shared.redactor()
    }

    /// True if the server is reached over HTTP.
    pub(super) fn is_http(&self) -> bool {
        self.http.is_some()
    }

    /// True if the server has plain endpoints instead of the protocol.
    pub(super) fn is_plain(&self) -> bool {
        self.http.as_ref().is_some_and(|http| http.is_plain())
    }

    /// Ends the session at a server over HTTP.
    pub(super) async fn end_session(&self) {
        if let Some(http) = &self.http {
            http.end().await;
        }
    }

    /// Returns the reason for which the connection ended, if it did.
    pub(super) fn end(&self) -> Option<ServerError> {
        self.shared.lock().end.clone()
    }

    /// True once a server over HTTP does not know its session any more. Requests on their way go on.
    pub(super) fn is_lost(&self) -> bool {
        self.http.as_ref().is_some_and(|http| http.is_lost())
    }

    /// Ends the connection; every request that waits fails with this error.
    pub(super) fn close(&self, error: ServerError) {
        self.shared.close(error);
    }

    /// Returns the duty to read the lists of the server, once after they changed.
    pub(super) fn take_stale(&self) -> Option<Unread<'_>> {
        self.shared.take_stale().then(|| Unread(&self.shared))
    }
}

/// Lists that changed and are being read. They stay changed unless they were read to their ends, also if the call that reads
/// them is cancelled.
pub(super) struct Unread<'a>(&'a Shared);

impl Unread<'_> {
    /// Ends the duty: the lists were read.
    pub(super) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.0.set_stale();
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
        // Without a session, the end of the answer is the cancellation.
        let is_told = self
            .link
            .http
            .as_ref()
            .is_none_or(|http| !http.cancels_by_closing());
        // Requests of the handshake cannot be cancelled.
        if is_told
            && waiting.is_some_and(|waiting| !matches!(waiting.method, "initialize" | "server/discover"))
        {
            self.link
                .notify("notifications/cancelled", &json!({ "requestId": self.id }));
        }
    }
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
                Received::Invalid
            }
            Ok(None) | Err(_) => break ServerError::Ended { status: None },
        };
        if let Err(error) = shared.receive(received, &outbox) {
            break error;
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

/// Sends what has no answer to a server over HTTP, one message after the other.
async fn post(http: Arc<Endpoint>, mut unwritten: mpsc::Receiver<Vec<u8>>, shared: Arc<Shared>) {
    loop {
        let message = tokio::select! {
            message = unwritten.recv() => message,
            () = shared.closed.cancelled() => None,
        };
        let Some(message) = message else { return };
        let posted = tokio::time::timeout(POST_TIMEOUT, http.post(message, "notification"));
        tokio::select! {
            _ = posted => {}
            () = shared.closed.cancelled() => return,
        }
    }
}
