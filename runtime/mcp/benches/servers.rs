//! Compares `toolcell mcp serve` with a minimal server on the TypeScript SDK, which has no sandbox, in the same run: over standard
//! input and output, and over HTTP. Both have a tool that returns its arguments, so that what is compared is the protocol, and a call
//! in a new cell. The ratios are the result; times vary between machines.
//!
//! `runtime/mcp/benches/run` installs the SDK and runs this.
//!
//! - `TOOLCELL` is the binary, `PEER` the script of the other server, `NODE` the program that runs it.
//! - With `-- --check`, it takes a short run and fails if a ratio is twice as bad as its goal.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark that panics has failed"
)]

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Goal for the time of a call, relative to the other server.
const GOAL_TIME: f64 = 1.25;

/// Goal for the calls per second with [`IN_FLIGHT`] calls at one time, relative to the other server.
const GOAL_RATE: f64 = 1.3;

/// Goal for the time from the start to the answer to `initialize`, with cached code.
const GOAL_START: Duration = Duration::from_millis(6);

/// Goal for the resident memory after all calls, in MiB.
const GOAL_MEMORY: f64 = 40.0;

/// Calls at one time.
const IN_FLIGHT: usize = 16;

/// The tool of Toolcell.
const TOOL: &str = include_str!("echo.wat");

const VERSION: &str = "2025-11-25";

/// What is measured of a server.
#[derive(Debug, Clone, Copy)]
struct Measured {
    start: Duration,
    sequential: Duration,
    rate: f64,
    /// Resident memory, in MiB.
    memory: f64,
}

/// Numbers of starts and calls in a round, and of rounds.
#[derive(Clone, Copy)]
struct Size {
    rounds: usize,
    starts: usize,
    calls: usize,
}

fn main() -> ExitCode {
    let is_check = env::args().any(|argument| argument == "--check");
    let (Ok(toolcell), Ok(peer)) = (env::var("TOOLCELL"), env::var("PEER")) else {
        eprintln!("not run: TOOLCELL or PEER is not set; see runtime/mcp/benches/run");
        return ExitCode::SUCCESS;
    };
    let node = env::var("NODE").unwrap_or_else(|_| "node".into());
    let size = match is_check {
        true => Size {
            rounds: 3,
            starts: 5,
            calls: 1_000,
        },
        false => Size {
            rounds: 7,
            starts: 9,
            calls: 10_000,
        },
    };
    let tool = concat!(env!("CARGO_TARGET_TMPDIR"), "/echo.wasm");
    std::fs::write(tool, wat::parse_str(TOOL).unwrap()).unwrap();
    let ours = ["mcp", "serve", "--tool", tool];
    let servers = [
        [&[toolcell.as_str()][..], &ours].concat(),
        vec![node.as_str(), &peer],
    ];
    let over_http = [
        [&servers[0][..], &["--http", "127.0.0.1:0"]].concat(),
        [&servers[1][..], &["--http"]].concat(),
    ];
    println!("| | start | a call | calls a second, {IN_FLIGHT} at a time | memory |\n|---|---|---|---|---|");
    let mut is_good = true;
    for (name, commands, measure) in [
        ("stdio", servers, stdio as fn(&[&str], Size) -> Measured),
        ("HTTP", over_http, http),
    ] {
        // In turns, so that other load of the machine meets both.
        let mut rounds: [Vec<Measured>; 2] = Default::default();
        for _ in 0..size.rounds {
            for (command, measured) in commands.iter().zip(&mut rounds) {
                measured.push(measure(command, size));
            }
        }
        let [ours, other] = rounds.map(|rounds| median_of(&rounds));
        print(&format!("toolcell, {name}"), &ours);
        print(&format!("TypeScript SDK, {name}"), &other);
        let time = ours.sequential.as_secs_f64() / other.sequential.as_secs_f64();
        let rate = ours.rate / other.rate;
        println!("| ratio, {name} | | {time:.2} | {rate:.2} | |");
        let start = ours.start.as_secs_f64() / GOAL_START.as_secs_f64();
        let memory = ours.memory / GOAL_MEMORY;
        is_good &= [time / GOAL_TIME, GOAL_RATE / rate, start, memory]
            .iter()
            .all(|bad| *bad < 2.0);
    }
    match is_check && !is_good {
        true => {
            eprintln!(
                "twice as bad as a goal: {GOAL_TIME} times the time, {GOAL_RATE} times the rate, {GOAL_START:?}, {GOAL_MEMORY} MiB"
            );
            ExitCode::FAILURE
        }
        false => ExitCode::SUCCESS,
    }
}

fn print(name: &str, measured: &Measured) {
    println!(
        "| {name} | {:.1} ms | {:.1} µs | {:.0} | {:.0} MiB |",
        measured.start.as_secs_f64() * 1e3,
        measured.sequential.as_secs_f64() * 1e6,
        measured.rate,
        measured.memory
    );
}

fn median<T: PartialOrd + Copy>(mut all: Vec<T>) -> T {
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all[all.len() / 2]
}

fn median_of(rounds: &[Measured]) -> Measured {
    let of = |value: fn(&Measured) -> f64| median(rounds.iter().map(value).collect());
    Measured {
        start: median(rounds.iter().map(|of| of.start).collect()),
        sequential: median(rounds.iter().map(|of| of.sequential).collect()),
        rate: of(|of| of.rate),
        memory: of(|of| of.memory),
    }
}

fn initialize() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
    )
}

fn call(id: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"one two three"}}}}}}"#
    )
}

fn check(answer: &str) {
    let is_good = answer.contains(r#"{\"text\":\"one two three\"}"#) && !answer.contains(r#""isError":true"#);
    assert!(is_good, "{answer}");
}

/// Server that is killed when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(command: &[&str], stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Self {
        let mut server = Command::new(command[0]);
        server
            .args(&command[1..])
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr);
        Self(server.spawn().unwrap())
    }

    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

struct Pipe {
    server: Server,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Pipe {
    /// Starts a server and a session.
    fn start(command: &[&str]) -> Self {
        let mut server = Server::start(command, Stdio::piped(), Stdio::piped(), Stdio::null());
        let input = server.0.stdin.take().unwrap();
        let output = BufReader::with_capacity(1 << 16, server.0.stdout.take().unwrap());
        let mut pipe = Self {
            server,
            input,
            output,
            line: String::new(),
        };
        pipe.send(&initialize());
        assert!(pipe.next().contains(VERSION), "{}", pipe.line);
        pipe
    }

    fn send(&mut self, message: &str) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).unwrap();
    }

    fn next(&mut self) -> &str {
        self.line.clear();
        assert_ne!(
            self.output.read_line(&mut self.line).unwrap(),
            0,
            "the server has ended"
        );
        &self.line
    }
}

fn stdio(command: &[&str], size: Size) -> Measured {
    // The first one may compile.
    drop(Pipe::start(command));
    let starts = (0..size.starts).map(|_| {
        let begun = Instant::now();
        let pipe = Pipe::start(command);
        let start = begun.elapsed();
        drop(pipe);
        start
    });
    let start = median(starts.collect());
    let mut pipe = Pipe::start(command);
    pipe.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let mut times = Vec::with_capacity(size.calls);
    for id in 0..size.calls * 2 {
        let begun = Instant::now();
        pipe.send(&call(id));
        check(pipe.next());
        // The first half warms up.
        if id >= size.calls {
            times.push(begun.elapsed());
        }
    }
    let begun = Instant::now();
    (0..IN_FLIGHT).for_each(|id| pipe.send(&call(id)));
    for id in IN_FLIGHT..IN_FLIGHT + size.calls {
        check(pipe.next());
        pipe.send(&call(id));
    }
    let rate = size.calls as f64 / begun.elapsed().as_secs_f64();
    (0..IN_FLIGHT).for_each(|_| check(pipe.next()));
    Measured {
        start,
        sequential: median(times),
        rate,
        memory: pipe.server.memory(),
    }
}

/// Connection that stays open.
struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
    path: String,
    session: String,
    body: String,
}

impl Connection {
    fn open(url: &str, session: &str) -> Self {
        let rest = url.strip_prefix("http://").unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            address: address.into(),
            path: format!("/{path}"),
            session: session.into(),
            body: String::new(),
        }
    }

    /// Sends a message and reads the answer. Returns the session that it begins.
    fn ask(&mut self, message: &str) -> Option<String> {
        let session = match self.session.as_str() {
            "" => String::new(),
            id => format!("mcp-session-id: {id}\r\n"),
        };
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: {VERSION}\r\n{session}content-length: {}\r\n\r\n{message}",
            self.path,
            self.address,
            message.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut length, mut is_chunked, mut begun) = (0, false, None);
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else {
                match line.is_empty() {
                    true => break,
                    false => continue,
                }
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "transfer-encoding" => is_chunked = true,
                "mcp-session-id" => begun = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        self.body.clear();
        if !is_chunked {
            self.take(length);
            return begun;
        }
        loop {
            let length = usize::from_str_radix(&self.line(), 16).unwrap();
            self.take(length);
            self.line();
            if length == 0 {
                return begun;
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(
            self.stream.read_line(&mut line).unwrap(),
            0,
            "the server has closed the connection"
        );
        line.trim_end().to_owned()
    }

    fn take(&mut self, length: usize) {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        self.body.push_str(std::str::from_utf8(&bytes).unwrap());
    }
}

/// Starts a server, which writes its URL to standard error, and a session.
fn start_http(command: &[&str]) -> (Server, Connection) {
    let mut server = Server::start(command, Stdio::null(), Stdio::null(), Stdio::piped());
    let mut told = BufReader::new(server.0.stderr.take().unwrap());
    let url = loop {
        let mut line = String::new();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "the server has ended");
        if let Some(at) = line.find("http://") {
            let end = |c: char| c == '`' || c.is_whitespace();
            break line[at..].split(end).next().unwrap().to_owned();
        }
    };
    // What it tells later is read, so that it never waits.
    std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
    let mut connection = Connection::open(&url, "");
    let session = connection.ask(&initialize());
    assert!(connection.body.contains(VERSION), "{}", connection.body);
    connection.session = session.unwrap_or_default();
    (server, connection)
}

fn http(command: &[&str], size: Size) -> Measured {
    drop(start_http(command));
    let starts = (0..size.starts).map(|_| {
        let begun = Instant::now();
        let started = start_http(command);
        let start = begun.elapsed();
        drop(started);
        start
    });
    let start = median(starts.collect());
    let (server, mut connection) = start_http(command);
    let mut times = Vec::with_capacity(size.calls);
    for id in 0..size.calls * 2 {
        let begun = Instant::now();
        connection.ask(&call(id));
        check(&connection.body);
        if id >= size.calls {
            times.push(begun.elapsed());
        }
    }
    let url = format!("http://{}{}", connection.address, connection.path);
    let session = connection.session.clone();
    let each = size.calls / IN_FLIGHT;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..IN_FLIGHT {
            let (url, session) = (&url, &session);
            scope.spawn(move || {
                let mut connection = Connection::open(url, session);
                for id in 0..each {
                    connection.ask(&call(client * each + id));
                    check(&connection.body);
                }
            });
        }
    });
    let rate = (each * IN_FLIGHT) as f64 / begun.elapsed().as_secs_f64();
    Measured {
        start,
        sequential: median(times),
        rate,
        memory: server.memory(),
    }
}
