//! Compares the time until the first byte of a streamed answer with that of a bare server which sends the same bytes, in the
//! same run, while a thousand other streams are open on each.
//!
//! `toolcell serve` checks the token, begins a turn of the agent with a scripted model, and streams its answer as Chat Completions; the
//! bare server is one of hyper, on which axum is built. The difference is the result, in milliseconds. Memory of the server is shown
//! before, and after the streams.
//!
//! - `cargo bench -p toolcell --bench serve` prints the table.
//! - `cargo bench -p toolcell --bench serve -- --check` takes a short run and fails if the difference is twice as large as its goal.

#![allow(clippy::unwrap_used, reason = "a benchmark that panics has failed")]

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;

/// Goal for the difference, in milliseconds.
const GOAL: f64 = 2.0;

/// Number of streams that are open meanwhile.
const STREAMS: usize = 1_000;

/// Server with a scripted model and a home of its own. Ended when dropped.
struct Served {
    child: Child,
    address: String,
    token: String,
    _home: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let script = json!({"position": "conversation", "steps": [{"text": "One two three four five."}]});
        std::fs::write(home.path().join("script.json"), script.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolcell"))
            .args(["serve", "--http", "127.0.0.1:0", "--provider", "scripted"])
            .args(["--model", "script.json", "--tool", "text"])
            .env_clear()
            .env("HOME", home.path())
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("/login?code=") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
        }
        let (_, address) = line.split_once("http://").unwrap();
        let (address, _) = address.split_once('/').unwrap();
        let token = home.path().join(".local/state/toolcell/serve-token");
        Self {
            address: address.to_owned(),
            token: std::fs::read_to_string(token).unwrap().trim().to_owned(),
            child,
            _home: home,
        }
    }

    /// Memory in use, in MiB (proc(5)); 0 where it is not known.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let line = status.iter().flat_map(|status| status.lines());
        let mut line = line.filter_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line
            .next()
            .and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) >> 10
    }

    fn head(&self, method: &str, path: &str, more: &str) -> String {
        let (address, token) = (&self.address, &self.token);
        format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n{more}\r\n")
    }
}

/// Starts a bare server that answers each request with these parts, and never ends those of `/open`.
fn bare(parts: Vec<Bytes>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let parts = parts.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let is_open = request.uri().path() == "/open";
                    let frames = parts
                        .clone()
                        .into_iter()
                        .map(|part| Ok::<_, Infallible>(Frame::data(part)));
                    let frames = futures_util::stream::iter(frames);
                    let end = futures_util::stream::once(async move {
                        if is_open {
                            std::future::pending::<()>().await;
                        }
                        Ok(Frame::data(Bytes::new()))
                    });
                    let body = StreamBody::new(futures_util::StreamExt::chain(frames, end));
                    let response = Response::builder()
                        .header("content-type", "text/event-stream")
                        .body(body);
                    async move { response }
                });
                tokio::spawn(async move {
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    });
    address
}

/// Opens streams, each of which has sent its first bytes.
fn open(address: &str, head: &str) -> Vec<TcpStream> {
    let streams = (0..STREAMS).map(|_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = [0; 16];
        stream.read_exact(&mut first).unwrap();
        assert!(
            first.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&first)
        );
        stream
    });
    streams.collect()
}

/// Sends a request; returns the milliseconds until the first byte of its body, and all of its answer.
fn ask(address: &str, request: &str) -> (f64, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let begun = Instant::now();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut part, mut first) = (Vec::new(), vec![0; 64 << 10], None);
    loop {
        let read = stream.read(&mut part).unwrap();
        answer.extend_from_slice(&part[..read]);
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
        if first.is_none() && head.is_some_and(|head| head + 4 < answer.len()) {
            first = Some(begun.elapsed().as_secs_f64() * 1e3);
        }
        if read == 0 || answer.ends_with(b"0\r\n\r\n") {
            return (first.unwrap(), String::from_utf8(answer).unwrap());
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> ExitCode {
    let is_short = std::env::args().any(|argument| argument == "--check");
    let requests = if is_short { 100 } else { 1_000 };
    let served = Served::start();
    let body = json!({"model": "default", "stream": true, "messages": [{"role": "user", "content": "Go."}]})
        .to_string();
    let more = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    let chat = served.head("POST", "/v1/chat/completions", &more) + &body;
    let (_, answer) = ask(&served.address, &chat);
    let events = answer
        .split("data: ")
        .skip(1)
        .map(|data| Bytes::from(format!("data: {data}")));
    let bare_address = bare(events.collect());
    let bare_chat = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";

    let create = served.head(
        "POST",
        "/api/sessions",
        "content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n",
    ) + "{}";
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.write_all(create.as_bytes()).unwrap();
    let mut created = String::new();
    stream.read_to_string(&mut created).unwrap();
    let (_, created) = created.split_once("\r\n\r\n").unwrap();
    let created: serde_json::Value = serde_json::from_str(created).unwrap();
    let path = format!("/api/sessions/{}/events", created["id"].as_str().unwrap());
    let before = served.memory();
    let streams = open(
        &served.address,
        &served.head("GET", &path, "accept: text/event-stream\r\n"),
    );
    let bare_streams = open(&bare_address, "GET /open HTTP/1.1\r\nhost: x\r\n\r\n");

    let (mut times, mut bare_times) = (Vec::new(), Vec::new());
    for number in 0..requests + 20 {
        let (time, answer) = ask(&served.address, &chat);
        assert!(answer.contains("data: [DONE]"), "{answer}");
        let (bare_time, _) = ask(&bare_address, bare_chat);
        // The first ones warm up.
        if number >= 20 {
            times.push(time);
            bare_times.push(bare_time);
        }
    }
    let memory = served.memory();
    drop((streams, bare_streams));
    let (time, bare) = (median(times), median(bare_times));
    let difference = time - bare;
    println!(
        "{:38} {:>9} {:>9}  difference  goal",
        "first byte, 1,000 streams open", "bare", "serve"
    );
    println!(
        "{:38} {bare:6.3} ms {time:6.3} ms   {difference:6.3} ms  {GOAL} ms",
        "streamed answer of one step"
    );
    println!(
        "memory: {before} MiB without streams, {memory} MiB after {requests} answers with {STREAMS} streams open"
    );
    if is_short && difference > 2.0 * GOAL {
        eprintln!("the difference is twice as large as its goal");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
