//! Calls that run, to cancel one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Calls of a session that run, or wait for their part of the budget. Each can be cancelled on its own, while the turn goes on.
#[derive(Debug, Clone, Default)]
pub struct RunningCalls(Arc<Mutex<HashMap<String, CancellationToken>>>);

/// A call that runs until this is dropped.
pub(super) struct Cancellable {
    calls: RunningCalls,
    id: String,
    token: CancellationToken,
}

impl RunningCalls {
    /// Cancels a call: it is dropped, and the model gets an error as its result. Returns `false` if no call with this identifier
    /// runs; those that an agent makes are part of the call of the agent.
    pub fn cancel(&self, id: &str) -> bool {
        match self.lock().get(id) {
            Some(token) => {
                token.cancel();
                true
            }
            None => false,
        }
    }

    pub(super) fn begin(&self, id: &str) -> Cancellable {
        let token = CancellationToken::new();
        self.lock().insert(id.to_owned(), token.clone());
        Cancellable {
            calls: self.clone(),
            id: id.to_owned(),
            token,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancellable {
    /// Runs work until the call is cancelled; `None` if it is.
    pub(super) async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.token.run_until_cancelled(work).await
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.id);
    }
}
