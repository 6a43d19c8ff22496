//! `toolcell mcp serve --http`: clients by their tokens, and the end of the server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStderr, Stdio};

use serde_json::{Value, json};

use super::{end_of, filed, text};
use crate::probe::Probe;
use crate::support::cli_user::User;

/// Server at an address of this machine.
pub(super) struct Host {
    child: Child,
    pub(super) address: String,
    stderr: BufReader<ChildStderr>,
}

/// A test that fails leaves no server behind.
impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Host {
    pub(super) fn start(user: &User, flags: &[&str]) -> Self {
        Self::start_at(user, "127.0.0.1:0", flags)
    }

    pub(super) fn start_at(user: &User, address: &str, flags: &[&str]) -> Self {
        let mut child = user
            .command(&["mcp", "serve", "--http", address])
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut told = String::new();
        while !told.ends_with("/mcp`\n") {
            assert_ne!(stderr.read_line(&mut told).unwrap(), 0, "{told}");
        }
        let address = told.rsplit_once("http://").unwrap().1;
        Self {
            child,
            address: address.trim_end_matches("/mcp`\n").to_owned(),
            stderr,
        }
    }

    fn send(&self, message: &Value, token: Option<&str>) -> TcpStream {
        let body = message.to_string();
        let method = message["method"].as_str().unwrap();
        let params = &message["params"];
        let name = [&params["name"], &params["uri"]]
            .into_iter()
            .find_map(Value::as_str);
        let name = name.unwrap_or_default();
        let authorization = token.map_or(String::new(), |token| {
            format!("authorization: Bearer {token}\r\n")
        });
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: {method}\r\nmcp-name: {name}\r\n{authorization}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        stream
    }

    /// Calls a tool, and returns the status and the answer.
    pub(super) fn call(&self, tool: &str, arguments: Value, token: Option<&str>) -> (u16, Value) {
        self.exchange(&call(tool, arguments), token)
    }

    /// Sends a request, and returns the answer.
    pub(super) fn ask(&self, method: &str, params: Value) -> Value {
        self.exchange(&request(method, params), None).1
    }

    fn exchange(&self, message: &Value, token: Option<&str>) -> (u16, Value) {
        let mut answer = String::new();
        let mut stream = self.send(message, token);
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (
            status,
            serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")),
        )
    }

    /// Reads what the server tells the user, up to a line with this part. Returns the line.
    pub(super) fn wait_for(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "{part}");
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Stops the server as a service manager does, and returns what it told the user.
    pub(super) fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(end_of(&mut self.child), Some(0));
        let mut told = String::new();
        self.stderr.read_to_string(&mut told).unwrap();
        let note = "stopping the server; a second signal ends the process immediately";
        assert!(told.contains(note), "{told}");
        told
    }
}

fn call(tool: &str, arguments: Value) -> Value {
    request("tools/call", json!({"name": tool, "arguments": arguments}))
}

fn request(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[test]
fn calls_over_http_have_the_grants_of_the_user() {
    let user = User::new();
    user.file("notes.md", "one two three");
    let host = Host::start(&user, &["--tool", "text", "--grant", "read=."]);
    let (status, counted) = host.call("text_count", json!({"path": "notes.md"}), None);
    assert_eq!(status, 200);
    assert!(text(&counted["result"]).contains("\"words\":3"), "{counted}");
    host.stop();
    let host = Host::start(&user, &["--tool", "text"]);
    let (_, refused) = host.call("text_count", json!({"path": "notes.md"}), None);
    assert_eq!(refused["result"]["isError"], true);
    let told = host.stop();
    assert!(told.contains("--grant text:read=."), "{told}");
}

#[test]
fn token_has_a_budget_of_its_own() {
    let user = User::new();
    user.configure("[budget]\ncalls = 1\n");
    let (one, two) = ("1".repeat(32), "2".repeat(32));
    user.file("tokens", format!("# of the tests\n{one}\n\n{two}\n"));
    let file = user.work().join("tokens");
    let flags = ["--tool", "text", "--token-file", "tokens"];
    for mode in [0o640, 0o604] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut arguments = vec!["mcp", "serve", "--http", "127.0.0.1:0"];
        arguments.extend(flags);
        let seen = user.run(&arguments).ended(3);
        assert!(
            seen.stderr.contains("other users can read or change it"),
            "{}",
            seen.stderr
        );
        assert!(seen.stderr.contains("chmod 600"), "{}", seen.stderr);
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let host = Host::start(&user, &flags);
    let count = |token: Option<&str>| host.call("text_count", json!({"text": "a b"}), token);
    assert_eq!(count(None).0, 401);
    assert_eq!(count(Some(&"3".repeat(32))).0, 401);
    assert_eq!(count(Some(&one)).1["result"]["isError"], false);
    let refused = count(Some(&one)).1;
    assert!(
        text(&refused["result"]).contains("the budget of calls is used up"),
        "{refused}"
    );
    assert_eq!(count(Some(&two)).1["result"]["isError"], false);
    let told = host.stop();
    assert!(!told.contains(&one), "{told}");
}

#[test]
fn address_of_other_machines_and_weak_tokens_are_refused() {
    let user = User::new();
    let seen = user
        .run(&["mcp", "serve", "--http", "0.0.0.0:0", "--tool", "text"])
        .ended(2);
    assert!(
        seen.stderr
            .contains("cannot listen on `0.0.0.0:0` without authentication"),
        "{}",
        seen.stderr
    );
    user.file("tokens", "short\n");
    std::fs::set_permissions(user.work().join("tokens"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let flags = [
        "mcp",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--tool",
        "text",
        "--token-file",
        "tokens",
    ];
    let seen = user.run(&flags).ended(3);
    assert!(
        seen.stderr.contains("line 1: it has fewer than 32 characters"),
        "{}",
        seen.stderr
    );
    assert!(!seen.stderr.contains("short"), "{}", seen.stderr);
    user.file("tokens", "0123456789abcdef0123456789abcdef\n".repeat(2));
    let seen = user.run(&flags).ended(3);
    assert!(seen.stderr.contains("a token occurs twice"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("0123456789"), "{}", seen.stderr);
}

#[test]
fn host_and_origin_that_match_no_request_are_refused() {
    let user = User::new();
    for (flag, value) in [
        ("--allow-host", "https://tools.example"),
        ("--allow-host", "*"),
        ("--allow-origin", "tools.example"),
        ("--allow-origin", "https://tools.example/app"),
    ] {
        let serve = ["--http", "127.0.0.1:0", flag, value];
        for command in [&["mcp", "serve"][..], &["serve"]] {
            let seen = user.run(&[command, &serve].concat()).ended(2);
            assert!(seen.stderr.contains("such as"), "{}", seen.stderr);
        }
    }
}

#[test]
fn server_on_all_addresses_tells_what_it_accepts() {
    let user = User::new();
    user.file("tokens", "0123456789abcdef0123456789abcdef\n");
    std::fs::set_permissions(user.work().join("tokens"), std::fs::Permissions::from_mode(0o600)).unwrap();
    for (flags, is_told) in [(&[][..], true), (&["--allow-host", "tools.example"], false)] {
        let flags = [&["--tool", "text", "--token-file", "tokens"][..], flags].concat();
        let host = Host::start_at(&user, "0.0.0.0:0", &flags);
        let told = host.stop();
        assert_eq!(
            told.contains("only requests to an address of this machine"),
            is_told,
            "{told}"
        );
    }
}

#[test]
fn closed_connection_ends_its_call_and_files_it() {
    let user = User::new();
    user.configure(&format!("[log]\ndir = {:?}\n", user.work().join("log")));
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let flags = [
        "--tool",
        "loop.wasm",
        "--limit",
        "wall=600s",
        "--limit",
        "fuel=1000T",
    ];
    let host = Host::start(&user, &flags);
    let cells = || {
        let mut stream = TcpStream::connect(&host.address).unwrap();
        let address = &host.address;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).unwrap();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("toolcell_cells "));
        line.unwrap().to_owned()
    };
    let stream = host.send(&call("probe", json!({})), None);
    while cells() == "0" {}
    drop(stream);
    while cells() != "0" {}
    host.stop();
    let finished = filed(&user);
    assert_eq!(finished.len(), 1, "{finished:?}");
    assert!(
        finished[0].to_string().contains("\"kind\":\"cancelled\""),
        "{finished:?}"
    );
}
