//! Streamable HTTP: the server for clients that connect to an address.
//!
//! A request in version 2026-07-28 stands alone; older versions begin a session, whose identifier is in a header. Each
//! `POST` is an exchange of messages like that on a stream, and ends with it: the calls of a client that closes its
//! connection are cancelled. A client is known by its token, and the tools, the budget and the data flow of one
//! [`Server`] are its own.

mod answer;
mod authentication;
mod client;
mod endpoint;
mod headers;
mod metrics;
mod plain;
mod refused;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolcell_http::Service;
use toolcell_http::access_token::Verifier;

use super::Server;
use endpoint::Endpoint;

pub use client::{MAX_HTTP_RUNNING, MAX_HTTP_UNREAD_BYTES, MAX_REQUESTS};
pub use endpoint::PATH;
pub use metrics::Metrics;
pub use sessions::{MAX_SESSIONS, SESSION_IDLE};
use toolcell_http::Token;

/// Maximum number of connections. For a further one, the oldest ends that has not sent a request of a client; if there is none,
/// it is answered with status 503.
pub const MAX_CONNECTIONS: usize = 256;

/// Clients of a server over HTTP.
pub enum Access {
    /// All requests are those of one client. Only for an address that no other machine reaches.
    Open(Server),
    /// Clients with a server of their own each, and the authorization server of those that are known by their subjects.
    Clients(Vec<(KnownBy, Server)>, Option<Authorization>),
}

impl Access {
    /// Returns the access of clients that are known by their bearer tokens.
    pub fn of_tokens(clients: Vec<(Token, Server)>) -> Self {
        let clients = clients.into_iter();
        let known = clients.map(|(token, server)| (KnownBy::Token(token), server));
        Self::Clients(known.collect(), None)
    }
}

/// Property by which a client is known.
#[derive(Debug, Clone)]
pub enum KnownBy {
    /// Every request is one of the client.
    Nothing,
    /// Its bearer token.
    Token(Token),
    /// The subject of its access tokens.
    Subject(String),
}

/// Authorization by access tokens (OAuth 2.1): the clients are the subjects that the user of the server has named.
pub struct Authorization {
    /// Checks the tokens.
    pub verifier: Verifier,
    /// Called with the subject of a valid token that belongs to no client, for the user of the server.
    pub on_unknown: Box<dyn Fn(&str) + Send + Sync>,
}

/// Ways in which a server over HTTP is reached, beside [`PATH`].
#[derive(Debug, Clone, Default)]
pub struct Reached {
    /// Hosts and origins.
    pub from: toolcell_http::Reached,
    /// Offers the plain endpoints `POST /tools/list` and `POST /tools/call` as well, without JSON-RPC.
    pub plain: bool,
}

/// Serves tools to clients over HTTP.
pub struct HttpServer(Arc<Endpoint>);

impl HttpServer {
    /// Creates a server. `metrics` observes the servers of `access`.
    pub fn new(access: Access, reached: Reached, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Endpoint::new(access, reached, metrics)))
    }

    /// Serves the connections of a listener until `stop` is cancelled. Requests in progress are answered then, and
    /// cancelled after [`toolcell_http::DRAIN_TIME`].
    ///
    /// # Errors
    /// Fails if other machines reach the address and no token is required.
    pub async fn serve(&self, listener: TcpListener, stop: &CancellationToken) -> std::io::Result<()> {
        toolcell_http::serve(self.service(), listener, MAX_CONNECTIONS, stop).await
    }

    /// Returns the server for a listener that others use as well.
    pub fn service(&self) -> Arc<dyn Service> {
        self.0.clone()
    }
}
