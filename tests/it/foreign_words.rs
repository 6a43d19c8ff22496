//! Words of components, servers and files in errors: on a terminal they never pass for words of Toolcell.

use serde_json::json;

use crate::mcp_client::SERVER;
use crate::support::cli_user::{SCRIPTED, User};
use crate::support::pty::Terminal;

/// A word of others that no message of Toolcell has.
const WORD: &str = "outdated";

/// A sentence that would stand well in a message, with the end of a quotation. Wherever it wraps, each line has the word.
fn forged() -> String {
    format!("ok`. Toolcell is {WORD}: {WORD}: run `curl {WORD} {WORD} {WORD} {WORD}")
}

/// Name of a place of such words, and what puts them there: it returns the command that shows them.
type Place = (&'static str, fn(&User) -> Vec<String>);

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Text of TOML or JSON.
fn quoted() -> String {
    json!(forged()).to_string()
}

fn project(user: &User, toml: &str) -> Vec<String> {
    user.file("toolcell.toml", toml);
    words(&["run", "x"])
}

fn lock(user: &User, toml: &str) -> Vec<String> {
    user.file("toolcell.lock", toml);
    words(&["call", "text_count", "{}", "--locked"])
}

/// A server that writes to standard error and answers `initialize` so.
fn server(user: &User, answer: &str) -> Vec<String> {
    let script = "printf '%s\\n' \"$1\" >&2\nIFS= read -r line\nid=${line#*\\\"id\\\":}; id=${id%%,*}\n\
         printf '{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\\n' \"$id\" \"$2\"\nsleep 1\n";
    user.file("server.sh", script).configure(&format!(
        "[mcp.s]\ncommand = \"/bin/sh\"\nargs = [{}, {}, {}]\nstart_timeout = \"20s\"\n",
        json!(user.work().join("server.sh")),
        quoted(),
        json!(answer)
    ));
    words(&["mcp", "test", "s"])
}

/// A turn with a server that lists these tools.
fn tools(user: &User, tools: &[serde_json::Value]) -> Vec<String> {
    let list: Vec<String> = tools.iter().map(|tool| tool.to_string()).collect();
    let list = list.join(",");
    user.file("list", &list).configure(&format!(
        "[mcp.s]\ncommand = \"/bin/sh\"\nargs = [{}]\nstart_timeout = \"20s\"\n",
        json!(user.work().join("server.sh"))
    ));
    let (one, list) = (
        "$(tool one),$(tool two)",
        format!("$(cat {:?})", user.work().join("list")),
    );
    user.file("server.sh", SERVER.replace(one, &list));
    user.file("script.json", json!({"steps": [{"text": "Done."}]}).to_string());
    words(&[&SCRIPTED[..], &["--tool", "s"]].concat())
}

/// A program that writes the sentence and crashes.
fn crash(user: &User) -> Vec<String> {
    let text = forged();
    let module = format!(
        r#"(module
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(data (i32.const 64) "{text}")
(data (i32.const 0) "\40\00\00\00\{:02x}\00\00\00")
(func (export "_start")
  (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
  unreachable))"#,
        text.len()
    );
    user.file("crash.wasm", wat::parse_str(module).unwrap());
    words(&["call", "crash.wasm", "{}"])
}

/// A module with the sentence as the name of an import.
fn import(user: &User) -> Vec<String> {
    let module = format!(
        "(module (import \"{}\" \"f\" (func)) (func (export \"_start\")))",
        forged()
    );
    user.file("import.wasm", wat::parse_str(module).unwrap());
    words(&["call", "import.wasm", "{}"])
}

const PLACES: [Place; 18] = [
    ("crash", crash),
    ("import", import),
    ("key", |user| {
        project(user, &format!("[tools.text]\n{} = 1\n", quoted()))
    }),
    ("top-level key", |user| {
        project(user, &format!("{} = 1\n", quoted()))
    }),
    ("table", |user| {
        project(user, &format!("[tools.text.{}]\nx = 1\n", quoted()))
    }),
    ("name of a tool", |user| {
        project(user, &format!("[tools.{}]\ncomponent = \"x.wasm\"\n", quoted()))
    }),
    ("grant", |user| {
        project(user, &format!("[tools.text]\ngrants = [{}]\n", quoted()))
    }),
    ("flow", |user| {
        project(user, &format!("[approval]\nflow = {}\n", quoted()))
    }),
    ("budget", |user| {
        project(user, &format!("[budget]\ncalls = {}\n", quoted()))
    }),
    ("verdict", |user| {
        let rule = format!("{{ tool = \"x\", verdict = {} }}", quoted());
        project(user, &format!("[approval]\nrules = [{rule}]\n"))
    }),
    ("rule", |user| {
        let rule = format!("{{ tool = {}, verdict = \"deny\" }}", quoted());
        project(user, &format!("[approval]\nrules = [{rule}]\n"))
    }),
    ("key of the lock", |user| {
        lock(user, &format!("{} = 1\n", quoted()))
    }),
    ("version of the lock", |user| {
        lock(user, &format!("version = {}\n", quoted()))
    }),
    ("error of a server", |user| {
        server(
            user,
            &format!("\"error\":{{\"code\":-1,\"message\":{}}}", quoted()),
        )
    }),
    ("schema of a tool of a server", |user| {
        tools(user, &[json!({"name": "t", "inputSchema": {"type": forged()}})])
    }),
    ("names of tools of a server", |user| {
        let name = |c| format!("x`. {WORD}{c} {WORD}`");
        let tool = |c| json!({"name": name(c), "inputSchema": {"type": "object"}});
        tools(user, &[tool(':'), tool(';')])
    }),
    ("version of a server", |user| {
        let result = json!({"protocolVersion": forged(), "capabilities": {}});
        server(user, &format!("\"result\":{result}"))
    }),
    ("error of a server in a turn", |user| {
        server(
            user,
            &format!("\"error\":{{\"code\":-1,\"message\":{}}}", quoted()),
        );
        user.file("script.json", json!({"steps": [{"text": "Done."}]}).to_string());
        words(&[
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--tool",
            "s",
        ])
    }),
];

#[test]
fn words_of_others_never_begin_our_lines() {
    for (place, prepare) in PLACES {
        let user = User::new();
        let command = prepare(&user);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        for columns in [60, 100, 200] {
            let mut terminal = Terminal::start(&user, &command, "xterm-256color", columns, 40);
            terminal.finish();
            let lines = terminal.lines();
            let shown: Vec<&str> = lines
                .iter()
                .map(|line| line.rsplit('\r').next().unwrap_or(line))
                .filter(|line| line.contains(WORD))
                .collect();
            assert!(!shown.is_empty(), "{place}, {columns}: {lines:?}");
            for line in shown {
                let before = &line[..line.find(WORD).unwrap()];
                let is_quoted = before.matches('`').count() % 2 == 1;
                assert!(
                    before.contains('│') || is_quoted,
                    "{place}, {columns}: {line:?} of {lines:#?}"
                );
            }
            // Our own lines are not behind the gutter.
            for own in ["in toolcell.toml, line", " hint:"] {
                let hidden = lines
                    .iter()
                    .find(|line| line.find('│').is_some_and(|gutter| line[gutter..].contains(own)));
                assert_eq!(hidden, None, "{place}, {columns}");
            }
        }
    }
}
