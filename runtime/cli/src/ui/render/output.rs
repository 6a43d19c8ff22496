//! Standard output of turns, once it cannot be written to.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::error::{Exit, Failure};

/// Says when standard output cannot be written to any longer, and why.
#[derive(Clone, Default)]
pub(crate) struct Output {
    failed: CancellationToken,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Output {
    /// Notes that a write failed.
    pub(crate) fn fail(&self, failure: impl Into<Failure>) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure.into());
        self.failed.cancel();
    }

    /// True after a write failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_cancelled()
    }

    /// Token that is cancelled when a write fails.
    pub(crate) fn child_token(&self) -> CancellationToken {
        self.failed.child_token()
    }

    /// Result of a command whose output failed: a closed pipe is none of its failures.
    pub(crate) fn ended(&self) -> Result<Exit, Failure> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(Exit::Ok), Err)
    }
}
