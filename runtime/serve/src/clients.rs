//! Limits of single clients, and a line for each decision about them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolcell_http::Token;

use crate::answer::{Failure, excerpt};
use crate::room::{MAX_CLIENT_MESSAGES, MAX_UNREAD, Room};

/// Maximum number of requests and streams of one client in progress. Beyond it the status is 429.
pub const MAX_REQUESTS: usize = 1_536;

/// Time in which [`ClientLimits::requests`] are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Limits of a client; `None` means unlimited, up to the limits of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Agents that it may use.
    pub agents: Option<Vec<String>>,
    /// Requests in a minute, including the beginnings of streams.
    pub requests: Option<u64>,
    /// Turns at one time.
    pub turns: Option<usize>,
}

impl ClientLimits {
    /// True if the client may use an agent.
    pub fn allows(&self, agent: &str) -> bool {
        let agents = self.agents.as_ref();
        agents.is_none_or(|agents| agents.iter().any(|allowed| allowed == agent))
    }
}

/// Client with a token.
pub struct Client {
    /// Name, by which its sessions are its own; empty for the user of the server.
    pub name: String,
    /// Its token.
    pub token: Token,
    /// Its limits.
    pub limits: ClientLimits,
}

/// Decision about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The code of the page's link was right or wrong.
    Link,
    /// A request has no valid token, is for another host or of another origin, or wants a session or an agent that is not the
    /// client's.
    Access,
    /// A request is beyond a limit of the client.
    Limit,
    /// A turn begins.
    Turn,
    /// A question about a call is answered.
    Answer,
    /// A session is deleted.
    Delete,
    /// Changes in a scratch directory are committed or discarded.
    Scratch,
}

/// Maximum length of the details of a line, in characters: they can have text of the client, which must not fill the audit log.
const MAX_DETAIL: usize = 300;

/// Line of the audit log.
#[derive(Debug, Clone, Serialize)]
pub struct AuditLine {
    /// Milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// Name of the client; `None` if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Subject of the decision.
    pub decision: Decision,
    /// True if the client got what it wanted.
    pub is_allowed: bool,
    /// Session, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Details, such as the tool and the choice of an answer.
    pub detail: String,
}

impl AuditLine {
    pub(crate) fn new(
        client: Option<&str>,
        decision: Decision,
        is_allowed: bool,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            at_ms: crate::live::now_ms(),
            client: client.map(name_of),
            decision,
            is_allowed,
            session: None,
            detail: excerpt(&detail.into(), MAX_DETAIL),
        }
    }

    pub(crate) fn of(mut self, session: &str) -> Self {
        self.session = Some(session.to_owned());
        self
    }
}

/// Name of a client as it is shown: the user of the server is `page`.
pub(crate) fn name_of(owner: &str) -> String {
    if owner.is_empty() { "page" } else { owner }.to_owned()
}

/// Maximum size of the bodies of a client that are read and not handled, in bytes: two of the largest ones. Beyond it the status
/// is 429.
pub(crate) const MAX_BODIES: usize = 2 * MAX_MESSAGE_BODY;

/// Maximum size of a body with a message, in bytes: attachments of 20 MiB in Base64, and text.
pub(crate) const MAX_MESSAGE_BODY: usize = 32 << 20;

/// Client with what it uses.
pub(crate) struct ClientState {
    pub(crate) limits: ClientLimits,
    /// Room for what it does not read.
    pub(crate) room: Room,
    /// Room for its bodies that are read and not handled.
    pub(crate) bodies: Arc<Semaphore>,
    /// Room for the messages of its turns.
    pub(crate) messages: Room,
    requests: Arc<Semaphore>,
    turns: Option<Arc<Semaphore>>,
    minute: Mutex<Minute>,
}

/// Requests since a time.
struct Minute {
    since: Instant,
    count: u64,
}

impl ClientState {
    pub(crate) fn new(limits: ClientLimits) -> Arc<Self> {
        let turns = limits.turns.map(|turns| Arc::new(Semaphore::new(turns)));
        let minute = Minute {
            since: Instant::now(),
            count: 0,
        };
        Arc::new(Self {
            limits,
            room: Room::new(MAX_UNREAD),
            bodies: Arc::new(Semaphore::new(MAX_BODIES)),
            messages: Room::new(MAX_CLIENT_MESSAGES),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            turns,
            minute: Mutex::new(minute),
        })
    }

    /// Takes a place for a request.
    pub(crate) fn request(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.count(Instant::now())?;
        let place = self.requests.clone().try_acquire_owned();
        place.map_err(|_| {
            let message = format!("{MAX_REQUESTS} requests are not answered yet; wait for one");
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
        })
    }

    /// Counts a request.
    pub(crate) fn count(&self, now: Instant) -> Result<(), Failure> {
        let Some(most) = self.limits.requests else {
            return Ok(());
        };
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(minute.since);
        if passed >= MINUTE {
            *minute = Minute { since: now, count: 0 };
        }
        if minute.count >= most {
            let rest = MINUTE.saturating_sub(passed);
            let message = format!("the client has made its {most} requests of this minute");
            return Err(
                Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
                    .retry_after(rest.as_secs() + 1),
            );
        }
        minute.count += 1;
        Ok(())
    }

    /// Takes a place for a turn; `None` if the client has no limit.
    pub(crate) fn turn(&self) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        let (Some(turns), Some(most)) = (&self.turns, self.limits.turns) else {
            return Ok(None);
        };
        let place = turns.clone().try_acquire_owned();
        place.map(Some).map_err(|_| {
            let message = format!(
                "the client has a maximum of {most} turns at one time, which are running; wait for one"
            );
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(limits: ClientLimits) -> Arc<ClientState> {
        ClientState::new(limits)
    }

    #[test]
    fn bodies_of_a_client_take_no_room_of_others() {
        let (one, other) = (limited(ClientLimits::default()), limited(ClientLimits::default()));
        let take = |state: &ClientState, bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap();
            state.bodies.clone().try_acquire_many_owned(bytes)
        };
        let held = take(&one, MAX_BODIES).unwrap();
        assert!(take(&one, 1).is_err());
        assert!(take(&other, MAX_MESSAGE_BODY).is_ok());
        drop(held);
        assert!(take(&one, MAX_BODIES).is_ok());
    }

    #[test]
    fn requests_of_a_minute_are_counted_by_client() {
        let limits = ClientLimits {
            requests: Some(2),
            ..ClientLimits::default()
        };
        let (one, other) = (limited(limits.clone()), limited(limits));
        let begin = Instant::now();
        assert!(one.count(begin).is_ok() && one.count(begin).is_ok());
        let refused = one.count(begin + Duration::from_secs(20)).unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(
            refused
                .retry_after
                .is_some_and(|seconds| (1..=61).contains(&seconds))
        );
        assert!(other.count(begin).is_ok());
        assert!(one.count(begin + MINUTE + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn requests_in_progress_are_limited_for_each_client() {
        let (one, other) = (limited(ClientLimits::default()), limited(ClientLimits::default()));
        let places: Vec<_> = (0..MAX_REQUESTS).map(|_| one.request().unwrap()).collect();
        assert_eq!(one.request().unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        assert!(other.request().is_ok());
        drop(places);
        assert!(one.request().is_ok());
    }

    #[test]
    fn turns_at_one_time_are_limited() {
        let client = limited(ClientLimits {
            turns: Some(1),
            ..ClientLimits::default()
        });
        let place = client.turn().unwrap();
        assert!(place.is_some() && client.turn().is_err());
        drop(place);
        assert!(client.turn().is_ok());
        assert!(limited(ClientLimits::default()).turn().unwrap().is_none());
    }

    #[test]
    fn details_of_the_audit_log_are_short_and_on_one_line() {
        let detail = "x\u{202e}\n".repeat(1 << 20);
        let line = AuditLine::new(Some("ada"), Decision::Turn, false, detail);
        assert!(line.detail.starts_with("x\\u{202e}\\nx") && line.detail.len() < 4_000);
        assert_eq!(
            AuditLine::new(None, Decision::Link, true, "a `b`: c's").detail,
            "a `b`: c's"
        );
    }

    #[test]
    fn agents_are_those_of_the_client() {
        let limits = ClientLimits {
            agents: Some(vec!["writer".into()]),
            ..ClientLimits::default()
        };
        assert!(limits.allows("writer") && !limits.allows("default"));
        assert!(ClientLimits::default().allows("default"));
    }
}
