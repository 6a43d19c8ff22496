//! Client of the server, and what all of its requests share.

use std::sync::Arc;

use hyper::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;

use super::KnownBy;
use super::headers::{SESSION, VERSION};
use super::refused::{Refused, no_session};
use super::sessions::{OpenSession, Sessions};
use crate::message::{Incoming, RpcError, excerpt};
use crate::server::Server;
use crate::server::call::MAX_RUNNING;
use crate::server::in_flight::{Load, MAX_IN_FLIGHT_BYTES};
use crate::server::outbox::{MAX_UNREAD_BYTES, SharedRoom};
use crate::server::session::SessionState;

/// Maximum number of requests of a client that are not answered, including streams. Beyond it the status is 429.
pub const MAX_REQUESTS: usize = 128;

/// Maximum size of the messages to all clients that are not written yet, in bytes. Each client has an equal share of it, or
/// [`MAX_UNREAD_BYTES`] if that is more; a message of more than half of the share counts as half. Beyond its share, results
/// wait with their calls.
pub const MAX_HTTP_UNREAD_BYTES: usize = 128 << 20;

/// Maximum number of calls of all clients that run at a time. Each client has an equal share of it, at least one and at most
/// [`MAX_RUNNING`], so that no others take the cells that a client needs. Further calls wait.
pub const MAX_HTTP_RUNNING: usize = 64;

/// Size of a message beyond which it is parsed on a thread of its own, in bytes: a worker parses this much in about a
/// millisecond.
const PARSED_ON_WORKER: usize = 64 << 10;

/// Client, and what all of its requests share.
pub(super) struct Client {
    pub(super) known_by: KnownBy,
    pub(super) server: Server,
    pub(super) sessions: Sessions,
    load: Arc<Load>,
    running: Arc<Semaphore>,
    pub(super) requests: Arc<Semaphore>,
    /// Room of the messages that are not written.
    pub(super) unread: SharedRoom,
    /// Memory of the messages that are not handled yet: of those that are read, and of parsed ones whose answers have no room.
    pub(super) messages: Arc<Semaphore>,
    /// Permit to parse a large message: a client occupies one thread with them.
    parsing: Semaphore,
}

impl Client {
    /// Creates one of `all` clients.
    pub(super) fn new(known_by: KnownBy, server: Server, all: usize) -> Self {
        Self {
            known_by,
            server,
            sessions: Sessions::default(),
            load: Arc::default(),
            running: Arc::new(Semaphore::new(running_of(all))),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            unread: SharedRoom::new(unread_of(all)),
            messages: Arc::new(Semaphore::new(MAX_IN_FLIGHT_BYTES)),
            parsing: Semaphore::new(1),
        }
    }

    pub(super) fn state(&self, is_stateless: bool) -> Arc<SessionState> {
        SessionState::new(self.load.clone(), self.running.clone(), is_stateless)
    }

    /// Finds the session that a request names, which is used now.
    ///
    /// # Errors
    /// Fails if there is none, or if it has another version than the request states.
    pub(super) fn session(&self, headers: &HeaderMap) -> Result<OpenSession, Refused> {
        let id = toolcell_http::only(headers, SESSION);
        let session = id.and_then(|id| self.sessions.get(id)).ok_or_else(no_session)?;
        if let (Some(stated), Some(version)) =
            (toolcell_http::only(headers, VERSION), session.state.version())
            && stated != version.as_str()
        {
            let reason = format!(
                "the session has protocol version {}, not `{}`",
                version.as_str(),
                excerpt(stated)
            );
            return Err(Refused::new(StatusCode::BAD_REQUEST, &reason));
        }
        Ok(session)
    }

    /// State of a request that belongs to no session, and states no version.
    pub(super) fn plain_state(&self) -> Arc<SessionState> {
        let state = self.state(false);
        state.begin_plain();
        state
    }

    /// Parses a body with `parse`. Large ones leave the worker to others meanwhile.
    pub(super) async fn parse(&self, body: Vec<u8>, parse: fn(&[u8]) -> Incoming) -> Incoming {
        if body.len() <= PARSED_ON_WORKER {
            return parse(&body);
        }
        let _turn = self.parsing.acquire().await;
        let parsed = tokio::task::spawn_blocking(move || parse(&body)).await;
        parsed.unwrap_or_else(|_| Incoming::Invalid(None, RpcError::internal()))
    }

    /// True if nothing of the client is held, which is one of `all`.
    #[cfg(test)]
    pub(super) fn is_idle(&self, all: usize) -> bool {
        self.unread.free.available_permits() == unread_of(all)
            && self.messages.available_permits() == MAX_IN_FLIGHT_BYTES
    }
}

/// Room for the messages of each of some clients that are not written, in bytes.
fn unread_of(clients: usize) -> usize {
    (MAX_HTTP_UNREAD_BYTES / clients.max(1)).max(MAX_UNREAD_BYTES)
}

/// Number of calls of each of some clients that run at a time.
fn running_of(clients: usize) -> usize {
    (MAX_HTTP_RUNNING / clients.max(1)).clamp(1, MAX_RUNNING)
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::server::testing::{Seen, server_of, tools};

    #[test]
    fn room_for_messages_is_divided_among_clients() {
        for (clients, share) in [
            (1, 128 << 20),
            (2, 64 << 20),
            (8, 16 << 20),
            (9, 16 << 20),
            (64, 16 << 20),
        ] {
            assert_eq!(unread_of(clients), share, "{clients}");
        }
    }

    #[test]
    fn running_calls_are_divided_among_clients() {
        for (clients, share) in [(1, 32), (2, 32), (3, 21), (4, 16), (33, 1), (64, 1), (65, 1)] {
            assert_eq!(running_of(clients), share, "{clients}");
        }
    }

    #[tokio::test]
    async fn large_message_is_parsed_off_the_worker() {
        let gate = Arc::new(Semaphore::new(0));
        let server = server_of(tools(&gate), Arc::new(Seen::default()));
        let client = Client::new(KnownBy::Nothing, server, 1);
        for (length, on_worker) in [(PARSED_ON_WORKER, true), (PARSED_ON_WORKER + 1, false)] {
            let mut message = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_vec();
            message.resize(length, b' ');
            // The thread of this client is in use.
            let other = client.parsing.acquire().await;
            let mut parsed = std::pin::pin!(client.parse(message, crate::message::parse));
            let first = futures_util::poll!(parsed.as_mut());
            assert_eq!(first.is_ready(), on_worker, "{length}");
            drop(other);
            let message = match first {
                Poll::Ready(message) => message,
                Poll::Pending => parsed.await,
            };
            assert!(matches!(message, Incoming::Request(request) if request.method == "ping"));
        }
    }
}
