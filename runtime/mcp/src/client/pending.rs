//! Requests of one connection that wait for their answers, and what the server sends without being asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toolcell_core::Redactor;
use toolcell_core::tool::{CallObserver, Progress};

use super::elicitation::{self, Questions};
use super::error::{ServerError, excerpt};
use super::link::MAX_ANSWER_BYTES;
use super::message::{self, Answer, Received};

/// Maximum number of unsolicited messages between two answers: notifications, requests of the server, and answers that are late
/// or belong to no request.
pub const MAX_UNSOLICITED: u32 = 10_000;

/// Maximum size of a text in a progress report, in bytes.
const MAX_PROGRESS_TEXT: usize = 1 << 10;

/// State that the tasks of a connection share.
#[derive(Default)]
pub(super) struct Shared {
    /// Removes the secrets that the server got from what it sends.
    redactor: Redactor,
    pub(super) state: Mutex<State>,
    pub(super) closed: CancellationToken,
    /// True once a list of the server changed, until it is read again.
    is_stale: AtomicBool,
    last_id: AtomicI64,
    /// Request for changes of the lists on a stream, and its end; an answer ends it.
    subscription: Mutex<Option<(i64, CancellationToken)>>,
    /// Requests that ran out of time since the last message.
    pub(super) unanswered: AtomicU32,
    /// Questions to the user that wait; `None` if no user can be asked.
    pub(super) questions: Option<Questions>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: HashMap<i64, Waiting>,
    unsolicited: u32,
    pub(super) end: Option<ServerError>,
}

pub(super) struct Waiting {
    pub(super) method: &'static str,
    pub(super) answer: oneshot::Sender<Result<Value, ServerError>>,
    pub(super) observer: Option<Arc<dyn CallObserver>>,
    pub(super) progress: Option<f64>,
}

impl Shared {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            ..Self::default()
        }
    }

    /// Removes the secrets that the server got from what it sends.
    pub(super) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Returns the identifier of another request.
    pub(super) fn next_id(&self) -> i64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true once after the lists of the server changed.
    pub(super) fn take_stale(&self) -> bool {
        self.is_stale.swap(false, Ordering::Relaxed)
    }

    /// Marks the lists of the server as changed.
    pub(super) fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self, error: ServerError) {
        let mut state = self.lock();
        let error = state.end.get_or_insert(error).clone();
        for (_, waiting) in state.waiting.drain() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
        drop(state);
        self.closed.cancel();
    }

    /// Handles a message of the server.
    pub(super) fn receive(
        &self,
        received: Received,
        outbox: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), ServerError> {
        self.unanswered.store(0, Ordering::Relaxed);
        let was_asked = match received {
            Received::Answer { id, answer } => self.deliver(id, answer),
            Received::Request { id, method, params } => {
                let answer = match &self.questions {
                    Some(questions) if method == elicitation::METHOD && questions.are_open() => {
                        questions.add(id, params).err()
                    }
                    _ => Some(message::response(&id, &method)),
                };
                if let Some(answer) = answer {
                    // A server that does not read gets no answers.
                    let _ = outbox.try_send(answer);
                }
                false
            }
            Received::Notification { method, params } => {
                self.notified(&method, &params);
                false
            }
            Received::Invalid => false,
        };
        match was_asked || self.count_unsolicited() {
            true => Ok(()),
            false => Err(ServerError::Flood),
        }
    }

    /// Fails a request that waits. A server that floods loses its connection.
    pub(super) fn fail(&self, id: i64, error: ServerError) {
        if matches!(error, ServerError::Flood) {
            self.close(error);
        } else if let Some(waiting) = self.lock().waiting.remove(&id) {
            let _ = waiting.answer.send(Err(error));
        }
    }

    /// Counts an unsolicited message. Returns `false` if it is one too many.
    fn count_unsolicited(&self) -> bool {
        let mut state = self.lock();
        state.unsolicited += 1;
        state.unsolicited <= MAX_UNSOLICITED
    }

    /// Returns the end of a subscription, for which no request waits.
    pub(super) fn end_of_subscription(&self, id: i64) -> CancellationToken {
        let end = CancellationToken::new();
        let mut subscription = self.subscription.lock().unwrap_or_else(PoisonError::into_inner);
        *subscription = Some((id, end.clone()));
        end
    }

    /// Delivers an answer. Returns `false` if no request waits for it.
    fn deliver(&self, id: i64, answer: Answer) -> bool {
        let mut state = self.lock();
        let Some(Waiting {
            method, answer: to, ..
        }) = state.waiting.remove(&id)
        else {
            drop(state);
            let subscription = self.subscription.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, end)) = subscription.as_ref().filter(|(subscribed, _)| *subscribed == id) {
                end.cancel();
            }
            return false;
        };
        state.unsolicited = 0;
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
    pub(super) fn deliver_too_long(&self) {
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
            "notifications/tools/list_changed" => self.set_stale(),
            "notifications/progress" => self.progressed(params),
            "notifications/message" => {
                let text = params.get("data").map(Value::to_string).unwrap_or_default();
                tracing::debug!(message = excerpt(&text, &self.redactor), "an MCP server logs");
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
            message: message.map(|text| self.redactor.beginning(text, MAX_PROGRESS_TEXT)),
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
