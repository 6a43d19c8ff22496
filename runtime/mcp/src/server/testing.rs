//! Test support: a client at the other end of a pipe in memory, and tools with configurable behaviour.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcell_core::tool::{Hints, LogLevel, LogLine, LogSource, Progress};
use toolcell_core::{
    ApprovalRequest, BoxFuture, CallContext, CallResult, Content, Receipt, Schema, Tool, ToolCall, ToolError,
    ToolName, ToolSpec,
};

use crate::server::Server;
use crate::server::state::{Identity, ServerObserver};

/// Behaviour of a test tool.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    /// Returns its arguments, as text and structured.
    Echo,
    /// Returns a text of a mebibyte.
    Large,
    /// Waits for a permit of its gate; leaves a receipt if it is dropped.
    Wait,
    /// Logs a line of each level and three steps of progress, of which one goes back.
    Report,
    Fail,
    FailHost,
    Panic,
    /// Asks the user, and returns whether it can and what was decided.
    Ask,
}

pub(crate) struct TestTool {
    spec: ToolSpec,
    does: Does,
    gate: Arc<Semaphore>,
}

pub(crate) fn tool(name: &str, does: Does, gate: &Arc<Semaphore>) -> Arc<dyn Tool> {
    Arc::new(TestTool {
        spec: ToolSpec {
            name: ToolName::new(name).unwrap(),
            title: Some("A title".into()),
            description: "For tests.".into(),
            input: Arc::new(Schema::parse(r#"{"type":"object"}"#).unwrap()),
            output: Some(Arc::new(Schema::parse(r#"{"type":"object"}"#).unwrap())),
            hints: Hints {
                read_only: true,
                ..Hints::default()
            },
            annotations: std::collections::BTreeMap::new(),
        },
        does,
        gate: gate.clone(),
    })
}

/// One tool of each behaviour.
pub(crate) fn tools(gate: &Arc<Semaphore>) -> Vec<Arc<dyn Tool>> {
    let tools = [
        ("wait", Does::Wait),
        ("echo", Does::Echo),
        ("report", Does::Report),
        ("fail", Does::Fail),
        ("large", Does::Large),
        ("fail_host", Does::FailHost),
        ("panic", Does::Panic),
        ("ask", Does::Ask),
    ];
    tools.map(|(name, does)| tool(name, does, gate)).into()
}

/// Reports a receipt when it is dropped, as a cell does.
struct Dropped(Option<CallContext>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(cx) = self.0.take() {
            cx.observer.receipt(Receipt {
                fuel: 5,
                ..Receipt::default()
            });
        }
    }
}

impl Tool for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, call: ToolCall, cx: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let receipt = Receipt {
                fuel: 3,
                ..Receipt::default()
            };
            let arguments = Value::Object(call.arguments);
            match self.does {
                Does::Echo => CallResult {
                    content: vec![Content::text(arguments.to_string())],
                    structured: Some(arguments),
                    ..CallResult::default()
                }
                .with_receipt(receipt),
                Does::Large => CallResult::text("x".repeat(1 << 20)),
                Does::Wait => {
                    let mut dropped = Dropped(Some(cx));
                    let permit = self.gate.acquire().await.unwrap();
                    permit.forget();
                    dropped.0 = None;
                    CallResult::text("waited")
                }
                Does::Report => {
                    for (level, text) in [
                        (
                            LogLevel::Debug,
                            "debug\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
                        ),
                        (LogLevel::Warn, "warn"),
                    ] {
                        cx.observer.log(LogLine {
                            level,
                            source: LogSource::Stdout,
                            message: text.into(),
                        });
                    }
                    for done in [1, 0, 2] {
                        cx.observer.progress(Progress {
                            done,
                            total: Some(2),
                            message: Some("step".into()),
                        });
                    }
                    CallResult::text("reported")
                }
                Does::Fail => CallResult::failed(ToolError::denied("no", Some("for the user".into()))),
                Does::FailHost => CallResult::failed(ToolError::Host {
                    message: "secret path".into(),
                }),
                Does::Panic => panic!("out of luck"),
                Does::Ask => {
                    let request = ApprovalRequest {
                        id: call.id,
                        tool: call.name.to_string(),
                        arguments,
                        cause: toolcell_core::ApprovalCause::Rule,
                        reason: "a rule".into(),
                        places: Vec::new(),
                    };
                    let can_ask = cx.observer.can_ask();
                    let decision = cx.observer.ask(request).await;
                    CallResult::text(format!("{can_ask} {decision:?}"))
                }
            }
        })
    }
}

/// Observer that records everything the server reports.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Vec<(String, CallResult)>>);

impl Seen {
    pub(crate) fn finished(&self) -> Vec<(String, CallResult)> {
        self.0.lock().unwrap().clone()
    }
}

impl ServerObserver for Seen {
    fn question(&self, request: &ApprovalRequest, _generation: u64) -> Result<String, &'static str> {
        Ok(format!("run {} with {}?", request.tool, request.arguments))
    }

    fn finished(&self, _: &str, tool: &ToolName, result: &CallResult) {
        self.0.lock().unwrap().push((tool.to_string(), result.clone()));
    }
}

/// Client connected to a server.
pub(crate) struct Client {
    input: WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
    pub(crate) server: Server,
    served: JoinHandle<std::io::Result<()>>,
}

impl Client {
    /// Starts a server with one tool of each behaviour.
    pub(crate) fn start() -> Self {
        let gate = Arc::new(Semaphore::new(0));
        Self::with(tools(&gate), gate)
    }

    pub(crate) fn with(tools: Vec<Arc<dyn Tool>>, gate: Arc<Semaphore>) -> Self {
        let seen = Arc::new(Seen::default());
        let server = server_of(tools, seen.clone());
        let (here, there) = tokio::io::duplex(64 << 10);
        let stop = CancellationToken::new();
        let served = tokio::spawn({
            let (server, stop) = (server.clone(), stop.clone());
            async move {
                let (read, write) = tokio::io::split(there);
                server.serve(read, write, &stop).await
            }
        });
        let (read, input) = tokio::io::split(here);
        Self {
            input,
            output: BufReader::new(read).lines(),
            seen,
            gate,
            stop,
            server,
            served,
        }
    }

    pub(crate) async fn send_bytes(&mut self, line: &[u8]) {
        self.input.write_all(line).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_bytes(message.to_string().as_bytes()).await;
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    pub(crate) async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let id: Value = id.into();
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    pub(crate) async fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) {
        self.request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
    }

    /// Next message of the server.
    pub(crate) async fn next(&mut self) -> Value {
        let line = self
            .output
            .next_line()
            .await
            .unwrap()
            .expect("the server goes on");
        serde_json::from_str(&line).expect("each line is JSON")
    }

    /// Sends a request and returns the next message.
    pub(crate) async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        self.next().await
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        });
        let result = self.ask("init", "initialize", params).await;
        self.notify("notifications/initialized", json!({})).await;
        result["result"].clone()
    }

    /// Closes the input, and waits for the end of the server without reading.
    pub(crate) async fn end_unread(mut self) {
        self.input.shutdown().await.unwrap();
        self.served.await.unwrap().unwrap();
    }

    /// Closes the input, and returns what the server still wrote.
    pub(crate) async fn finish(mut self) -> (Vec<Value>, Arc<Seen>) {
        self.input.shutdown().await.unwrap();
        let mut rest = Vec::new();
        while let Some(line) = self.output.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        self.served.await.unwrap().unwrap();
        (rest, self.seen)
    }
}

pub(crate) fn server_of(tools: Vec<Arc<dyn Tool>>, seen: Arc<dyn ServerObserver>) -> Server {
    let identity = Identity {
        name: "test".into(),
        version: "1".into(),
        instructions: None,
    };
    Server::new(tools, identity, seen).unwrap()
}

/// Server without tools.
pub(crate) fn server() -> Server {
    server_of(Vec::new(), Arc::<Seen>::default())
}

/// Parameters of a request of version 2026-07-28.
pub(crate) fn stateless(version: &str, mut params: Map<String, Value>) -> Value {
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    meta["io.modelcontextprotocol/protocolVersion"] = version.into();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    Value::Object(params)
}
