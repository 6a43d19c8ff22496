//! Test support: scripted servers over real connections on this machine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::client::error::StartError;
use crate::client::server::{McpServer, Options};
use crate::client::testing::identity;

use super::Remote;

/// A request that a server got.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
    /// True once the client closed the connection before the end of the answer.
    pub(super) is_cut: bool,
}

impl Seen {
    /// Method of the message, or that of HTTP if there is none.
    pub(super) fn does(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Part of an answer.
#[derive(Debug, Clone)]
pub(super) enum Does {
    /// Writes bytes.
    Write(Vec<u8>),
    /// Writes bytes again and again, until the client closes the connection.
    Repeat(Vec<u8>),
    Wait(Duration),
    /// Waits until the test continues.
    Until(Arc<Notify>),
    /// Keeps the connection open, until the client closes it.
    Hang,
}

/// Decides on the answer to a request, after which the connection is closed.
type Script = dyn Fn(&Seen) -> Vec<Does> + Send + Sync;

#[derive(Clone)]
pub(super) struct Scripted {
    pub(super) address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A response with this status, further header lines, and a body.
pub(super) fn response(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Vec<Does> {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    vec![Does::Write([head.as_bytes(), body].concat())]
}

pub(super) const JSON: &str = "content-type: application/json\r\n";

/// The beginning of a stream of events.
pub(super) fn events() -> Does {
    Does::Write(
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n"
            .to_vec(),
    )
}

pub(super) fn event(message: &Value) -> Does {
    Does::Write(format!("event: message\ndata: {message}\n\n").into_bytes())
}

/// The message that answers a request.
pub(super) fn answer(to: &Seen, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": to.body["id"], "result": result })
}

pub(super) fn result(to: &Seen, result: Value) -> Vec<Does> {
    response(200, JSON, answer(to, result).to_string())
}

pub(super) fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Answers of a well-behaved server of version 2025-06-18 with the tool `t` and the session `s1`, apart from calls.
pub(super) fn polite(seen: &Seen) -> Vec<Does> {
    match seen.does() {
        "server/discover" => response(400, "", "Bad Request: no session"),
        "initialize" => response(
            200,
            &format!("{JSON}mcp-session-id: s1\r\n"),
            answer(
                seen,
                json!({ "protocolVersion": "2025-06-18", "capabilities": {} }),
            )
            .to_string(),
        ),
        "tools/list" => result(
            seen,
            json!({ "tools": [{ "name": "t", "description": "For tests.", "inputSchema": { "type": "object" } }] }),
        ),
        "GET" => response(405, "", ""),
        "DELETE" => response(200, "", ""),
        method if method.starts_with("notifications/") => response(202, "", ""),
        _ => response(500, "", ""),
    }
}

/// Answers of a well-behaved server of version 2026-07-28, apart from calls.
pub(super) fn stateless(seen: &Seen) -> Vec<Does> {
    match seen.does() {
        "server/discover" => result(
            seen,
            json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {} }),
        ),
        _ => polite(seen),
    }
}

impl Scripted {
    pub(super) async fn new(script: impl Fn(&Seen) -> Vec<Does> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let script: Arc<Script> = Arc::new(script);
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let server = Self {
            address,
            seen: seen.clone(),
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script.clone(), seen.clone()));
            }
        });
        server
    }

    /// A server that handles its calls by `calls` and everything else well.
    pub(super) async fn calls(calls: impl Fn(&Seen) -> Vec<Does> + Send + Sync + 'static) -> Self {
        Self::new(move |seen| match seen.does() {
            "tools/call" => calls(seen),
            _ => polite(seen),
        })
        .await
    }

    /// All requests.
    pub(super) fn all(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests for this method.
    pub(super) fn seen(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.does() == method)
            .cloned()
            .collect()
    }

    /// Waits for the given number of requests for a method that fulfil a condition.
    pub(super) async fn wait_for(&self, method: &str, count: usize, is_it: impl Fn(&Seen) -> bool) {
        let begun = std::time::Instant::now();
        while self.seen(method).iter().filter(|seen| is_it(seen)).count() < count {
            assert!(
                begun.elapsed().as_secs() < 60,
                "{method}: {:?}",
                self.seen(method)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn remote(&self) -> Remote {
        let headers = [("x-key".to_owned(), "mine".to_owned())];
        Remote::new(&format!("http://{}/mcp", self.address), headers).unwrap()
    }

    pub(super) async fn start(&self) -> Arc<McpServer> {
        self.start_with(Options::new("srv")).await.unwrap()
    }

    pub(super) async fn start_with(&self, options: Options) -> Result<Arc<McpServer>, StartError> {
        McpServer::over_http(self.remote(), options, identity()).await
    }
}

async fn serve(stream: TcpStream, script: Arc<Script>, all: Arc<Mutex<Vec<Seen>>>) {
    let mut stream = BufReader::new(stream);
    let Some(seen) = read(&mut stream).await else {
        return;
    };
    let number = {
        let mut all = all.lock().unwrap();
        all.push(seen.clone());
        all.len() - 1
    };
    let cut = || all.lock().unwrap()[number].is_cut = true;
    for does in script(&seen) {
        match does {
            Does::Write(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return cut();
                }
            }
            Does::Repeat(bytes) => {
                while stream.write_all(&bytes).await.is_ok() {}
                return cut();
            }
            Does::Until(notified) => notified.notified().await,
            Does::Wait(time) => tokio::time::sleep(time).await,
            Does::Hang => {
                let _ = stream.read(&mut [0]).await;
                return cut();
            }
        }
    }
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Seen {
        method,
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        is_cut: false,
    })
}
