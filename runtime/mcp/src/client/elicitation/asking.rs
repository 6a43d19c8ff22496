//! Questions of a server during a call: one at a time, only while a call waits, and without counting against its time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use toolcell_core::redact::Redactor;

use super::{Elicitation, ElicitationAnswer, Elicitor, MAX_ELICITATIONS};
use crate::client::message;
use crate::client::pending::Shared;
use crate::message::RequestId;

/// Interval in which a question is withdrawn after the call that it belongs to has ended.
const WITHDRAWAL: Duration = Duration::from_millis(100);

/// Asks the user on behalf of one server.
pub(in crate::client) struct Asking {
    server: String,
    elicitor: Arc<dyn Elicitor>,
    redactor: Redactor,
    /// Only one question is shown at a time.
    turn: tokio::sync::Mutex<()>,
    clock: Mutex<Clock>,
    /// Questions since the last answer to a call.
    asked: AtomicU32,
}

#[derive(Default)]
struct Clock {
    past: Duration,
    since: Option<Instant>,
}

/// Counts the time of a question.
struct Shown<'a>(&'a Asking);

impl Asking {
    pub(in crate::client) fn new(server: &str, elicitor: Arc<dyn Elicitor>, redactor: Redactor) -> Self {
        Self {
            server: server.to_owned(),
            elicitor,
            redactor,
            turn: tokio::sync::Mutex::default(),
            clock: Mutex::default(),
            asked: AtomicU32::new(0),
        }
    }

    /// Time for which questions were shown, up to now.
    pub(in crate::client) fn time(&self) -> Duration {
        let clock = self.clock();
        clock.past + clock.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Allows questions again after a call was answered.
    pub(in crate::client) fn reset(&self) {
        self.asked.store(0, Ordering::Relaxed);
    }

    /// Asks the user.
    ///
    /// # Errors
    /// The reason for which the question is refused.
    pub(in crate::client) async fn ask(
        &self,
        params: Map<String, Value>,
    ) -> Result<ElicitationAnswer, &'static str> {
        let elicitation = Elicitation::read(&self.server, &self.redactor, params)?;
        if self.asked.fetch_add(1, Ordering::Relaxed) >= MAX_ELICITATIONS {
            return Err("too many questions during one call");
        }
        let _turn = self.turn.lock().await;
        self.clock().since = Some(Instant::now());
        let _shown = Shown(self);
        tracing::info!(server = self.server, "an MCP server asks the user");
        Ok(self.elicitor.elicit(elicitation).await)
    }

    fn clock(&self) -> std::sync::MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Answers the questions of a server that come as requests, one after the other.
pub(in crate::client) async fn answer(
    mut questions: mpsc::Receiver<(RequestId, Map<String, Value>)>,
    asking: Arc<Asking>,
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Vec<u8>>,
) {
    while let Some((id, params)) = questions.recv().await {
        let withdrawn = async {
            while shared.has_calls() {
                tokio::time::sleep(WITHDRAWAL).await;
            }
        };
        let answered = tokio::select! {
            answered = asking.ask(params) => answered,
            () = withdrawn => Ok(ElicitationAnswer::Cancel),
            () = shared.closed.cancelled() => return,
        };
        let answer = match answered {
            Ok(answer) => message::answer_to(&id, Ok(answer.result())),
            Err(why) => message::answer_to(&id, Err(json!({ "code": -32602, "message": why }))),
        };
        // A server that does not read gets no answers.
        let _ = outbox.try_send(answer);
    }
}
