//! MCP servers that are components: programs in a cell from their start to their end, with the grants of their table.

use serde_json::{Value, json};

use crate::mcp_client::{calls, result};
use crate::support::cli_user::User;

/// A program for preview 1 that is a server of version 2025-06-18 with the tool `look`. Its answers are written for the order in
/// which a client sends its messages; that of a call is the text of the file `notes.md`.
fn server() -> Vec<u8> {
    server_that("")
}

/// The same; after the answer to a call it runs these instructions, for which the path `late` is at `$late`.
fn server_that(after_call: &str) -> Vec<u8> {
    let answers = [
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}).to_string() + "\n",
        json!({"jsonrpc": "2.0", "id": 2, "result": {"protocolVersion": "2025-06-18", "capabilities": {}}})
            .to_string()
            + "\n",
        // A notification.
        String::new(),
        json!({"jsonrpc": "2.0", "id": 3, "result": {"tools": [
            {"name": "look", "description": "For tests.", "inputSchema": {"type": "object"}},
        ]}})
        .to_string()
            + "\n",
    ];
    let call = [
        r#"{"jsonrpc":"2.0","id":"#,
        r#","result":{"content":[{"type":"text","text":""#,
        "\"}]}}\n",
        "denied",
        "notes.md",
        "late",
    ];
    let mut data = String::new();
    let mut at = 1024;
    let mut place = |text: &str| {
        let bytes: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        data.push_str(&format!("(data (i32.const {at}) \"{bytes}\")\n"));
        let placed = format!("(i32.const {at}) (i32.const {})", text.len());
        at += text.len();
        placed
    };
    let canned: String = answers
        .iter()
        .enumerate()
        .map(|(number, answer)| {
            let placed = place(answer);
            format!(
                "(if (i32.eq (local.get $n) (i32.const {number})) (then (call $write {placed}) (return)))\n"
            )
        })
        .collect();
    let [before, after, end, denied, file, late] = call.map(&mut place);
    let after_call = after_call.replace("$late", &late);
    let text = format!(
        r#"(module
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_open"
  (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
(memory (export "memory") 2)
{data}
(func $write (param $at i32) (param $len i32)
  (i32.store (i32.const 0) (local.get $at))
  (i32.store (i32.const 4) (local.get $len))
  (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
(func $read (param $fd i32) (param $at i32) (param $len i32) (result i32)
  (i32.store (i32.const 0) (local.get $at))
  (i32.store (i32.const 4) (local.get $len))
  (i32.store (i32.const 8) (i32.const 0))
  (drop (call $fd_read (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)))
  (i32.load (i32.const 8)))
(func $answer (param $n i32)
  {canned}
  (call $write {before})
  (i32.store8 (i32.const 900) (i32.add (i32.const 48) (local.get $n)))
  (call $write (i32.const 900) (i32.const 1))
  (call $rest))
(func $rest (local $len i32)
  (call $write {after})
  (if (call $path_open (i32.const 3) (i32.const 0) {file} (i32.const 0)
      (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16))
    (then (call $write {denied}))
    (else
      (local.set $len (call $read (i32.load (i32.const 16)) (i32.const 70000) (i32.const 1000)))
      (call $write (i32.const 70000) (local.get $len))))
  (call $write {end})
  {after_call})
(func (export "_start") (local $n i32) (local $i i32) (local $len i32)
  (block $end (loop $next
    (local.set $len (call $read (i32.const 0) (i32.const 20000) (i32.const 40000)))
    (br_if $end (i32.eqz (local.get $len)))
    (local.set $i (i32.const 0))
    (loop $byte
      (if (i32.eq (i32.load8_u (i32.add (i32.const 20000) (local.get $i))) (i32.const 10))
        (then (call $answer (local.get $n)) (local.set $n (i32.add (local.get $n) (i32.const 1)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $byte (i32.lt_u (local.get $i) (local.get $len))))
    (br $next)))))"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A user with the server `box`; `more` are further keys of its table.
fn user(more: &str) -> User {
    let user = User::new();
    user.file("server.wasm", server()).file("notes.md", "milk");
    configure(&user, more);
    calls(&user, &["box_look"]);
    user
}

fn configure(user: &User, more: &str) {
    let component = user.work().join("server.wasm");
    user.configure(&format!("[mcp.box]\ncomponent = {component:?}\n{more}\n"));
}

fn called(user: &User) -> Value {
    let seen = user.run_script(&["--json", "--tool", "box"]).ended(0);
    result(&seen, "box_look")
}

#[test]
fn server_in_a_cell_reaches_what_is_granted() {
    let user = user("grants = [\"read=.\"]");
    let granted = called(&user);
    assert_eq!(granted["content"][0]["text"], "milk", "{granted}");
    assert_eq!(
        (
            &granted["receipt"]["server"],
            &granted["receipt"]["server_in_cell"]
        ),
        (&json!("box"), &json!(true))
    );
    let shown = user.run_script(&["--tool", "box"]).ended(0);
    assert!(
        shown.stderr.contains("in a cell of its own: MCP server box"),
        "{}",
        shown.stderr
    );
    let listed = user.run(&["mcp", "list", "--json"]).ended(0).json();
    assert_eq!(
        (&listed[0]["transport"], &listed[0]["data_flow"]),
        (&json!("cell"), &json!(["private"]))
    );
    let tested = user.run(&["mcp", "test", "box", "--json"]).ended(0).json();
    assert_eq!(
        (&tested["transport"], &tested["version"]),
        (&json!("cell"), &json!("2025-06-18"))
    );
    assert_eq!(
        granted["receipt"]["files"],
        json!([{"path": "/notes.md", "write": false}])
    );
    configure(&user, "");
    let denied = called(&user);
    assert_eq!(denied["content"][0]["text"], "denied", "{denied}");
    // Denials of the user hold for it, too.
    configure(
        &user,
        "grants = [\"read=.\"]\n[[approval.rules]]\ntool = \"x\"\nverdict = \"ask\"",
    );
    let file = user.home().join(".config/toolcell/config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    user.configure(&format!("deny = [{:?}]\n{text}", user.work().join("notes.md")));
    assert_eq!(called(&user)["content"][0]["text"], "denied");
    configure(&user, "grants = [\"read=.\"]");
    let flags = ["--json", "--tool", "box", "--grant", "deny=notes.md"];
    let seen = user.run_script(&flags).ended(0);
    let denied = result(&seen, "box_look");
    assert_eq!(denied["content"][0]["text"], "denied");
    assert_eq!(denied["receipt"]["files"], Value::Null, "{denied}");
    let shown = user.run_script(&flags[1..]).ended(0).stderr;
    assert!(
        shown.contains("hint: the MCP server `box` was denied"),
        "{denied} {shown}"
    );
}

#[test]
fn receipts_have_what_a_server_did_before_it_ended() {
    let user = user("grants = [\"read=.\"]");
    user.file("late", "");
    let open = "(drop (call $path_open (i32.const 3) (i32.const 0) $late (i32.const 0)
        (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16))) (unreachable)";
    user.file("server.wasm", server_that(open));
    let call = json!({ "calls": [{ "name": "box_look", "arguments": {} }] });
    let script = json!({ "model": "demo", "steps": [call, call, call, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    let seen = user.run_script(&["--json", "--tool", "box"]).ended(0);
    let opened: Vec<String> = seen
        .json_lines()
        .iter()
        .filter(|event| event["type"] == "call_finished")
        .flat_map(|event| event["receipt"]["files"].as_array().cloned().unwrap_or_default())
        .map(|file| file["path"].to_string())
        .collect();
    let late = opened.iter().filter(|path| path.contains("late")).count();
    // That of the last call can come after its receipt; those before are in the receipts of the calls that saw the end.
    assert!((2..=3).contains(&late), "{opened:?}");
}

#[test]
fn server_in_a_cell_keeps_nothing_for_the_next_session() {
    let mut user = user("");
    let call = json!({ "calls": [{ "name": "box_look", "arguments": {} }] });
    let answer = json!({ "text": "Done." });
    let script = json!({ "model": "demo", "steps": [call, answer, call, answer, call, answer] });
    user.file("script.json", script.to_string());
    let chat = [
        "chat",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "box",
    ];
    user.var("TOOLCELL_LOG", "toolcell=info,toolcell_mcp=info");
    let seen = user.run_with_input(&chat, "one\ntwo\n/clear\nthree\n").ended(0);
    let begun = |text: &str| text.matches("an MCP server was started again").count();
    let (before, after) = seen.stderr.split_once("started a new session").unwrap();
    assert_eq!((begun(before), begun(after)), (0, 1), "{}", seen.stderr);
}

#[test]
fn server_in_a_cell_is_added_by_a_command() {
    let user = user("");
    user.configure("");
    let add = [
        "mcp",
        "add",
        "box",
        "--component",
        "server.wasm",
        "--grant",
        "read=.",
    ];
    user.run(&[&add[..], &["--", "--fast"]].concat()).ended(0);
    let shown = user.run(&["mcp", "list"]).ended(0).stdout;
    assert!(shown.contains("server.wasm --fast"), "{shown}");
    // The granted directory is the one of this command, not that of later ones.
    let written = std::fs::read_to_string(user.home().join(".config/toolcell/config.toml")).unwrap();
    let granted = format!("\"read={}:/\"", user.work().display());
    assert!(written.contains(&granted), "{written}");
    assert_eq!(called(&user)["content"][0]["text"], "milk");
    std::fs::remove_file(user.work().join("server.wasm")).unwrap();
    let shown = user.run(&["mcp", "list"]).ended(0).stdout;
    assert!(shown.contains("there is no file"), "{shown}");
    let refused = user
        .run(&["mcp", "add", "x", "--grant", "read=.", "--", "y"])
        .ended(2);
    assert!(refused.stderr.contains("--component"), "{}", refused.stderr);
}

#[test]
fn server_in_a_cell_has_limits() {
    let user = user("limits = { fuel = 100 }");
    let seen = user.run(&["mcp", "test", "box"]).ended(3);
    for part in [
        "the MCP server `box` did not start",
        "stopped by a limit: 100 units of fuel",
    ] {
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
}

#[test]
fn server_in_a_cell_that_ends_at_its_start_tells_its_exit_code_and_denials() {
    let ends = r#"(module
        (import "wasi_snapshot_preview1" "path_open"
          (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
        (memory (export "memory") 1)
        (data (i32.const 64) "notes.md")
        (func (export "_start")
          (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 8) (i32.const 0)
            (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 16)))
          (call $proc_exit (i32.const 7))))"#;
    let user = user("grants = [\"read=.\"]");
    user.file("server.wasm", wat::parse_str(ends).unwrap());
    // A turn goes on without the server.
    for (command, code) in [
        (&["mcp", "test", "box"][..], 3),
        (&["run", "--tool", "box", "x"], 0),
    ] {
        let seen = user.run(command).ended(code);
        let shown = user.plain(&seen.stderr);
        for part in [
            "the MCP server `box` did not start",
            "the server ended (exit status: 7)",
            "hint: the MCP server `box` was denied file `/notes.md`; to allow it, in ~/.config/toolcell/config.toml: \
             `[mcp.box] grants = [\"read+modify=[work]:/\"]`",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[test]
fn grant_of_the_command_line_for_a_server_names_its_table() {
    let user = user("");
    for (flag, value, part) in [
        ("--grant", "box:read=.", "its grants are `[mcp.box] grants`"),
        ("--limit", "box:fuel=1M", "its limits are `[mcp.box] limits`"),
    ] {
        let seen = user.run(&["run", "--tool", "box", flag, value, "x"]).ended(2);
        let shown = user.plain(&seen.stderr);
        for part in [part, "why: no components are in use"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
    // Each component is named once.
    let seen = user.run(&["run", "--grant", "other:read=.", "x"]).ended(2);
    assert_eq!(seen.stderr.matches("clock").count(), 1, "{}", seen.stderr);
}

#[test]
fn server_in_a_cell_of_a_project_is_refused() {
    let user = user("");
    for (table, part) in [
        ("component = \"x.wasm\"", "in a cell, before you trusted it"),
        ("url = \"https://a.example\"", "it would receive requests"),
        ("command = \"x\"", "outside of every cell"),
    ] {
        user.file("toolcell.toml", format!("[mcp.x]\n{table}\n"));
        let seen = user.run(&["mcp", "list"]).ended(3);
        assert!(user.plain(&seen.stderr).contains(part), "{part}: {}", seen.stderr);
    }
}

#[test]
fn server_that_is_no_program_does_not_start() {
    let user = user("");
    user.file("server.wasm", crate::probe::Probe::default().build());
    let seen = user.run(&["mcp", "test", "box"]).ended(3);
    assert!(seen.stderr.contains("is no program"), "{}", seen.stderr);
    for (key, part) in [
        ("env = { A = \"1\" }", "grants = [\"env=NAME=VALUE\"]"),
        ("command = \"x\"", "cannot have `command`"),
        ("url = \"https://a.example\"", "cannot have `url`"),
        ("cwd = \"/\"", "cannot have `cwd`"),
    ] {
        configure(&user, key);
        let seen = user.run(&["mcp", "list"]).ended(3);
        assert!(seen.stderr.contains(part), "{part}: {}", seen.stderr);
    }
    user.configure("[mcp.box]\ncommand = \"x\"\ngrants = [\"read=.\"]\n");
    let seen = user.run(&["mcp", "list"]).ended(3);
    assert!(
        seen.stderr.contains("cannot have `grants`: it is a process"),
        "{}",
        seen.stderr
    );
}

#[test]
fn lock_holds_the_bytes_and_grants_of_a_server_in_a_cell() {
    let mut user = user("grants = [\"read=.\"]");
    user.run(&["lock", "--tool", "box"]).ended(0);
    user.run_script(&["--tool", "box", "--locked"]).ended(0);
    configure(&user, "grants = [\"read=.\", \"write=.\"]");
    let seen = user.run_script(&["--tool", "box", "--locked"]).ended(4);
    assert!(
        seen.stderr.contains("its command, address or grants changed"),
        "{}",
        seen.stderr
    );
    // A secret that it is given is part of what it can reach.
    let secret = "grants = [\"read=.\"]\n[[mcp.box.secrets]]\nsecret = \"s\"\nheader = \"x-key\"\n\
        origins = [\"https://example.com\"]\n[secrets.s]\nenv = \"SECRET\"";
    configure(&user, secret);
    user.var("SECRET", "value-of-the-secret");
    user.run_script(&["--tool", "box", "--locked"]).ended(4);
    configure(&user, "grants = [\"read=.\"]");
    user.run_script(&["--tool", "box", "--locked"]).ended(0);
    // Other bytes: an empty custom section.
    let other = [server(), vec![0, 2, 1, b'x']].concat();
    user.file("server.wasm", other);
    user.run_script(&["--tool", "box", "--locked"]).ended(4);
    let seen = user.run_script(&["--tool", "box"]).ended(0);
    let warning = "warning: the component of the MCP server `box`, or what is granted to it, changed";
    assert!(seen.stderr.contains(warning), "{}", seen.stderr);
}
