//! Questions of a server during a call: one at a time, only while a call waits, and without counting against its time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use toolcell_core::redact::Redactor;

use super::{Elicitation, ElicitationAnswer, Elicitor, MAX_ELICITATIONS};
use crate::client::message;
use crate::client::pending::Shared;
use crate::message::RequestId;

/// Reason for which a question beyond the limit is refused.
pub(in crate::client) const TOO_MANY: &str = "there are too many questions during one call";

/// Asks the user on behalf of one server.
pub(in crate::client) struct Asking {
    server: String,
    elicitor: Arc<dyn Elicitor>,
    redactor: Redactor,
    /// Only one question is shown at a time.
    turn: tokio::sync::Mutex<()>,
    clock: Mutex<Clock>,
    calls: Mutex<Calls>,
    /// Number of times at which the last call ended. A question belongs to the time in which it came.
    period: watch::Sender<u64>,
}

#[derive(Default)]
struct Clock {
    past: Duration,
    since: Option<Instant>,
}

/// Calls that run. A request of a server does not say to which of them it belongs, so that they share their questions.
#[derive(Default)]
struct Calls {
    running: u32,
    /// Questions that are left.
    left: u32,
}

/// Counts the time of a question.
struct Shown<'a>(&'a Asking);

/// A call that runs, during which questions are allowed.
pub(in crate::client) struct RunningCall(Arc<Asking>);

impl Asking {
    pub(in crate::client) fn new(server: &str, elicitor: Arc<dyn Elicitor>, redactor: Redactor) -> Self {
        Self {
            server: server.to_owned(),
            elicitor,
            redactor,
            turn: tokio::sync::Mutex::default(),
            clock: Mutex::default(),
            calls: Mutex::default(),
            period: watch::Sender::new(0),
        }
    }

    /// Time for which questions were shown, up to now.
    fn time(&self) -> Duration {
        let clock = self.clock();
        clock.past + clock.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Begins a call, which may have [`MAX_ELICITATIONS`] questions.
    pub(in crate::client) fn begin_call(self: &Arc<Self>) -> RunningCall {
        let mut calls = self.calls();
        calls.running += 1;
        calls.left += MAX_ELICITATIONS;
        RunningCall(self.clone())
    }

    /// True while a call runs.
    pub(in crate::client) fn has_calls(&self) -> bool {
        self.calls().running > 0
    }

    /// Reads a question, and counts it.
    ///
    /// # Errors
    /// The reason for which the question is refused.
    pub(in crate::client) fn read(&self, params: Map<String, Value>) -> Result<Elicitation, &'static str> {
        let elicitation = Elicitation::read(&self.server, &self.redactor, params)?;
        let mut calls = self.calls();
        calls.left = calls.left.checked_sub(1).ok_or(TOO_MANY)?;
        Ok(elicitation)
    }

    /// Asks the user.
    pub(in crate::client) async fn ask(&self, elicitation: Elicitation) -> ElicitationAnswer {
        let _turn = self.turn.lock().await;
        self.clock().since = Some(Instant::now());
        let _shown = Shown(self);
        tracing::info!(server = self.server, "an MCP server asks the user");
        self.elicitor.elicit(elicitation).await
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCall {
    pub(in crate::client) fn asking(&self) -> &Asking {
        &self.0
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut calls = self.0.calls();
        calls.running -= 1;
        if calls.running == 0 {
            calls.left = 0;
            self.0.period.send_modify(|period| *period += 1);
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let mut clock = self.0.clock();
        if let Some(since) = clock.since.take() {
            clock.past += since.elapsed();
        }
    }
}

/// Time that passes without a question on the screen.
pub(in crate::client) struct Stopwatch {
    asking: Option<Arc<Asking>>,
    begun: Instant,
    asked: Duration,
}

impl Stopwatch {
    pub(in crate::client) fn start(asking: Option<Arc<Asking>>) -> Self {
        Self {
            begun: Instant::now(),
            asked: asking.as_ref().map(|asking| asking.time()).unwrap_or_default(),
            asking,
        }
    }

    pub(in crate::client) fn elapsed(&self) -> Duration {
        let asked = self.asking.as_ref().map(|asking| asking.time());
        let asked = asked.unwrap_or_default().saturating_sub(self.asked);
        self.begun.elapsed().saturating_sub(asked)
    }
}

/// A question that came as a request.
pub(in crate::client) struct Asked {
    id: RequestId,
    elicitation: Elicitation,
    period: u64,
}

/// Questions of one connection that came as requests, and wait.
pub(in crate::client) struct Questions {
    asking: Arc<Asking>,
    queue: mpsc::Sender<Asked>,
}

impl Questions {
    pub(in crate::client) fn new(asking: Arc<Asking>) -> (Self, mpsc::Receiver<Asked>) {
        let (queue, waiting) = mpsc::channel(MAX_ELICITATIONS as usize);
        (Self { asking, queue }, waiting)
    }

    /// True if a question is accepted now, because a call runs.
    pub(in crate::client) fn are_open(&self) -> bool {
        self.asking.has_calls()
    }

    /// Adds a question.
    ///
    /// # Errors
    /// The answer to a question that is refused.
    pub(in crate::client) fn add(&self, id: RequestId, params: Map<String, Value>) -> Result<(), Vec<u8>> {
        let period = *self.asking.period.borrow();
        let refused = |id: &RequestId, why: &str| {
            message::answer_to(id, Err(json!({ "code": -32602, "message": why })))
        };
        let elicitation = self.asking.read(params).map_err(|why| refused(&id, why))?;
        let asked = Asked {
            id,
            elicitation,
            period,
        };
        self.queue.try_send(asked).map_err(|error| {
            let (mpsc::error::TrySendError::Full(asked) | mpsc::error::TrySendError::Closed(asked)) = error;
            refused(&asked.id, TOO_MANY)
        })
    }
}

/// Answers the questions of a server that come as requests, one after the other.
pub(in crate::client) async fn answer(
    mut questions: mpsc::Receiver<Asked>,
    asking: Arc<Asking>,
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Vec<u8>>,
) {
    while let Some(asked) = questions.recv().await {
        let mut period = asking.period.subscribe();
        let answer = tokio::select! {
            // Nothing is shown for a call that has ended.
            biased;
            () = shared.closed.cancelled() => return,
            _ = period.wait_for(|period| *period != asked.period) => ElicitationAnswer::Cancel,
            answer = asking.ask(asked.elicitation) => answer,
        };
        // A server that does not read gets no answers.
        let _ = outbox.try_send(message::answer_to(&asked.id, Ok(answer.result())));
    }
}
