//! Compares a turn with two requests with simply sending them, in the same run: a model on loopback, which streams a call
//! of `text_count` and then an answer.
//!
//! The turn sends both requests, reads the events, runs the call in a cell and builds the answer. The bare loop sends the
//! same bodies with the same HTTP client and reads the bytes. The ratio is the result; times vary between machines.
//!
//! - `cargo bench -p toolcell --bench turn` prints the table.
//! - `cargo bench -p toolcell --bench turn -- --check` takes a short run and fails if the ratio is twice as bad as its goal.

#![allow(clippy::unwrap_used, reason = "a benchmark that panics has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::json;
use toolcell_agent::Agent;
use toolcell_core::Policy;
use toolcell_providers::Connection;
use toolcell_providers::openai::OpenAi;
use toolcell_sandbox::{Sandbox, SandboxOptions};

/// Goal for the time of a turn, relative to the bare requests.
const GOAL: f64 = 1.5;

/// Number of pieces of text in the answer.
const PIECES: usize = 20;

/// Bodies of the last two requests.
type Bodies = Arc<Mutex<[Vec<u8>; 2]>>;

/// Starts a server of the Chat Completions protocol, one thread for each connection, and returns its base URL.
fn serve(bodies: Bodies) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let bodies = bodies.clone();
            std::thread::spawn(move || answer(&stream.unwrap(), &bodies));
        }
    });
    format!("http://{address}/v1")
}

/// Answers the requests of one connection until it is closed.
fn answer(stream: &TcpStream, bodies: &Bodies) {
    stream.set_nodelay(true).unwrap();
    let answers = [stream_of(&call()), stream_of(&text())];
    let mut input = BufReader::new(stream);
    let mut output = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body).unwrap();
        let needle: &[u8] = br#""role":"tool""#;
        let has_result = body.windows(needle.len()).any(|part| part == needle);
        bodies.lock().unwrap()[usize::from(has_result)] = body;
        output.write_all(&answers[usize::from(has_result)]).unwrap();
    }
}

/// Returns a response with these events.
fn stream_of(events: &[serde_json::Value]) -> Vec<u8> {
    let mut response =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let lines = events.iter().map(|event| format!("data: {event}\n\n"));
    for line in lines.chain(["data: [DONE]\n\n".to_owned()]) {
        response.extend(format!("{:x}\r\n{line}\r\n", line.len()).into_bytes());
    }
    response.extend(b"0\r\n\r\n");
    response
}

fn chunk(delta: &serde_json::Value, finish: Option<&str>) -> serde_json::Value {
    let choices = [json!({"index": 0, "delta": delta, "finish_reason": finish})];
    json!({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": choices})
}

fn call() -> Vec<serde_json::Value> {
    let arguments = json!({"text": "one two three"}).to_string();
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "text_count", "arguments": arguments}});
    vec![
        chunk(&json!({"role": "assistant", "tool_calls": [call]}), None),
        chunk(&json!({}), Some("tool_calls")),
    ]
}

fn text() -> Vec<serde_json::Value> {
    let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    events.extend((0..PIECES).map(|piece| chunk(&json!({"content": format!("word{piece} ")}), None)));
    events.push(chunk(&json!({}), Some("stop")));
    events
}

/// Sends both requests and reads their responses.
async fn bare(client: &reqwest::Client, url: &str, bodies: &[Vec<u8>; 2]) {
    for body in bodies {
        let request = client.post(url).header("content-type", "application/json");
        let mut response = request.body(body.clone()).send().await.unwrap();
        while response.chunk().await.unwrap().is_some() {}
    }
}

async fn agent(url: &str) -> Agent {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/prebuilt/text.wasm");
    let text = sandbox.load("text", &std::fs::read(path).unwrap()).await.unwrap();
    let model = OpenAi::new(Connection::new("m").with_base_url(url)).unwrap();
    let tools = text.tools(Policy::default());
    Agent::builder(model).tools(tools).build().unwrap()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let is_short = std::env::args().any(|argument| argument == "--check");
    let (rounds, turns) = if is_short { (5, 100) } else { (15, 400) };
    let bodies = Bodies::default();
    let url = serve(bodies.clone());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let agent = runtime.block_on(agent(&url));
    let tls = toolcell_tls::client_config(&[]).unwrap();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .build()
        .unwrap();
    let completions = format!("{url}/chat/completions");
    let (mut turn_times, mut bare_times) = (Vec::new(), Vec::new());
    // The first round warms caches and connections, and records the bodies.
    for round in 0..=rounds {
        let begun = Instant::now();
        runtime.block_on(async {
            for _ in 0..turns {
                let report = agent
                    .session()
                    .ask("How many words are in the text?")
                    .await
                    .unwrap();
                assert_eq!(
                    (report.steps, report.text.split_whitespace().count()),
                    (2, PIECES)
                );
            }
        });
        let turn = begun.elapsed().as_secs_f64() * 1e3 / f64::from(turns);
        let sent = bodies.lock().unwrap().clone();
        let begun = Instant::now();
        runtime.block_on(async {
            for _ in 0..turns {
                bare(&client, &completions, &sent).await;
            }
        });
        if round > 0 {
            turn_times.push(turn);
            bare_times.push(begun.elapsed().as_secs_f64() * 1e3 / f64::from(turns));
        }
    }
    let (bare, turn) = (median(bare_times), median(turn_times));
    let ratio = turn / bare;
    println!(
        "{:30} {:>9} {:>9}  ratio  goal",
        "time of two requests", "bare", "turn"
    );
    println!(
        "{:30} {bare:6.3} ms {turn:6.3} ms  {ratio:5.2}  {GOAL}",
        "turn with one call"
    );
    if is_short && ratio > 2.0 * GOAL {
        eprintln!("the ratio is twice as bad as its goal");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
