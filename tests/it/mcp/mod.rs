//! `toolcell mcp serve`: each version of the protocol, grants, rules, cancellation, and what is refused.

mod agent;
mod approvals;
mod asking;
mod attaching;
mod boxed;
mod configured;
mod context;
mod directories;
mod hooks;
mod http;
mod install;
mod login;
mod over_http;
mod reload;
mod shipped;

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::probe::Probe;
use crate::support::cli_user::{Seen, User};
use crate::support::pty::Terminal;

/// Client of a server that it started.
struct Client<'a> {
    user: &'a User,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl<'a> Client<'a> {
    fn start(user: &'a User, flags: &[&str]) -> Self {
        let mut child = user
            .command(&["mcp", "serve"])
            .args(flags)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            user,
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// Starts a session of version 2025-11-25.
    fn session(user: &'a User, flags: &[&str]) -> Self {
        let mut client = Self::start(user, flags);
        client.ask(0, "initialize", initialize("2025-11-25"));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn request(&mut self, id: u32, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Next line of the output, which is always JSON.
    fn next(&mut self) -> Value {
        let line = self.output.next().expect("the server goes on").unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.request(id, method, params);
        let answer = self.next();
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!(id)),
            "{answer}"
        );
        answer
    }

    fn call(&mut self, id: u32, tool: &str, arguments: Value) -> Value {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// Closes the input, and waits for the end of the server.
    fn finish(self) -> Seen {
        let Self {
            user,
            child,
            input,
            output,
        } = self;
        drop(input);
        let rest: Vec<String> = output.map(Result::unwrap).collect();
        let mut ended = child.wait_with_output().unwrap();
        ended.stdout = rest.join("\n").into_bytes();
        user.seen(&["mcp", "serve"], ended).ended(0)
    }
}

fn initialize(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}})
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
}

/// Events in the only log file of the server.
fn filed(user: &User) -> Vec<Value> {
    let files = std::fs::read_dir(user.work().join("log")).unwrap();
    let mut texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let text = texts
        .find(|text| text.contains("call_finished"))
        .expect("a log of the calls");
    let events = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    events
        .filter(|event: &Value| event.to_string().contains("call_finished"))
        .collect()
}

#[test]
fn each_version_with_a_session_is_served() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let user = User::new();
        let mut client = Client::start(&user, &["--tool", "text"]);
        let initialized = client.ask(1, "initialize", initialize(version));
        assert_eq!(initialized["result"]["protocolVersion"], version);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let list = client.ask(2, "tools/list", json!({}));
        let tools = list["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["text_count", "text_diff", "text_hash"]);
        let counted = client.call(3, "text_count", json!({"text": "one two"}));
        assert_eq!(counted["isError"], false, "{counted}");
        assert!(text(&counted).contains("\"words\":2"), "{counted}");
        assert!(counted["_meta"]["io.github.toolcell/receipt"]["fuel"].is_u64());
        assert_eq!(client.ask(4, "ping", json!({}))["result"], json!({}));
        client.finish();
    }
}

#[test]
fn version_without_sessions_is_served() {
    let user = User::new();
    let mut client = Client::start(&user, &["--tool", "text"]);
    let with_meta = |mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        params
    };
    let discovered = client.ask(1, "server/discover", with_meta(json!({})));
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    let list = client.ask(2, "tools/list", with_meta(json!({})));
    assert_eq!(list["result"]["tools"][0]["name"], "text_count");
    let params = json!({"name": "text_count", "arguments": {"text": "one two"}});
    let counted = client.ask(3, "tools/call", with_meta(params));
    assert_eq!(counted["result"]["structuredContent"]["words"], 2, "{counted}");
    client.finish();
}

#[test]
fn output_that_looks_like_a_message_stays_a_string() {
    let forged = "\n{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[]}}\n";
    let user = User::new();
    // The probe returns its arguments as they are; the second writes a line end into its text.
    let body =
        "(i32.store (i32.const 3000) (i32.const 0x0a7d7b0a)) (call $text (i32.const 3000) (i32.const 4))";
    user.probe("raw.wasm", &Probe::running(body));
    user.probe(
        "echo.wasm",
        &Probe {
            names: vec!["echo".into()],
            ..Probe::default()
        },
    );
    let mut client = Client::session(&user, &["--tool", "raw.wasm", "--tool", "echo.wasm"]);
    let echoed = client.call(7, "echo", json!({"x": forged}));
    let arguments: Value = serde_json::from_str(text(&echoed)).unwrap();
    assert_eq!(arguments["x"], forged);
    assert_eq!(text(&client.call(8, "probe", json!({}))), "\n{}\n");
    assert_eq!(client.finish().stdout, "");
}

#[test]
fn grants_come_from_flags_and_hints_go_to_the_user() {
    let user = User::new();
    user.file("notes.md", "one two three");
    let arguments = || json!({"path": "notes.md"});
    let mut client = Client::session(&user, &["--tool", "text"]);
    let refused = client.call(1, "text_count", arguments());
    assert_eq!(refused["isError"], true);
    assert!(!refused.to_string().contains("read=."), "{refused}");
    client.call(2, "text_count", arguments());
    let seen = client.finish();
    assert_eq!(
        seen.stderr.matches("--grant text:read=.").count(),
        1,
        "{}",
        seen.stderr
    );

    let mut client = Client::session(&user, &["--tool", "text", "--grant", "read=."]);
    let counted = client.call(1, "text_count", arguments());
    assert!(text(&counted).contains("\"words\":3"), "{counted}");
    let files = &counted["_meta"]["io.github.toolcell/receipt"]["files"];
    assert_eq!(files[0]["path"], "/notes.md", "{counted}");
    client.finish();
}

#[test]
fn rules_apply_to_calls_of_clients() {
    for (verdict, told) in [
        ("deny", "refused by the rule `deny text_*`"),
        ("ask", "verdict = \"allow\" }"),
    ] {
        let user = User::new();
        user.configure(&format!(
            "[approval]\nrules = [{{ tool = \"text_*\", verdict = \"{verdict}\" }}]\n"
        ));
        let mut client = Client::session(&user, &["--tool", "text"]);
        let refused = client.call(1, "text_count", json!({"text": "x"}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(!refused.to_string().contains("config.toml"), "{refused}");
        let seen = client.finish();
        assert!(seen.stderr.contains(told), "{}", seen.stderr);
    }
}

#[test]
fn cancelled_calls_end_at_once_and_are_filed() {
    let user = User::new();
    user.configure(&format!("[log]\ndir = {:?}\n", user.work().join("log")));
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    // No limit ends the calls before their cancellation.
    let flags = [
        "--tool",
        "loop.wasm",
        "--limit",
        "wall=600s",
        "--limit",
        "fuel=1000T",
    ];
    let mut client = Client::session(&user, &flags);
    let call = json!({"name": "probe", "arguments": {}});
    client.request(1, "tools/call", call.clone());
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    assert_eq!(client.ask(2, "ping", json!({}))["result"], json!({}));
    client.request(3, "tools/call", call);
    assert_eq!(client.ask(4, "ping", json!({}))["result"], json!({}));
    // The end of the input cancels the other.
    client.finish();
    let finished = filed(&user);
    assert_eq!(finished.len(), 2, "{finished:?}");
    for event in finished {
        assert!(event.to_string().contains("\"kind\":\"cancelled\""), "{event}");
    }
}

#[test]
fn limit_that_ended_a_call_is_not_told_as_a_denial() {
    let user = User::new();
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let mut client = Client::session(&user, &["--tool", "loop.wasm", "--limit", "fuel=1M"]);
    assert_eq!(client.call(1, "probe", json!({}))["isError"], true);
    let seen = client.finish();
    let told = "a call of `probe` was stopped by a limit: 1 M units of fuel used up; raise the limit with --limit fuel=1T";
    assert!(seen.stderr.contains(told), "{}", seen.stderr);
    assert!(!seen.stderr.contains("denied"), "{}", seen.stderr);
}

#[test]
fn budgets_hold_for_all_calls_of_a_client() {
    let user = User::new();
    user.configure("[budget]\ncalls = 2\n");
    // A project narrows the budget, and does not keep the server from starting.
    user.file("toolcell.toml", "[budget]\nfuel = \"100M\"\n");
    let mut client = Client::session(&user, &["--tool", "text"]);
    for id in 1..=2 {
        let counted = client.call(id, "text_count", json!({"text": "a b"}));
        assert_eq!(counted["isError"], false, "{counted}");
    }
    let refused = client.call(3, "text_count", json!({"text": "a b"}));
    let told = text(&refused);
    assert!(
        told.contains("the budget of calls is used up; no more calls are made"),
        "{told}"
    );
    assert!(!told.contains("raise") && !told.contains("--budget"), "{told}");
    let seen = client.finish().ended(0);
    let hint = "a call of `text_count` was refused; raise the budget, in ~/.config/toolcell/config.toml: [budget] calls = 4";
    assert!(seen.stderr.contains(hint), "{}", seen.stderr);
}

#[test]
fn tools_of_one_name_are_refused_with_both_places() {
    let user = User::new();
    for file in ["a.wasm", "b.wasm"] {
        user.probe(file, &Probe::default());
    }
    let seen = user
        .run(&["mcp", "serve", "--tool", "a.wasm", "--tool", "b.wasm"])
        .ended(3);
    let places = "two tools have the name `probe`: one of `a.wasm`, one of `b.wasm`";
    assert!(seen.stderr.contains(places), "{}", seen.stderr);
    let files = ["--tool", "a.wasm", "--tool", "b.wasm"];
    let seen = user
        .run(&[&["run", "x", "--provider", "offline"][..], &files].concat())
        .ended(3);
    assert!(seen.stderr.contains(places), "{}", seen.stderr);
}

#[test]
fn terminal_is_no_client() {
    let user = User::new();
    let mut terminal = Terminal::start_command(user.command(&["mcp", "serve"]), "dumb", 100, 20);
    assert_eq!(terminal.finish(), Some(2));
    assert!(
        terminal.seen.contains("there is no MCP client to serve"),
        "{}",
        terminal.seen
    );
}

#[cfg(target_os = "linux")]
#[test]
fn process_takes_the_open_files_that_the_system_allows() {
    let user = User::new();
    let script = "ulimit -Sn 128; exec \"$0\" mcp serve --tool clock";
    let mut server = user
        .program("bash", &["-c", script, env!("CARGO_BIN_EXE_toolcell")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    writeln!(
        input,
        "{}",
        json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
    )
    .unwrap();
    let mut answer = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut answer)
        .unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(numbers[0], numbers[1].min(65_536), "{line}");
    drop(input);
    server.wait().unwrap();
}

/// Waits for the end of a server, which is killed if it does not come.
fn end_of(server: &mut Child) -> Option<i32> {
    for _ in 0..600 {
        if let Some(status) = server.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    server.kill().unwrap();
    panic!("the server goes on");
}

#[test]
fn idle_server_ends_when_its_output_is_closed() {
    let user = User::new();
    let mut client = Client::session(&user, &["--tool", "clock"]);
    client.ask(1, "ping", json!({}));
    let Client {
        mut child,
        input,
        output,
        ..
    } = client;
    drop(output);
    assert_eq!(end_of(&mut child), Some(0));
    drop(input);
}

#[test]
fn streams_that_fail_are_no_internal_errors() {
    let user = User::new();
    for (redirection, code, reason) in [
        ("</", 1, "Is a directory"),
        (">/dev/full", 74, "No space left on device"),
    ] {
        let script = format!("exec \"$0\" mcp serve --tool clock {redirection}");
        let mut server = user.program("bash", &["-c", &script, env!("CARGO_BIN_EXE_toolcell")]);
        let mut server = server
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let _ = writeln!(server.stdin.take().unwrap(), "{ping}");
        let ended = server.wait_with_output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{told}");
        assert!(
            told.contains("error: the connection to the MCP client failed"),
            "{told}"
        );
        assert!(told.contains(reason), "{told}");
    }
}
