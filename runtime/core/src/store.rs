//! Storage of sessions. A session is an append-only journal of events.

use serde::{Deserialize, Serialize};

use crate::provider::Usage;
use crate::{BoxFuture, Event, SharedError};

/// A store of sessions.
///
/// A journal contains every event that is not transient ([`Event::is_transient`]), in order. Events acknowledged by
/// [`SessionStore::append`] survive a crash of the process and of the machine.
pub trait SessionStore: Send + Sync {
    /// Appends events to a journal atomically and returns its new length. `at` is the length that the caller knows; 0
    /// creates the session. Two writers of one session, in one process or in several, cannot interleave their events:
    /// the second one gets an error.
    ///
    /// # Errors
    /// [`StoreError::Exists`] for a new session whose name is taken, [`StoreError::InUse`] if another writer has
    /// appended to it, or an error of the store.
    fn append<'a>(
        &'a self,
        session: &'a str,
        at: u64,
        events: Vec<Event>,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Returns all events of a session, including those shared with the session it was forked from.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or an error of the store.
    fn load<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>>;

    /// Returns all sessions, most recently used first.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SessionInfo>, StoreError>>;

    /// Creates a session that shares the first `events` events of another one, or all of them. Nothing is copied.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Exists`], or an error of the store.
    fn fork<'a>(
        &'a self,
        from: &'a str,
        to: &'a str,
        events: Option<u64>,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Gives a session a name, or takes it away. Names are unique.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NameTaken`], or an error of the store.
    fn rename<'a>(&'a self, session: &'a str, name: Option<&'a str>)
    -> BoxFuture<'a, Result<(), StoreError>>;

    /// Removes a session. Events shared with forks are kept until the forks are removed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or an error of the store.
    fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Creates a session without events, for an agent and an owner; its first event is appended at 0.
    ///
    /// # Errors
    /// [`StoreError::Exists`], or an error of the store, such as one that keeps no owners.
    fn create<'a>(
        &'a self,
        session: &'a str,
        agent: &'a str,
        owner: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let _ = (agent, owner);
        let error = format!("the store cannot create session `{}`", session.escape_debug());
        Box::pin(std::future::ready(Err(StoreError::failed(error))))
    }

    /// Returns a session, without its journal.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or an error of the store.
    fn info<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<SessionInfo, StoreError>> {
        Box::pin(async move {
            let found = self.list().await?.into_iter().find(|info| info.id == session);
            found.ok_or_else(|| StoreError::NotFound {
                id: session.to_owned(),
            })
        })
    }

    /// Returns at most `most` entries of a journal after the first `after`, with at most about `max_bytes` of JSON, and at least
    /// one if there is one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or an error of the store.
    fn entries<'a>(
        &'a self,
        session: &'a str,
        after: u64,
        most: usize,
        max_bytes: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        Box::pin(async move {
            let mut entries = Vec::new();
            let mut bytes = 0;
            let skipped = usize::try_from(after).unwrap_or(usize::MAX);
            for (number, event) in (0_u64..).zip(self.load(session).await?).skip(skipped).take(most) {
                let json = serde_json::to_string(&event).map_err(StoreError::failed)?;
                bytes += json.len();
                if bytes > max_bytes && !entries.is_empty() {
                    break;
                }
                entries.push(Entry {
                    seq: number + 1,
                    at_ms: None,
                    json,
                });
            }
            Ok(entries)
        })
    }

    /// Exports a session as JSON lines, one [`Event`] a line.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], or an error of the store.
    fn export<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<String, StoreError>> {
        Box::pin(async move {
            let mut lines = String::new();
            for event in self.load(session).await? {
                let line = serde_json::to_string(&event).map_err(StoreError::failed)?;
                lines.push_str(&line);
                lines.push('\n');
            }
            Ok(lines)
        })
    }

    /// Stores the full text of a result that was truncated for the model.
    ///
    /// # Errors
    /// If the text cannot be stored.
    fn keep_result<'a>(
        &'a self,
        session: &'a str,
        call: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns the full text of a result, or `None` if it was not stored.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn kept_result<'a>(
        &'a self,
        session: &'a str,
        call: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>>;
}

/// Entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of the entry, from 1.
    pub seq: u64,
    /// Time at which it was stored, in milliseconds since 1970-01-01 UTC; `None` for entries of versions that did not record it.
    pub at_ms: Option<u64>,
    /// The event as JSON.
    pub json: String,
}

/// Summary of a session, as listed by [`SessionStore::list`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Identifier of the session.
    pub id: String,
    /// Time of creation, in milliseconds since 1970-01-01 UTC.
    pub created_ms: u64,
    /// Time of the last event, in milliseconds since 1970-01-01 UTC.
    pub used_ms: u64,
    /// Number of events.
    pub events: u64,
    /// Beginning of the first message.
    pub title: String,
    /// Name given by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of messages in the journal: those of the user, and answers of the model.
    #[serde(default)]
    pub messages: u64,
    /// Size of its events and stored results, in bytes, without those shared with the session it was forked from.
    #[serde(default)]
    pub bytes: u64,
    /// Tokens of its finished turns, without those of the session it was forked from.
    #[serde(default)]
    pub usage: Usage,
    /// Cost of those turns in millionths of the currency unit of the prices; `None` if none of them had prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Session from which this one was forked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Agent with which it was created, if [`SessionStore::create`] created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Name of the client to which it belongs; `None` for those of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// Error of a session store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The session does not exist.
    #[error("session `{}` does not exist", id.escape_debug())]
    NotFound {
        /// Requested identifier.
        id: String,
    },
    /// A session of this name exists already.
    #[error("session `{}` already exists", id.escape_debug())]
    Exists {
        /// Identifier of the session.
        id: String,
    },
    /// Another session has this name.
    #[error("another session has the name `{}`", name.escape_debug())]
    NameTaken {
        /// Requested name.
        name: String,
    },
    /// Another writer has appended to the session, in this process or in another one.
    #[error("session `{}` was changed by another process since it was loaded", id.escape_debug())]
    InUse {
        /// Identifier of the session.
        id: String,
    },
    /// An entry of the journal is unreadable, for example because a newer version wrote it.
    #[error("entry {number} of session `{}` cannot be read", id.escape_debug())]
    Unreadable {
        /// Identifier of the session.
        id: String,
        /// Number of the entry, from 0.
        number: u64,
        /// Reason for the failure.
        source: SharedError,
    },
    /// The store failed.
    #[error("the session store failed")]
    Failed {
        /// Error of the storage.
        source: SharedError,
    },
}

impl StoreError {
    /// Creates [`Self::Failed`] from its cause.
    pub fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed {
            source: SharedError::from(cause.into()),
        }
    }
}
