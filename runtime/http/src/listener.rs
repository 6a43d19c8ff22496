//! Connections of a listener, until it stops.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::peer::{Peer, Strangers};
use crate::stall::Stalling;

/// Maximum size of the request line and the headers of a request, in bytes; beyond it the status is 431.
pub const MAX_HEADER_BYTES: usize = 16 << 10;

/// Maximum number of headers of a request; beyond it the status is 431.
pub const MAX_HEADERS: usize = 64;

/// Maximum time until the headers of a request are complete, also from the end of the one before. The connection is
/// closed then.
pub const HEADER_TIME: Duration = Duration::from_secs(30);

/// Maximum time for requests to be answered once the server stops; then they are cancelled.
pub const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Maximum time until the answers to cancelled requests are sent.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Maximum time until a connection that makes room has ended.
const EVICTION_TIME: Duration = Duration::from_secs(1);

/// Answer to a connection beyond the maximum.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Body of a response.
pub type BoxBody = UnsyncBoxBody<Bytes, Infallible>;

/// Boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Connection on which a request came.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Address to which the client connected.
    pub address: SocketAddr,
    /// True once the server stops.
    pub is_stopping: bool,
    /// The connection.
    pub peer: &'a Peer,
}

/// Server behind the connections.
pub trait Service: Send + Sync + 'static {
    /// Answers a request.
    fn respond<'a>(
        &'a self,
        request: Request<Incoming>,
        origin: Origin<'a>,
    ) -> BoxFuture<'a, Response<BoxBody>>;

    /// Counts a connection that begins (1) or ends (-1).
    fn connected(&self, change: i64);

    /// True if a request needs no token.
    fn is_open(&self) -> bool;

    /// Ends streams that would not end by themselves. Called when the server stops.
    fn end_streams(&self);

    /// Cancels the requests in progress. Called if they do not end within [`DRAIN_TIME`]; their answers are sent within
    /// a second.
    fn cancel(&self);

    /// Waits until what the requests began has ended, for a bounded time.
    fn ended(&self) -> BoxFuture<'_, ()>;
}

/// Serves the connections of a listener until `stop` is cancelled, at most `max_connections` at a time. For a further one, the
/// oldest ends that has not sent a request of a client; if there is none, it is answered with status 503. Requests in
/// progress are answered after `stop`, and cancelled after [`DRAIN_TIME`].
///
/// # Errors
/// Fails if other machines reach the address and no token is required.
pub async fn serve(
    service: Arc<dyn Service>,
    listener: TcpListener,
    max_connections: usize,
    stop: &CancellationToken,
) -> std::io::Result<()> {
    if service.is_open() && !listener.local_addr()?.ip().is_loopback() {
        let reason = "an address that other machines reach needs tokens";
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, reason));
    }
    let places = Arc::new(Semaphore::new(max_connections));
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
                let (service, stop) = (service.clone(), stop.clone());
                let peer = strangers.add();
                connections.spawn(async move {
                    if let Ok(address) = stream.local_addr() {
                        let _ = stream.set_nodelay(true);
                        let watched = rustix::io::fcntl_dupfd_cloexec(&stream, 0);
                        tokio::select! {
                            () = serve_connection(&*service, stream, address, &stop, &peer) => {}
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
    service.end_streams();
    if !ended_within(DRAIN_TIME, &mut connections).await {
        service.cancel();
        // What is cancelled is still answered.
        ended_within(ANSWER_TIME, &mut connections).await;
        connections.shutdown().await;
    }
    service.ended().await;
    Ok(())
}

/// True if all connections end within a time.
async fn ended_within(time: Duration, connections: &mut JoinSet<()>) -> bool {
    let all = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(time, all).await.is_ok()
}

/// Serves a connection to `address` until the client closes it, or its request is answered after `stop`.
pub async fn serve_connection<I>(
    service: &dyn Service,
    stream: I,
    address: SocketAddr,
    stop: &CancellationToken,
    peer: &Peer,
) where
    I: AsyncRead + AsyncWrite + Unpin,
{
    service.connected(1);
    let answer = service_fn(|request| {
        let origin = Origin {
            address,
            is_stopping: stop.is_cancelled(),
            peer,
        };
        async move { Ok::<_, Infallible>(service.respond(request, origin).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_header_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    let mut connection =
        std::pin::pin!(builder.serve_connection(TokioIo::new(Stalling::new(stream)), answer));
    // An error is one of the client: a closed connection, or no HTTP.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = peer.ended() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
    service.connected(-1);
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Answers with the body of the request.
    struct Echo;

    impl Service for Echo {
        fn respond<'a>(
            &'a self,
            request: Request<Incoming>,
            _: Origin<'a>,
        ) -> BoxFuture<'a, Response<BoxBody>> {
            Box::pin(async {
                let body = request.into_body().collect().await.map(|body| body.to_bytes());
                Response::new(Full::new(body.unwrap_or_default()).boxed_unsync())
            })
        }

        fn connected(&self, _: i64) {}

        fn is_open(&self) -> bool {
            true
        }

        fn end_streams(&self) {}

        fn cancel(&self) {}

        fn ended(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    /// Returns what a connection answers to these bytes until it ends.
    async fn answered(sent: String) -> String {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let (stop, peer) = (CancellationToken::new(), Strangers::default().add());
        let address = ([127, 0, 0, 1], 1).into();
        let serving = serve_connection(&Echo, server, address, &stop, &peer);
        let asking = async {
            client.write_all(sent.as_bytes()).await.unwrap();
            let mut all = String::new();
            client.read_to_string(&mut all).await.unwrap();
            all
        };
        tokio::join!(serving, asking).1
    }

    /// A proxy before us could take what one header calls the body for a second request (RFC 9112, section 6.3).
    #[tokio::test]
    async fn body_with_two_lengths_ends_the_connection() {
        let second = "GET /hidden HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let ask = |headers: &str, body: &str| {
            answered(format!(
                "POST / HTTP/1.1\r\nhost: x\r\n{headers}\r\n{body}{second}"
            ))
        };
        let count = |answers: &str| answers.matches("HTTP/1.1 200").count();
        let (length, chunked) = ("content-length: 5\r\n", "transfer-encoding: chunked\r\n");
        // One length: the second request is one.
        assert_eq!(count(&ask(length, "hello").await), 2);
        assert_eq!(count(&ask(chunked, "2\r\nhi\r\n0\r\n\r\n").await), 2);
        // Both: the body has the coding, and what follows is not read.
        for both in [[length, chunked].concat(), [chunked, length].concat()] {
            let answers = ask(&both, "2\r\nhi\r\n0\r\n\r\n").await;
            assert_eq!(count(&answers), 1, "{answers}");
            assert!(
                answers.ends_with("\r\n\r\nhi") && answers.contains("connection: close"),
                "{answers}"
            );
        }
        // Two lengths, a coding that does not end the body, or one of HTTP/1.0.
        for headers in [
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: 5, 6\r\n",
            "content-length: +5\r\n",
            "transfer-encoding: chunked, gzip\r\n",
            "transfer-encoding: gzip\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        ] {
            let answers = ask(headers, "hello").await;
            assert!(answers.starts_with("HTTP/1.1 400"), "{headers}: {answers}");
            assert_eq!(count(&answers), 0, "{headers}: {answers}");
        }
    }
}
