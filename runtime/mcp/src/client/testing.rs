//! Test support: scripted servers at the other end of a pipe in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use toolcell_core::tool::{CallObserver, Progress};
use toolcell_core::{CallContext, CallResult, Receipt, ToolCall, ToolError};

use super::error::{ServerError, StartError};
use super::server::{Connection, McpServer, Options, Streams};
use crate::server::Identity;

/// Reaction of a scripted server to a message.
#[derive(Debug, Clone)]
pub(super) enum Does {
    /// Writes a message.
    Say(Value),
    /// Writes a line as it is.
    Raw(String),
    /// Closes its output.
    End,
    /// Reads nothing any more.
    Hang,
}

/// Decides what a server does after each message: the number of its process, from 0, and the message.
pub(super) type Script = dyn Fn(usize, &Value) -> Vec<Does> + Send + Sync;

/// A scripted server and the messages that it received.
#[derive(Clone)]
pub(super) struct Scripted {
    script: Arc<Script>,
    pub(super) received: Arc<Mutex<Vec<Value>>>,
    starts: Arc<AtomicUsize>,
}

pub(super) fn result(to: &Value, result: Value) -> Does {
    Does::Say(json!({ "jsonrpc": "2.0", "id": to["id"], "result": result }))
}

pub(super) fn error(to: &Value, code: i64, message: &str) -> Does {
    Does::Say(json!({ "jsonrpc": "2.0", "id": to["id"], "error": { "code": code, "message": message } }))
}

pub(super) fn notification(method: &str, params: Value) -> Does {
    Does::Say(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

pub(super) fn text(to: &Value, text: &str) -> Does {
    result(to, json!({ "content": [{ "type": "text", "text": text }] }))
}

/// Reactions of a well-behaved server of version 2025-06-18 with these tools, apart from calls.
pub(super) fn polite(message: &Value, tools: &[(&str, &str)]) -> Vec<Does> {
    let tools = tools.iter().map(|(name, description)| {
        json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
    });
    match message["method"].as_str() {
        Some("initialize") => {
            let info = json!({ "name": "scripted", "version": "1" });
            let about = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info });
            vec![result(message, about)]
        }
        Some("tools/list") => vec![result(message, json!({ "tools": tools.collect::<Vec<_>>() }))],
        Some(_) if message.get("id").is_some() => vec![error(message, -32601, "unknown method")],
        _ => vec![],
    }
}

impl Scripted {
    pub(super) fn new(script: impl Fn(usize, &Value) -> Vec<Does> + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            received: Arc::default(),
            starts: Arc::default(),
        }
    }

    /// A server with the tool `t` that handles its calls by `calls` and everything else well.
    pub(super) fn calls(calls: impl Fn(usize, &Value) -> Vec<Does> + Send + Sync + 'static) -> Self {
        Self::new(move |process, message| match message["method"].as_str() {
            Some("tools/call") => calls(process, message),
            _ => polite(message, &[("t", "For tests.")]),
        })
    }

    /// Number of processes that were started.
    pub(super) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// The messages of this method.
    pub(super) fn received(&self, method: &str) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        received
            .iter()
            .filter(|message| message["method"] == method)
            .cloned()
            .collect()
    }

    pub(super) async fn start(&self) -> Arc<McpServer> {
        self.start_with(Options::new("srv")).await.unwrap()
    }

    pub(super) async fn start_with(&self, options: Options) -> Result<Arc<McpServer>, StartError> {
        let scripted = self.clone();
        let connect = move || -> Result<Connection, ServerError> {
            let (ours, theirs) = tokio::io::duplex(1 << 10);
            tokio::spawn(scripted.clone().serve(theirs));
            let (input, output) = tokio::io::split(ours);
            Ok(Connection::Streams(Streams {
                input: Box::new(input),
                output: Box::new(output),
                program: None,
            }))
        };
        McpServer::connect(Box::new(connect), options, identity()).await
    }

    pub(super) async fn serve(self, stream: tokio::io::DuplexStream) {
        let process = self.starts.fetch_add(1, Ordering::SeqCst);
        let (input, mut output) = tokio::io::split(stream);
        let mut lines = BufReader::new(input).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            self.received.lock().unwrap().push(message.clone());
            for does in (self.script)(process, &message) {
                let mut line = match does {
                    Does::Say(message) => message.to_string(),
                    Does::Raw(line) => line,
                    Does::End => return,
                    Does::Hang => std::future::pending().await,
                };
                line.push('\n');
                if output.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

pub(super) fn identity() -> Identity {
    Identity {
        name: "tests".into(),
        version: "1".into(),
        instructions: None,
    }
}

/// Observer that keeps progress and receipts.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) progress: Mutex<Vec<Progress>>,
    pub(super) receipts: Mutex<Vec<Receipt>>,
}

impl CallObserver for Seen {
    fn progress(&self, progress: Progress) {
        self.progress.lock().unwrap().push(progress);
    }

    fn receipt(&self, receipt: Receipt) {
        self.receipts.lock().unwrap().push(receipt);
    }
}

/// Calls the first tool of a server whose name ends so.
pub(super) async fn call_seen(server: &Arc<McpServer>, tool: &str, seen: Arc<Seen>) -> CallResult {
    call_with(server, tool, json!({}), seen).await
}

pub(super) async fn call_with(
    server: &Arc<McpServer>,
    tool: &str,
    arguments: Value,
    seen: Arc<Seen>,
) -> CallResult {
    let tools = server.tools();
    let tool = tools
        .iter()
        .find(|known| known.spec().name.as_str().ends_with(tool))
        .unwrap();
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
    };
    let cx = CallContext {
        values: BTreeMap::new(),
        observer: seen,
    };
    tool.call(call, cx).await
}

pub(super) async fn call(server: &Arc<McpServer>) -> CallResult {
    call_seen(server, "_t", Arc::default()).await
}

/// The error of a call that fails.
pub(super) async fn fail(server: &Arc<McpServer>) -> ToolError {
    call(server).await.into_result().unwrap_err()
}
