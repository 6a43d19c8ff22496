//! Streamable HTTP: the server for clients that connect to an address.
//!
//! A request in version 2026-07-28 stands alone; older versions begin a session, whose identifier is in a header. Each
//! `POST` is an exchange of messages like that on a stream, and ends with it: the calls of a client that closes its
//! connection are cancelled. A client is known by its token, and the tools, the budget and the data flow of one
//! [`Server`] are its own.

mod answer;
mod client;
mod credential;
mod endpoint;
mod headers;
mod metrics;
mod peer;
mod plain;
mod request_body;
mod sessions;
mod stall;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Server;
use endpoint::Endpoint;
use peer::{Peer, Strangers};
use stall::Stalling;

pub use client::{MAX_HTTP_RUNNING, MAX_HTTP_UNREAD_BYTES, MAX_REQUESTS};
pub use credential::{MIN_TOKEN_BYTES, Token, WeakToken};
pub use endpoint::PATH;
pub use metrics::Metrics;
pub use request_body::BODY_TIME;
pub use sessions::{MAX_SESSIONS, SESSION_IDLE};
pub use stall::MAX_WRITE_STALL;

/// Maximum number of connections. For a further one, the oldest ends that has not sent a request of a client; if there is none,
/// it is answered with status 503.
pub const MAX_CONNECTIONS: usize = 256;

/// Maximum size of the request line and the headers of a request, in bytes; beyond it the status is 431.
pub const MAX_HEADER_BYTES: usize = 16 << 10;

/// Maximum number of headers of a request; beyond it the status is 431.
pub const MAX_HEADERS: usize = 64;

/// Maximum time until the headers of a request are complete, also from the end of the one before. The connection is
/// closed then.
pub const HEADER_TIME: Duration = Duration::from_secs(30);

/// Maximum time for requests to be answered once the server stops; then they are cancelled.
pub const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Maximum time until a connection that makes room has ended.
const EVICTION_TIME: Duration = Duration::from_secs(1);

/// Answer to a connection beyond [`MAX_CONNECTIONS`].
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Clients of a server over HTTP.
pub enum Access {
    /// All requests are those of one client. Only for an address that no other machine reaches.
    Open(Server),
    /// Clients by their tokens, each with a server of its own.
    Tokens(Vec<(Token, Server)>),
}

/// Ways in which a server over HTTP is reached, beside its address, `localhost` and [`PATH`].
#[derive(Debug, Clone, Default)]
pub struct Reached {
    /// Hosts, with the port if it is not the default of the scheme.
    pub hosts: Vec<String>,
    /// Origins of web pages, such as `https://example.com`.
    pub origins: Vec<String>,
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
    /// cancelled after [`DRAIN_TIME`].
    ///
    /// # Errors
    /// Fails if other machines reach the address and no token is required.
    pub async fn serve(&self, listener: TcpListener, stop: &CancellationToken) -> std::io::Result<()> {
        if self.0.is_open() && !listener.local_addr()?.ip().is_loopback() {
            let reason = "an address that other machines reach needs tokens";
            return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, reason));
        }
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let strangers = Strangers::default();
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let Ok((mut stream, _)) = accepted else {
                // Such as too many open files: it passes when connections end.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let mut place = places.clone().try_acquire_owned().ok();
            if place.is_none() && strangers.end_oldest() {
                let freed = tokio::time::timeout(EVICTION_TIME, places.clone().acquire_owned()).await;
                place = freed.ok().and_then(Result::ok);
            }
            match place {
                Some(place) => {
                    let (server, stop) = (Self(self.0.clone()), stop.clone());
                    let peer = strangers.add();
                    connections.spawn(async move {
                        if let Ok(address) = stream.local_addr() {
                            let _ = stream.set_nodelay(true);
                            let watched = rustix::io::fcntl_dupfd_cloexec(&stream, 0);
                            tokio::select! {
                                () = server.serve_connection(stream, address, &stop, &peer) => {}
                                // Closed with the connection, not before.
                                never = peer.watch(watched.map_err(Into::into)) => match never {}
                            }
                        }
                        peer.end();
                        drop(place);
                    });
                }
                None => {
                    // It fits into the buffer of the system; a client that has not sent its request may not see it.
                    let _ = tokio::time::timeout(Duration::from_millis(10), stream.write_all(TOO_MANY)).await;
                }
            }
        }
        drop(listener);
        self.0.end_listening();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIME, all).await.is_err() {
            self.0.cancel();
            connections.shutdown().await;
        }
        self.0.ended().await;
        Ok(())
    }

    /// Serves a connection to `address` until the client closes it, or its request is answered after `stop`.
    pub(crate) async fn serve_connection<I>(
        &self,
        stream: I,
        address: SocketAddr,
        stop: &CancellationToken,
        peer: &Peer,
    ) where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        self.0.metrics().connected(1);
        let service = service_fn(|request| {
            let endpoint = self.0.clone();
            let is_stopping = stop.is_cancelled();
            async move {
                Ok::<_, std::convert::Infallible>(endpoint.respond(request, address, is_stopping, peer).await)
            }
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .max_header_size(MAX_HEADER_BYTES)
            .max_headers(MAX_HEADERS);
        let mut connection =
            std::pin::pin!(builder.serve_connection(TokioIo::new(Stalling::new(stream)), service));
        // An error is one of the client: a closed connection, or no HTTP.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = peer.ended() => {}
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
        self.0.metrics().connected(-1);
    }
}
