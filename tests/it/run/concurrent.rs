//! Many concurrent sessions over HTTP, and the host cost of a long session with a journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use toolcell_agent::LoopState;
use toolcell_agent::{Agent, FnTool};
use toolcell_core::event::TurnOutcome;
use toolcell_core::message::CallRequest;
use toolcell_core::{Content, Message, Part, SessionStore as _};
use toolcell_providers::Connection;
use toolcell_providers::openai::OpenAi;
use toolcell_providers::scripted::{Script, Scripted};
use toolcell_store::SqliteSessions;

/// Number of concurrent sessions.
const CROWD: usize = 1_000;

fn echo() -> FnTool {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    FnTool::new("echo", "Says the same", schema, |arguments, _| async move {
        Ok(arguments["text"].as_str().unwrap_or_default().to_owned())
    })
    .unwrap()
}

/// A Chat Completions server that calls `echo` with the words of the user, and answers with the result. It does not
/// respond before [`CROWD`] requests are pending, so that all sessions wait at once.
async fn serve(listener: TcpListener, asked: Arc<AtomicUsize>) {
    let (everybody, _) = watch::channel(false);
    let everybody = Arc::new(everybody);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (asked, everybody) = (asked.clone(), everybody.clone());
        tokio::spawn(async move {
            let _ = answer(stream, &asked, &everybody).await;
        });
    }
}

async fn answer(
    stream: TcpStream,
    asked: &AtomicUsize,
    everybody: &watch::Sender<bool>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let request: Value = serde_json::from_slice(&body)?;
    let last = request["messages"].as_array().and_then(|all| all.last()).unwrap();
    let (delta, reason) = if last["role"] == "tool" {
        (json!({"content": last["content"]}), "stop")
    } else {
        if asked.fetch_add(1, Ordering::SeqCst) + 1 == CROWD {
            everybody.send_replace(true);
        }
        let _ = everybody.subscribe().wait_for(|here| *here).await;
        let arguments = json!({"text": last["content"]}).to_string();
        let function = json!({"name": "echo", "arguments": arguments});
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
        (json!({"tool_calls": [call]}), "tool_calls")
    };
    let first = json!({"choices": [{"index": 0, "delta": delta}]});
    let second = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    let body = format!("data: {first}\n\ndata: {second}\n\ndata: [DONE]\n\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Both ends of every connection are file descriptors of this process.
fn allow_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // macOS reports no maximum and does not accept one.
    let bounded = limit.current.map_or(10_240, |max| max.min(10_240));
    limit.current = Some(bounded);
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_concurrent_sessions_succeed_over_http() {
    allow_files();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let server = tokio::spawn(serve(listener, asked.clone()));
    let model = Connection::new("m").with_base_url(url);
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteSessions::open(dir.path().join("sessions.sqlite")).unwrap());
    let agent = Agent::builder(OpenAi::new(model).unwrap())
        .tool(echo())
        .store(store.clone())
        .build()
        .unwrap();
    let turns: Vec<_> = (0..CROWD)
        .map(|i| {
            let session = agent.session_from(LoopState::new(format!("s{i}")));
            (i, session.spawn(format!("word {i}"), toolcell_agent::NullSink))
        })
        .collect();
    for (i, turn) in turns {
        let report = turn.await.1.unwrap();
        assert_eq!(report.outcome, TurnOutcome::Completed, "session {i}");
        assert_eq!((report.text, report.steps), (format!("word {i}"), 2));
    }
    assert_eq!(asked.load(Ordering::SeqCst), CROWD);
    assert_eq!(store.list().await.unwrap().len(), CROWD);
    server.abort();
}

/// Number of measured turns, of two steps each.
const TURNS: usize = 25;

/// Maximum cost of a step on the host, in microseconds of processor time.
const STEP_US: u64 = 5_000;

/// Set when the test [`long_session_in_a_child_process`] should run one.
const RUN_LONG_SESSION: &str = "LONG_SESSION";

/// A conversation of 1,000 messages: calls with results of 1 KiB, and messages of the user between.
fn history() -> Vec<Message> {
    let mut messages = vec![Message::user("Begin")];
    for i in 0..333 {
        messages.push(Message::Assistant {
            parts: vec![Part::Call(CallRequest {
                id: format!("c{i}"),
                name: "echo".into(),
                arguments: r#"{"text":"hello"}"#.into(),
                opaque: Value::Null,
            })],
        });
        messages.push(Message::Tool {
            call_id: format!("c{i}"),
            name: "echo".into(),
            content: vec![Content::text("x".repeat(1_024))],
            is_error: false,
        });
        messages.push(Message::user("Go on"));
    }
    messages
}

/// Does nothing by itself: in its own process it prints the cost of a step of a long session.
#[tokio::test]
async fn long_session_in_a_child_process() {
    if std::env::var_os(RUN_LONG_SESSION).is_none() {
        return;
    }
    let steps = (0..=TURNS).flat_map(|_| {
        let call = json!({"calls": [{"name": "echo", "arguments": {"text": "hello"}}]});
        [call, json!({"text": "Done."})]
    });
    let script = json!({"steps": steps.collect::<Vec<_>>()}).to_string();
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteSessions::open(dir.path().join("sessions.sqlite")).unwrap();
    let agent = Agent::builder(Scripted::new(Script::parse(&script).unwrap()))
        .tool(echo())
        .store(Arc::new(store))
        .build()
        .unwrap();
    let mut session = agent.session_from(LoopState::with_messages("s", history()));
    // The first turn puts the conversation into the journal; that is no step.
    session.ask("Begin").await.unwrap();
    assert!(session.messages().len() > 1_000);
    let begun = processor_time();
    for _ in 0..TURNS {
        assert_eq!(session.ask("Go").await.unwrap().text, "Done.");
    }
    let us = (processor_time() - begun).as_micros() / (2 * TURNS as u128);
    println!("a step costs {us} us");
}

/// Returns the processor time of all threads of this process.
fn processor_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

/// Processor time instead of wall time: waiting for a disk or other programs does not count.
#[test]
fn step_with_1000_messages_costs_host_under_5_ms() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "run::concurrent::long_session_in_a_child_process",
            "--nocapture",
        ])
        .env(RUN_LONG_SESSION, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let us = printed
        .lines()
        .find_map(|line| {
            line.split_once("a step costs ")?
                .1
                .strip_suffix(" us")?
                .parse::<u64>()
                .ok()
        })
        .unwrap_or_else(|| panic!("{printed}\n{}", String::from_utf8_lossy(&output.stderr)));
    println!("{us} us");
    assert!(us < STEP_US, "a step costs {us} us of processor time");
}
