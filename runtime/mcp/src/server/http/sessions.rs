//! Sessions of the versions before 2026-07-28, of one client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::server::session::SessionState;

/// Maximum number of sessions of a client. The one that was not used for the longest time ends for a further one.
pub const MAX_SESSIONS: usize = 256;

/// Maximum time without a request, after which a session ends.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// Sessions of a client, by their identifiers.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Entry>>);

struct Entry {
    session: OpenSession,
    used: Instant,
}

/// Session in the use of a request.
#[derive(Clone)]
pub(crate) struct OpenSession {
    pub(crate) state: Arc<SessionState>,
    /// Cancelled when the client ends the session.
    pub(crate) ended: CancellationToken,
}

impl Entry {
    /// True if a request is in progress: each holds the state.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.session.state) > 1
    }

    fn is_over(&self) -> bool {
        !self.is_used() && self.used.elapsed() >= SESSION_IDLE
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session and returns its identifier, which cannot be guessed.
    pub(crate) fn add(&self, session: OpenSession) -> String {
        let mut sessions = self.lock();
        sessions.retain(|_, entry| !entry.is_over());
        if sessions.len() >= MAX_SESSIONS {
            // One in use ends only if all are.
            let oldest = sessions
                .iter()
                .min_by_key(|(_, entry)| (entry.is_used(), entry.used));
            if let Some((oldest, entry)) = oldest.map(|(id, entry)| (id.clone(), entry)) {
                entry.session.ended.cancel();
                sessions.remove(&oldest);
            }
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        let used = Instant::now();
        sessions.insert(id.clone(), Entry { session, used });
        id
    }

    /// Returns a session, which is used now.
    pub(crate) fn get(&self, id: &str) -> Option<OpenSession> {
        let mut sessions = self.lock();
        if sessions.get(id)?.is_over() {
            sessions.remove(id);
            return None;
        }
        let entry = sessions.get_mut(id)?;
        entry.used = Instant::now();
        Some(entry.session.clone())
    }

    /// Ends a session and its calls. Returns false if there is none.
    pub(crate) fn remove(&self, id: &str) -> bool {
        let removed = self.lock().remove(id);
        if let Some(entry) = &removed {
            entry.session.ended.cancel();
        }
        removed.is_some()
    }

    /// Number of sessions.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn session() -> OpenSession {
        OpenSession {
            state: SessionState::new(Arc::default(), Arc::new(Semaphore::new(1)), false),
            ended: CancellationToken::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn session_not_used_for_the_longest_ends_for_another() {
        let sessions = Sessions::default();
        let mut ids = Vec::new();
        for _ in 0..MAX_SESSIONS {
            ids.push(sessions.add(session()));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(sessions.get(&ids[0]).is_some());
        let in_use = sessions.get(&ids[1]).unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        for id in &ids[3..] {
            sessions.get(id);
        }
        sessions.add(session());
        assert!(sessions.get(&ids[2]).is_none());
        assert!(!in_use.ended.is_cancelled());
        for _ in 0..10_000 {
            sessions.add(session());
        }
        assert_eq!(sessions.count(), MAX_SESSIONS);
        assert!(sessions.get(&ids[1]).is_some(), "a session in use stays");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_session_ends_after_its_time() {
        let sessions = Sessions::default();
        let (first, second) = (sessions.add(session()), sessions.add(session()));
        tokio::time::advance(SESSION_IDLE - Duration::from_millis(1)).await;
        let in_use = sessions.get(&first).unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(sessions.get(&second).is_none());
        tokio::time::advance(SESSION_IDLE).await;
        assert!(sessions.get(&first).is_some());
        drop(in_use);
        tokio::time::advance(SESSION_IDLE).await;
        sessions.add(session());
        assert_eq!(sessions.count(), 1);
    }

    #[test]
    fn removed_session_is_told_to_its_requests() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let sessions = Sessions::default();
        let id = sessions.add(session());
        let open = sessions.get(&id).unwrap();
        assert!(sessions.remove(&id) && !sessions.remove(&id));
        assert!(open.ended.is_cancelled());
    }
}
