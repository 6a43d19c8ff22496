//! Requests that continue a stored session begin one after another: what a request continues, and its identifier, depend on the
//! events before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Sessions in which a turn begins.
#[derive(Default)]
pub(super) struct Beginnings {
    sessions: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

/// Right to begin a turn in a session. It is given up with the first event of the turn, which the next request sees.
pub(super) type Beginning = OwnedMutexGuard<()>;

impl Beginnings {
    /// Waits until no other turn begins in the session.
    pub(super) async fn of(&self, session: &str) -> Beginning {
        let lock = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            // One without a request is nowhere else.
            sessions.retain(|_, lock| Arc::strong_count(lock) > 1);
            sessions.entry(session.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_turn_begins_in_a_session_at_a_time() {
        let beginnings = Beginnings::default();
        let first = beginnings.of("a").await;
        let mut second = Box::pin(beginnings.of("a"));
        assert!(second.as_mut().now_or_never().is_none());
        let other = beginnings.of("b").now_or_never();
        assert!(other.is_some());
        drop((first, other));
        assert!(second.as_mut().now_or_never().is_some());
        let _last = beginnings.of("c").await;
        assert_eq!(beginnings.sessions.lock().unwrap().len(), 1);
    }
}
