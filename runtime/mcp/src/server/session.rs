//! Session of a client: what was negotiated, and what is in progress.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::server::call::Severity;
use crate::server::connection::MAX_BATCHES;
use crate::server::in_flight::{InFlight, Load};
use crate::server::listeners::Followed;
use crate::server::question::Asked;
use crate::version::Version;

/// Session of a client, or a request without one. It outlives its connections over HTTP.
pub(crate) struct SessionState {
    /// Result of `initialize`; `None` before, and for clients that state the version in each request.
    pub(super) session: Mutex<Option<Session>>,
    /// True if each request states its version.
    pub(super) is_stateless: bool,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) running: Arc<Semaphore>,
    pub(super) batches: Arc<Semaphore>,
    /// Questions that wait for an answer of the client.
    pub(crate) asked: Asked,
    /// Resources of which the client is told when they change.
    pub(crate) followed: Followed,
    /// Permit of the stream for notifications that belong to no request: a session has one.
    pub(crate) stream: Arc<Semaphore>,
}

/// Result of the negotiation with a client of a version before 2026-07-28.
#[derive(Clone, Copy)]
pub(super) struct Session {
    pub(super) version: Version,
    pub(super) log: Option<Severity>,
    /// True if the client can ask its user.
    pub(super) asks: bool,
}

impl SessionState {
    /// Creates the state of a session whose calls count in `load` and need a permit of `running`.
    pub(crate) fn new(load: Arc<Load>, running: Arc<Semaphore>, is_stateless: bool) -> Arc<Self> {
        Arc::new(Self {
            session: Mutex::default(),
            is_stateless,
            in_flight: Arc::new(InFlight::within(load)),
            running,
            batches: Arc::new(Semaphore::new(MAX_BATCHES)),
            asked: Asked::default(),
            followed: Followed::default(),
            stream: Arc::new(Semaphore::new(1)),
        })
    }

    /// Version of the session; `None` before `initialize`.
    pub(crate) fn version(&self) -> Option<Version> {
        self.session().map(|session| session.version)
    }

    /// Begins a session without a negotiation, for requests outside of the protocol.
    pub(crate) fn begin_plain(&self) {
        self.set(Session {
            version: Version::NEWEST_WITH_SESSION,
            log: None,
            asks: false,
        });
    }

    pub(super) fn session(&self) -> Option<Session> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, session: Session) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }
}
