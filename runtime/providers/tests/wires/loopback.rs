//! Loopback server that plays recorded responses byte by byte and records requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

/// Self-signed certificate for `localhost`, valid from 2020 to 2120, and its key.
pub(crate) const CERTIFICATE: &[u8] = include_bytes!("tls/localhost.der");
const KEY: &[u8] = include_bytes!("tls/localhost-key.der");

/// Variable with a directory to which every request is written, one file each, for `tests/sdk_types.py`.
const BODIES: &str = "WIRE_BODIES";

fn keep_body(dir: &std::path::Path, port: u16, request: &Received) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let kept = serde_json::json!({ "line": request.line, "body": request.body });
    let name = format!("{}-{port}-{number}.json", std::process::id());
    std::fs::write(dir.join(name), kept.to_string()).unwrap();
}

/// Connection with or without TLS.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Scripted response.
#[derive(Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    piece: usize,
    pause: Duration,
    end: End,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// Close the connection.
    Close,
    /// Send nothing more and keep the connection open.
    Stall,
    /// Close the connection before the announced length.
    Break,
}

impl Reply {
    pub(crate) fn new(status: u16, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type", media_type.to_owned())],
            body: body.into(),
            piece: usize::MAX,
            pause: Duration::ZERO,
            end: End::Close,
        }
    }

    /// An event stream.
    pub(crate) fn sse(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", body)
    }

    /// An event stream of these `data` lines.
    pub(crate) fn events(events: &[&str]) -> Self {
        Self::sse(
            events
                .iter()
                .map(|e| format!("data: {e}\n\n"))
                .collect::<String>(),
        )
    }

    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::new(status, "application/json", body)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends the body in chunks of `bytes`, one packet each.
    pub(crate) fn in_pieces(mut self, bytes: usize) -> Self {
        self.piece = bytes;
        self.pause = Duration::from_millis(1);
        self
    }

    /// Sends only the first `bytes` of the body, then closes the connection.
    pub(crate) fn cut_at(mut self, bytes: usize) -> Self {
        self.body.truncate(bytes);
        self
    }

    /// Sends nothing after the body and keeps the connection open.
    pub(crate) fn then_stall(mut self) -> Self {
        self.end = End::Stall;
        self
    }

    /// Closes the connection before the announced length.
    pub(crate) fn then_break(mut self) -> Self {
        self.end = End::Break;
        self
    }
}

/// Recorded request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Loopback server; stops when dropped.
pub(crate) struct Server {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Answers one request with each reply, in order, and closes every further connection.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::serve(replies, None).await
    }

    /// The same over TLS, with [`CERTIFICATE`].
    pub(crate) async fn start_tls(replies: impl IntoIterator<Item = Reply>) -> Self {
        let key = PrivateKeyDer::try_from(KEY.to_vec()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CERTIFICATE.to_vec().into()], key)
            .unwrap();
        Self::serve(replies, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(replies: impl IntoIterator<Item = Reply>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = received.clone();
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut stalled = Vec::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let mut socket: Box<dyn Connection> = match &tls {
                    None => Box::new(socket),
                    Some(tls) => match tls.accept(socket).await {
                        Ok(socket) => Box::new(socket),
                        // The client does not trust the certificate.
                        Err(_) => continue,
                    },
                };
                let Some(request) = read_request(&mut *socket).await else {
                    continue;
                };
                if let Some(dir) = std::env::var_os(BODIES) {
                    keep_body(dir.as_ref(), port, &request);
                }
                record.lock().unwrap().push(request);
                let Some(reply) = replies.pop_front() else {
                    continue;
                };
                // The client may have closed the connection already.
                let _ = answer(&mut *socket, &reply).await;
                if reply.end == End::Stall {
                    stalled.push(socket);
                }
            }
        });
        Self { port, received, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn https_url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// The body of the only request.
    pub(crate) fn body(&self) -> Value {
        let received = self.received();
        assert_eq!(received.len(), 1, "one request is expected");
        received[0].body.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_request(socket: &mut dyn Connection) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|l| l.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        socket.read_buf(&mut bytes).await.ok()?;
    }
    Some(Received {
        line,
        headers,
        body: serde_json::from_slice(&bytes[head_end + 4..]).unwrap_or(Value::Null),
    })
}

async fn answer(socket: &mut dyn Connection, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if reply.end == End::Break {
        head.push_str(&format!("content-length: {}\r\n", reply.body.len() + 100));
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes()).await?;
    for piece in reply.body.chunks(reply.piece.min(reply.body.len().max(1))) {
        socket.write_all(piece).await?;
        socket.flush().await?;
        if !reply.pause.is_zero() {
            tokio::time::sleep(reply.pause).await;
        }
    }
    if reply.end != End::Stall {
        socket.shutdown().await?;
    }
    Ok(())
}
