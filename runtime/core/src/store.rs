//! The fourth seam: where sessions are kept. A session is a journal of events that only grows.

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, Event};

/// Keeps sessions.
///
/// A journal holds every event that is not transient ([`Event::is_transient`]), in order. What [`SessionStore::append`]
/// has acknowledged survives a crash of the process and of the machine.
pub trait SessionStore: Send + Sync {
    /// Adds events at the end of a journal, all or none, and gives the number of events that it has then. `at` is the
    /// number of events that whoever writes knows of: 0 makes the session. Two that go on with one session, in one process
    /// or in several, cannot mix their events: the second one is refused.
    ///
    /// # Errors
    /// [`StoreError::Exists`] for a new session whose name is taken, [`StoreError::InUse`] when somebody else has added to
    /// it, or when the events are not kept.
    fn append<'a>(
        &'a self,
        session: &'a str,
        at: u64,
        events: Vec<Event>,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// All events of a session, with those that it shares with the one it was forked from.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or when they cannot be read.
    fn load<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>>;

    /// All sessions, the one used last first.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, StoreError>>;

    /// Makes a session that begins with the first `events` events of another one, or with all of them, and shares them:
    /// nothing is copied.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Exists`], or when it is not kept.
    fn fork<'a>(
        &'a self,
        from: &'a str,
        to: &'a str,
        events: Option<u64>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Removes a session. What forks of it share stays until they are removed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or when it could not be removed.
    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// A session as JSON lines (one [`Event`] a line), for other programs.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or when it cannot be read.
    fn export<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<String, StoreError>> {
        Box::pin(async move {
            let mut lines = String::new();
            for event in self.load(session).await? {
                let line = serde_json::to_string(&event).map_err(|error| StoreError::Failed {
                    message: error.to_string(),
                })?;
                lines.push_str(&line);
                lines.push('\n');
            }
            Ok(lines)
        })
    }

    /// Keeps the whole text of a result that was cut for the model.
    ///
    /// # Errors
    /// When it is not kept.
    fn keep_result<'a>(
        &'a self,
        session: &'a str,
        call: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The whole text of a result, if it was kept.
    ///
    /// # Errors
    /// When it cannot be read.
    fn kept_result<'a>(
        &'a self,
        session: &'a str,
        call: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>>;
}

/// What a list of sessions shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Identifier.
    pub id: String,
    /// When it was made, in milliseconds since 1970-01-01 UTC.
    pub created_ms: u64,
    /// When it was last added to, in milliseconds since 1970-01-01 UTC.
    pub used_ms: u64,
    /// Number of events.
    pub events: u64,
    /// First words of the first message.
    pub title: String,
    /// The session it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no session `{}`", id.escape_debug())]
    NotFound {
        /// The identifier that was asked for.
        id: String,
    },
    /// There is such a session already.
    #[error("there is a session `{}` already", id.escape_debug())]
    Exists {
        /// The identifier.
        id: String,
    },
    /// Somebody else has added to the session, in this process or in another one.
    #[error("somebody else has added to session `{}` since it was loaded", id.escape_debug())]
    InUse {
        /// The identifier.
        id: String,
    },
    /// An entry of the journal cannot be understood, perhaps because a newer version wrote it.
    #[error("entry {number} of session `{}` cannot be read: {message}", id.escape_debug())]
    Unreadable {
        /// The session.
        id: String,
        /// Number of the entry, from 0.
        number: u64,
        /// Why.
        message: String,
    },
    /// The store itself failed.
    #[error("the session store failed: {message}")]
    Failed {
        /// The chain of causes.
        message: String,
    },
}
