//! OpenTelemetry export of a run, with and without a collector. Requires the feature `otel`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::probe::Probe;
use crate::support::cli_user::User;

/// A request to the collector.
#[derive(Debug, Clone)]
struct Received {
    head: String,
    body: Vec<u8>,
}

/// A collector on loopback.
struct Collector {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let heard = received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let heard = heard.clone();
                std::thread::spawn(move || listen(stream, &heard));
            }
        });
        Self { url, received }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the JSON bodies sent to a path.
    fn bodies(&self, path: &str) -> Vec<Value> {
        let to_path = |request: &&Received| request.head.starts_with(&format!("POST {path} "));
        let received = self.received();
        let requests = received.iter().filter(to_path);
        requests
            .map(|request| serde_json::from_slice(&request.body).unwrap())
            .collect()
    }

    fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for body in self.bodies("/v1/traces") {
            for resource in body["resourceSpans"].as_array().unwrap() {
                for scope in resource["scopeSpans"].as_array().unwrap() {
                    spans.extend(scope["spans"].as_array().unwrap().clone());
                }
            }
        }
        spans
    }
}

/// Records and answers the requests of a connection.
fn listen(stream: TcpStream, heard: &Mutex<Vec<Received>>) {
    let mut answers = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        heard.lock().unwrap().push(Received { head, body });
        let _ = answers
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
    }
}

const RUN: [&str; 8] = [
    "run",
    "a plum?",
    "--provider",
    "scripted",
    "--model",
    "script.json",
    "--tool",
    "text",
];

/// Creates a user whose run makes two calls, one of which fails, and exports to `url` as JSON.
fn user(url: &str) -> User {
    let mut user = User::new();
    let calls = json!([
        { "name": "text_count", "arguments": { "text": "a plum" } },
        { "name": "text_count", "arguments": { "path": "plum.md" } },
    ]);
    let usage = json!({ "input": 30, "output": 7 });
    let steps = json!([{ "calls": calls, "usage": usage }, { "text": "One plum.", "usage": usage }]);
    let script = json!({ "model": "demo", "steps": steps });
    user.file("script.json", script.to_string());
    user.var("OTEL_EXPORTER_OTLP_ENDPOINT", url);
    user.var("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    user.var("OTEL_EXPORTER_OTLP_HEADERS", "x-key=planted-key");
    user
}

/// Returns an attribute of a span, data point or resource.
fn attribute(of: &Value, key: &str) -> Value {
    let attributes = of["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(Value::Null, |attribute| attribute["value"].clone())
}

fn text(value: &str) -> Value {
    json!({ "stringValue": value })
}

/// Integers are strings in OTLP/JSON; readers accept both.
fn number(value: &Value) -> i64 {
    let value = &value["intValue"];
    value
        .as_i64()
        .unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

#[test]
fn otel_run_is_span_tree_with_convention_names() {
    let collector = Collector::start();
    user(&collector.url).run(&RUN).ended(0);
    let spans = collector.spans();
    let named = |name: &str| -> Vec<&Value> { spans.iter().filter(|span| span["name"] == name).collect() };
    let turn = named("invoke_agent");
    assert_eq!(turn.len(), 1, "{spans:#?}");
    let turn = turn[0];
    assert!(turn["parentSpanId"].as_str().is_none_or(str::is_empty), "{turn}");
    assert_eq!(attribute(turn, "toolcell.outcome"), text("completed"));
    assert!(
        attribute(turn, "gen_ai.conversation.id")["stringValue"].is_string(),
        "{turn}"
    );
    let chats = named("chat demo");
    let tools = named("execute_tool text_count");
    assert_eq!((chats.len(), tools.len(), spans.len()), (2, 2, 5), "{spans:#?}");
    for span in chats.iter().chain(&tools) {
        assert_eq!(span["parentSpanId"], turn["spanId"], "{span}");
        assert_eq!(span["traceId"], turn["traceId"], "{span}");
    }
    for chat in chats {
        assert_eq!(attribute(chat, "gen_ai.operation.name"), text("chat"));
        assert_eq!(attribute(chat, "gen_ai.provider.name"), text("scripted"));
        assert_eq!(attribute(chat, "gen_ai.request.model"), text("demo"));
        let reasons = &attribute(chat, "gen_ai.response.finish_reasons")["arrayValue"]["values"];
        assert_eq!(*reasons, json!([text("stop")]));
        assert_eq!(number(&attribute(chat, "gen_ai.usage.input_tokens")), 30);
        // 3 means client.
        assert_eq!(chat["kind"], 3, "{chat}");
    }
    let failed: Vec<bool> = tools
        .iter()
        .map(|tool| attribute(tool, "error.type") != Value::Null)
        .collect();
    assert_eq!(failed.iter().filter(|failed| **failed).count(), 1, "{tools:#?}");
    for (tool, failed) in tools.iter().zip(failed) {
        assert_eq!(attribute(tool, "gen_ai.tool.name"), text("text_count"));
        assert_eq!(attribute(tool, "gen_ai.tool.type"), text("function"));
        assert!(attribute(tool, "gen_ai.tool.call.id")["stringValue"].is_string());
        // 2 means error.
        assert_eq!(tool["status"]["code"] == 2, failed, "{tool}");
    }
}

#[test]
fn otel_tokens_and_durations_are_histograms() {
    let collector = Collector::start();
    user(&collector.url).run(&RUN).ended(0);
    let bodies = collector.bodies("/v1/metrics");
    let metrics: Vec<&Value> = bodies
        .iter()
        .flat_map(|body| body["resourceMetrics"].as_array().unwrap())
        .flat_map(|resource| resource["scopeMetrics"].as_array().unwrap())
        .flat_map(|scope| scope["metrics"].as_array().unwrap())
        .collect();
    let points = |name: &str, unit: &str| -> Vec<Value> {
        let metric = metrics.iter().find(|metric| metric["name"] == name).unwrap();
        assert_eq!(metric["unit"], unit);
        metric["histogram"]["dataPoints"].as_array().unwrap().clone()
    };
    let count = |point: &Value| {
        let count = &point["count"];
        count
            .as_u64()
            .unwrap_or_else(|| count.as_str().unwrap().parse().unwrap())
    };
    let tokens = points("gen_ai.client.token.usage", "{token}");
    let mut sums: Vec<(String, f64, u64)> = tokens
        .iter()
        .map(|point| {
            let kind = attribute(point, "gen_ai.token.type")["stringValue"]
                .as_str()
                .unwrap()
                .to_owned();
            (kind, point["sum"].as_f64().unwrap(), count(point))
        })
        .collect();
    sums.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        sums,
        [("input".to_owned(), 60.0, 2), ("output".to_owned(), 14.0, 2)]
    );
    let durations = points("gen_ai.client.operation.duration", "s");
    assert_eq!(durations.len(), 1);
    assert_eq!(count(&durations[0]), 2);
    assert_eq!(attribute(&durations[0], "gen_ai.request.model"), text("demo"));
    assert_eq!(durations[0]["explicitBounds"].as_array().unwrap().len(), 14);
}

#[test]
fn otel_content_is_not_sent_and_key_only_in_header() {
    let collector = Collector::start();
    let mut user = user(&collector.url);
    user.var("OTEL_SERVICE_NAME", "greengrocer");
    user.var("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    // The diagnostic log contains more, and is not exported. Without the log of the compiler, which writes a million lines.
    user.var(
        "TOOLCELL_LOG",
        "trace,cranelift_codegen=off,regalloc2=off,wasmtime=off",
    );
    let seen = user.run(&RUN).ended(0);
    let received = collector.received();
    assert!(received.len() >= 2, "{received:?}");
    for request in &received {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains("plum"), "{body}");
        assert!(!body.contains("planted-key"), "{body}");
        assert!(request.head.contains("x-key: planted-key"), "{}", request.head);
        assert!(
            body.contains("greengrocer") && body.contains("deployment.environment.name"),
            "{body}"
        );
    }
    assert!(!seen.stderr.contains("planted-key"), "{}", seen.stderr);
}

#[test]
fn otel_protocol_is_protobuf_unless_variable_says_json() {
    let collector = Collector::start();
    let mut user = user(&collector.url);
    user.var("OTEL_EXPORTER_OTLP_PROTOCOL", "");
    user.run(&RUN).ended(0);
    let received = collector.received();
    let traces = received
        .iter()
        .find(|r| r.head.starts_with("POST /v1/traces "))
        .unwrap();
    assert!(
        traces.head.contains("content-type: application/x-protobuf"),
        "{}",
        traces.head
    );
    let body = String::from_utf8_lossy(&traces.body);
    assert!(body.contains("execute_tool text_count"), "{body}");
}

#[test]
fn otel_standard_variables_disable_export() {
    let collector = Collector::start();
    let mut disabled = user(&collector.url);
    disabled.var("OTEL_SDK_DISABLED", "true");
    disabled.run(&RUN).ended(0);
    assert!(collector.received().is_empty());
    let mut traces = user("");
    let url = format!("{}/v1/traces", collector.url);
    traces.var("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url);
    traces.run(&RUN).ended(0);
    assert_eq!(collector.spans().len(), 5);
    assert!(collector.bodies("/v1/metrics").is_empty());
}

#[test]
fn otel_missing_collector_is_reported_once() {
    // Another process could reuse the port of a closed listener; this one is held without listening.
    let seen = user("http://127.0.0.1:1").run(&RUN).ended(0);
    assert_eq!(seen.stdout.trim(), "One plum.");
    assert_eq!(
        seen.stderr.matches("telemetry could not be sent").count(),
        1,
        "{}",
        seen.stderr
    );
    let mut grpc = user("http://127.0.0.1:1");
    grpc.var("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let seen = grpc.run(&RUN).ended(0);
    assert!(
        seen.stderr
            .contains("`OTEL_EXPORTER_OTLP_PROTOCOL=grpc` is not supported by this build"),
        "{}",
        seen.stderr
    );
    let seen = user("no url at all").run(&RUN).ended(0);
    assert_eq!(
        seen.stderr.matches("telemetry is disabled").count(),
        1,
        "{}",
        seen.stderr
    );
}

#[test]
fn otel_silent_collector_delays_exit_by_two_seconds_at_most() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let seen = user(&url).run(&RUN).ended(0);
    assert_eq!(seen.stdout.trim(), "One plum.");
    assert!(
        seen.stderr.contains("did not respond within 2 s"),
        "{}",
        seen.stderr
    );
}

#[test]
fn otel_interrupted_run_is_sent_as_cancelled() {
    let collector = Collector::start();
    let user = user(&collector.url);
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let script = json!({ "model": "demo", "steps": [{ "calls": [{ "name": "probe", "arguments": {} }] }] });
    user.file("script.json", script.to_string());
    let mut child = user
        .command(&[
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--tool",
            "loop.wasm",
            "--json",
        ])
        .args(["--limit", "wall=60s", "--limit", "fuel=1000T"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    lines
        .by_ref()
        .find(|line| line.contains("\"call_started\""))
        .expect("the call starts");
    let kill = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert!(lines.last().is_some_and(|line| line.contains("cancelled")));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let spans = collector.spans();
    let turn = spans
        .iter()
        .find(|span| span["name"] == "invoke_agent")
        .expect("the turn");
    assert_eq!(attribute(turn, "toolcell.outcome"), text("cancelled"));
}

#[test]
fn otel_doctor_reports_export_target() {
    let seen = user("http://127.0.0.1:1").run(&["doctor"]);
    assert!(
        seen.stdout
            .contains("telemetry      traces and metrics are sent to a collector"),
        "{}",
        seen.stdout
    );
    let seen = User::new().run(&["doctor"]);
    assert!(seen.stdout.contains("disabled; set"), "{}", seen.stdout);
}
