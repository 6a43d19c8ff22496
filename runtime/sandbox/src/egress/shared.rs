//! Egress of a tool, shared by all its calls, and the requests that it approves.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use tokio::sync::Semaphore;
use toolcell_core::denial::HttpDenial;
use toolcell_core::policy::{HttpGrant, Limits};
use toolcell_core::{Grant, Redactor};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::address::is_public_address;
use super::network::Transport;
use super::redirect::{Hop, Redirects};
use super::rules::{Rules, Scope};
use super::secrets::{BoundSecrets, Treatment};
use super::target::{Host, Target};
use crate::cell::memory::{OutOfMemory, Reservation};
use crate::cell::receipt::ReceiptRecorder;

/// Maximum number of concurrent connections of one tool, over all its calls; the seventh request waits. Browsers and
/// edge runtimes have settled on six per host.
const CONNECTIONS: usize = 6;

/// Maximum number of characters of a path shown in a denial.
const SHOWN_PATH: usize = 128;

/// Maximum length of the grant proposed for a denied request, in bytes. A path of the guest is part of it where the user
/// limited grants to paths; nobody would copy a longer one.
const MAX_PROPOSAL: usize = 256;

/// Egress rules of a tool, shared by all its calls.
#[derive(Debug)]
pub(crate) struct Egress {
    pub(super) rules: Rules,
    pub(super) secrets: BoundSecrets,
    pub(super) requests_per_call: u32,
    pub(super) body_limit: u64,
    pub(super) transport: Transport,
    pub(super) timeouts: Timeouts,
    pub(super) connections: Arc<Semaphore>,
}

/// A request that may be sent if its addresses are in scope.
pub(super) struct ApprovedRequest {
    pub(super) egress: Arc<Egress>,
    pub(super) recorder: ReceiptRecorder,
    pub(super) redirects: Arc<Mutex<Redirects>>,
    pub(super) request: Request<WasiBody>,
    pub(super) target: Target,
    pub(super) scope: Scope,
    pub(super) hop: Hop,
    /// Treatment of the response if there are secrets.
    pub(super) treatment: Option<Treatment>,
    /// Memory of the request and its connection, until the response was read.
    pub(super) memory: Reservation,
}

impl Egress {
    pub(crate) fn new(
        grants: &[HttpGrant],
        limits: &Limits,
        secrets: BoundSecrets,
        transport: Transport,
    ) -> Self {
        Self {
            rules: Rules::new(grants),
            secrets,
            requests_per_call: limits.http_requests,
            body_limit: limits.http_body,
            transport,
            timeouts: Timeouts::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }

    /// Returns the egress restricted by these denials.
    #[must_use]
    pub(crate) fn denying(mut self, denials: &[HttpDenial]) -> Self {
        self.rules = self.rules.denying(denials);
        self
    }

    /// Returns the redactor for all output of the cell.
    pub(crate) fn redactor(&self) -> &Redactor {
        self.secrets.redactor()
    }

    /// Records a denied request, with the grant that would allow it. A server that redirects to an address that is not
    /// public must not have the user asked for that grant.
    pub(super) fn note_denial(
        &self,
        recorder: &ReceiptRecorder,
        method: &Method,
        target: &Target,
        private: bool,
        hop: Hop,
    ) {
        let grant = (self.rules.proposal(method.as_str(), target, private))
            .filter(|grant| hop == Hop::default() || !names_private(grant, target));
        let line = grant
            .map(|grant| grant.to_string())
            .filter(|line| line.len() <= MAX_PROPOSAL && self.redactor().text(line) == line.as_str());
        recorder.denial("http", self.shown(method, target), line);
    }

    /// Records a response that was withheld from the guest.
    pub(super) fn note_refusal(
        &self,
        recorder: &ReceiptRecorder,
        method: &Method,
        target: &Target,
        why: impl std::fmt::Display,
    ) {
        let shown = self.shown(method, target);
        let why = why.to_string();
        let why = self.redactor().text(&why);
        recorder.denial("http", format!("{shown} (the response was refused: {why})"), None);
    }

    /// Records a request that was refused by a denial.
    pub(super) fn note_denied_by(
        &self,
        recorder: &ReceiptRecorder,
        method: &Method,
        target: &Target,
        by: &str,
    ) {
        recorder.refusal("http", self.shown(method, target), by.to_owned());
    }

    /// Returns `true` if a request may be sent to an address to which its name resolves; records a refusal.
    pub(super) fn may_reach(
        &self,
        recorder: &ReceiptRecorder,
        method: &Method,
        target: &Target,
        ip: IpAddr,
    ) -> bool {
        let denied = self.rules.denied_address(method.as_str(), target, ip);
        if let Some(by) = denied {
            self.note_denied_by(recorder, method, target, by);
        }
        denied.is_none()
    }

    /// Returns a request for display, without its query, which may contain private data. Secrets are redacted before
    /// the path is truncated, because half a secret would not be found afterwards.
    pub(super) fn shown(&self, method: &Method, target: &Target) -> String {
        let path = self.redactor().text(&target.path);
        let path: String = path.chars().take(SHOWN_PATH).collect();
        format!("{method} {}://{}{path}", target.scheme, target.authority())
    }
}

/// Returns `true` if a grant reaches more than public addresses.
fn names_private(grant: &Grant, target: &Target) -> bool {
    let is_private = matches!(&target.host, Host::Ip(ip) if !is_public_address(*ip));
    is_private || matches!(grant, Grant::Http(HttpGrant { private: true, .. }))
}

/// Timeouts of the phases of an exchange. A guest may request shorter ones; the deadline of the call overrides all of
/// them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// From waiting for a free connection to the end of the TLS handshake.
    pub(crate) connect: Duration,
    /// From the first byte sent to the end of the response headers.
    pub(crate) first_byte: Duration,
    /// Between two pieces of the response body.
    pub(crate) between_bytes: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(60),
            between_bytes: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    pub(super) fn at_most(self, asked: RequestOptions) -> Self {
        let shorter = |own: Duration, asked: Option<Duration>| asked.map_or(own, |asked| own.min(asked));
        Self {
            connect: shorter(self.connect, asked.connect_timeout),
            first_byte: shorter(self.first_byte, asked.first_byte_timeout),
            between_bytes: shorter(self.between_bytes, asked.between_bytes_timeout),
        }
    }
}

/// Returns the error for exhausted memory; `wasi:http` has no specific code.
pub(super) fn no_memory(refusal: OutOfMemory) -> Error {
    Error::InternalError(Some(refusal.to_string()))
}

pub(super) fn lock(redirects: &Mutex<Redirects>) -> std::sync::MutexGuard<'_, Redirects> {
    redirects.lock().unwrap_or_else(PoisonError::into_inner)
}
