//! Requests over HTTP, on a listener of this machine or on a pipe in memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body as _, Incoming};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Access, HttpServer, Metrics, Reached, Token};
use crate::server::Server;
use crate::server::testing::{Seen, server_of, stateless, tools};
use toolcell_http::Peer;

mod bounds;
mod changes;
mod isolation;
mod messages;
mod plain;

const ADDRESS: &str = "127.0.0.1:8080";

/// Body of a request: hyper's own cannot be created.
struct Text(Option<Bytes>);

impl hyper::body::Body for Text {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|text| Ok(hyper::body::Frame::data(text))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// Server under test.
struct Host {
    server: Arc<HttpServer>,
    seen: Arc<Seen>,
    gate: Arc<Semaphore>,
    stop: CancellationToken,
    /// Server of the only client.
    offered: Server,
}

/// Response with its body.
#[derive(Debug)]
struct Answered {
    status: u16,
    session: Option<String>,
    kind: String,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Messages of the events.
    fn events(&self) -> Vec<Value> {
        assert_eq!(self.kind, "text/event-stream");
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    fn code(&self) -> (u16, i64) {
        let json = self.json();
        (
            self.status,
            json["error"]["code"].as_i64().unwrap_or_else(|| panic!("{json}")),
        )
    }
}

impl Host {
    fn start() -> Self {
        Self::reached(Reached::default())
    }

    fn reached(reached: Reached) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let seen = Arc::new(Seen::default());
        let metrics = Arc::new(Metrics::default());
        let offered = server_of(tools(&gate), metrics.observing(seen.clone()));
        Self {
            server: Arc::new(HttpServer::new(Access::Open(offered.clone()), reached, metrics)),
            offered,
            seen,
            gate,
            stop: CancellationToken::new(),
        }
    }

    /// Opens a connection in memory, which takes some KiB before it waits for its reader.
    fn open(&self) -> DuplexStream {
        let (here, there) = tokio::io::duplex(16 << 10);
        let (server, stop) = (self.server.clone(), self.stop.clone());
        tokio::spawn(async move {
            let service = server.service();
            let (address, peer) = (ADDRESS.parse().unwrap(), Peer::default());
            toolcell_http::serve_connection(&*service, there, address, &stop, &peer).await;
        });
        here
    }

    /// Serves a listener of this machine.
    async fn listen(&self) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, stop) = (self.server.clone(), self.stop.clone());
        (
            address,
            tokio::spawn(async move { server.serve(listener, &stop).await }),
        )
    }

    async fn post(&self, headers: &[(&str, &str)], body: impl ToString) -> Answered {
        let all: Vec<_> = DEFAULTS.into_iter().chain(headers.iter().copied()).collect();
        self.send("POST", "/mcp", &all, body.to_string().into_bytes())
            .await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answered {
        let response = exchange(self.open(), method, path, headers, body).await;
        read(response).await
    }

    async fn get(&self, path: &str) -> Answered {
        self.send("GET", path, &[("host", ADDRESS)], Vec::new()).await
    }

    /// Sends a request in version 2026-07-28.
    async fn current(&self, id: impl Into<Value>, method: &str, params: Value) -> Answered {
        let (headers, body) = current(id, method, params);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        self.post(&headers, body).await
    }

    /// Begins a session.
    async fn session(&self, version: &str) -> String {
        let answer = self.post(&[], initialize(version)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.session.expect("the identifier of a session")
    }
}

/// Headers of each request but its host.
const DEFAULTS: [(&str, &str); 3] = [
    ("host", ADDRESS),
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let id: Value = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn initialize(version: &str) -> Value {
    let params =
        json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    request(0, "initialize", params)
}

/// Headers and body of a request in version 2026-07-28.
fn current(id: impl Into<Value>, method: &str, params: Value) -> (Vec<(&'static str, String)>, Value) {
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", method.to_owned()),
    ];
    if let Some(name) = params["name"].as_str() {
        headers.push(("mcp-name", name.to_owned()));
    }
    let params = stateless("2026-07-28", params.as_object().unwrap().clone());
    (headers, request(id, method, params))
}

async fn exchange<S>(
    stream: S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let mut request = hyper::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Text(Some(body.into()).filter(|body: &Bytes| !body.is_empty()));
    let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
    // The connection ends with its sender.
    tokio::spawn(async move {
        let _ = sender.ready().await;
    });
    response
}

async fn next(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await?;
        if let Ok(data) = frame.unwrap().into_data() {
            return Some(data);
        }
    }
}

async fn read(response: Response<Incoming>) -> Answered {
    let header = |name: &str| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let (session, kind) = (
        header("mcp-session-id"),
        header("content-type").unwrap_or_default(),
    );
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(data) = next(&mut incoming).await {
        body.extend_from_slice(&data);
    }
    Answered {
        status,
        session,
        kind,
        body: String::from_utf8(body).unwrap(),
    }
}

/// Writes a request as it is, and returns all that is answered until the connection ends.
async fn raw(mut stream: DuplexStream, request: &[u8]) -> String {
    let _ = stream.write_all(request).await;
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    String::from_utf8(all).unwrap()
}

/// Waits until nothing happens any more: the clock is paused, and moves only then.
async fn idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn token(letter: &str) -> (String, Token) {
    let text = letter.repeat(toolcell_http::MIN_TOKEN_BYTES);
    let token = Token::new(&text).unwrap();
    (format!("Bearer {text}"), token)
}

#[tokio::test]
async fn listener_serves_until_it_is_stopped() {
    let host = Host::start();
    let (address, served) = host.listen().await;
    let stream = TcpStream::connect(address).await.unwrap();
    let address = address.to_string();
    let answer = exchange(stream, "GET", "/healthz", &[("host", &address)], Vec::new()).await;
    assert_eq!(read(answer).await.body, "ok\n");
    host.stop.cancel();
    served.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn address_of_other_machines_needs_tokens() {
    let listener = || TcpListener::bind("0.0.0.0:0");
    let host = Host::start();
    let refused = host.server.serve(listener().await.unwrap(), &host.stop).await;
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    let server = server_of(Vec::new(), host.seen.clone());
    let access = Access::of_tokens(vec![(token("a").1, server)]);
    host.stop.cancel();
    let with_token = HttpServer::new(access, Reached::default(), Arc::default());
    with_token
        .serve(listener().await.unwrap(), &host.stop)
        .await
        .unwrap();
}

#[tokio::test]
async fn health_and_metrics_have_paths() {
    let host = Host::start();
    host.current(1, "tools/call", json!({"name": "echo"})).await;
    host.current(1, "tools/call", json!({"name": "fail"})).await;
    host.current(1, "nothing", json!({})).await;
    assert_eq!(host.get("/healthz").await.body, "ok\n");
    assert_eq!(host.get("/readyz").await.body, "ok\n");
    let head = host
        .send("HEAD", "/healthz", &[("host", ADDRESS)], Vec::new())
        .await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let metrics = host.get("/metrics").await;
    assert!(metrics.kind.starts_with("text/plain; version=0.0.4"));
    for line in [
        "# TYPE toolcell_call_seconds histogram",
        "toolcell_calls_total{tool=\"echo\",outcome=\"ok\"} 1",
        "toolcell_calls_total{tool=\"fail\",outcome=\"denied\"} 1",
        "toolcell_denials_total{tool=\"fail\"} 1",
        "toolcell_call_seconds_bucket{le=\"+Inf\"} 1",
        "toolcell_call_seconds_count 1",
        "toolcell_fuel_total 3",
        "toolcell_cells 0",
        "toolcell_calls_in_progress 0",
        "toolcell_http_responses_total{status=\"404\"} 1",
    ] {
        assert!(
            metrics.body.lines().any(|found| found == line),
            "{line}: {}",
            metrics.body
        );
    }
    assert_eq!(host.get("/").await.status, 404);
    assert_eq!(host.get("/mcp").await.status, 405);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let wrong = host.send("POST", path, &[("host", ADDRESS)], Vec::new()).await;
        assert_eq!(wrong.status, 405, "{path}");
    }
}

#[tokio::test]
async fn every_path_is_for_own_hosts_and_pages_only() {
    let host = Host::start();
    for path in ["/mcp", "/healthz", "/readyz", "/metrics", "/"] {
        for headers in [
            &[("host", "evil.example")][..],
            &[("host", ADDRESS), ("origin", "http://evil.example")],
            &[("host", ADDRESS), ("origin", "null")],
        ] {
            let answer = host.send("GET", path, headers, Vec::new()).await;
            assert_eq!(answer.status, 403, "{path} {headers:?}");
        }
    }
    assert_eq!(host.seen.finished().len(), 0);
}
