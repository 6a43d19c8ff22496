//! Programs as tools.

use serde_json::json;

use crate::support::cli_user::{SCRIPTED, User};

/// A program for preview 1 that writes the file `a.txt`, or what it reads if there is none, and then fails if it is called
/// `fails`.
fn program() -> Vec<u8> {
    wat::parse_str(
        r#"(module
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
(import "wasi_snapshot_preview1" "path_open"
  (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
(memory (export "memory") 1)
(data (i32.const 64) "a.txt")
(data (i32.const 0) "\00\04\00\00\00\40\00\00")
(func (export "_start")
  (i32.store (i32.const 16) (i32.const 0))
  (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 5) (i32.const 0)
    (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16)))
  (drop (call $fd_read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 4)))
  (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
  (drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
  (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then (call $proc_exit (i32.const 2))))))"#,
    )
    .unwrap()
}

#[test]
fn program_is_called_with_its_input_and_granted_files() {
    let user = User::new();
    user.file("show.wasm", program())
        .file("data/a.txt", "of the file");
    let call =
        |arguments: &str, flags: &[&str]| user.run(&[&["call", "show.wasm", arguments][..], flags].concat());
    assert_eq!(
        call(r#"{"stdin": "of the call"}"#, &[]).ended(0).stdout,
        "of the call\n"
    );
    let granted = call(r#"{"stdin": "of the call"}"#, &["--grant", "read=data"]).ended(0);
    assert_eq!(granted.stdout, "of the file\n");
    let failed = call(r#"{"args": ["x"], "stdin": "half"}"#, &[]).ended(1);
    assert!(
        failed.stderr.contains("the program ended with exit code 2"),
        "{}",
        failed.stderr
    );
    assert!(failed.stderr.contains("half"), "{}", failed.stderr);
    let json = call(r#"{"args": ["x"], "stdin": "half"}"#, &["--json"])
        .ended(1)
        .json();
    assert_eq!(
        json["structured"],
        json!({"exit_code": 2, "stdout": "half", "stderr": ""})
    );
    let refused = call(r#"{"arguments": []}"#, &[]).ended(2);
    assert!(
        refused.stderr.contains("there are `args`, `stdin`"),
        "{}",
        refused.stderr
    );
}

#[test]
fn inspection_shows_that_a_component_is_a_program() {
    let user = User::new();
    user.file("show.wasm", program());
    let seen = user
        .run(&["tool", "inspect", "show.wasm", "--grant", "read=data"])
        .ended(0);
    for part in [
        "can request files, and sees only the directories that are granted",
        "it is a program; the tool runs it with arguments and standard input",
        "args   array of string",
    ] {
        assert!(seen.stdout.contains(part), "{part}: {}", seen.stdout);
    }
    assert!(!seen.stdout.contains("has no effect"), "{}", seen.stdout);
    let json = user
        .run(&["tool", "inspect", "show.wasm", "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (json["kind"].as_str(), json["left_out"].clone()),
        (Some("program"), json!([]))
    );
    assert_eq!(json["tools"][0]["name"], "show");
}

#[test]
fn configuration_describes_a_program_and_nothing_else() {
    let user = User::new();
    user.file("show.wasm", program()).configure(&format!(
        "[tools.show]\ncomponent = \"{}\"\ndescription = \"Shows a file.\"\n",
        user.work().join("show.wasm").display()
    ));
    let json = user.run(&["tool", "inspect", "show", "--json"]).ended(0).json();
    assert_eq!(json["tools"][0]["description"], "Shows a file.");
    let listed = user.run(&["tool", "list", "--json"]).ended(0).stdout;
    assert!(listed.contains("Shows a file."), "{listed}");
    // What it writes when it is run with `--help`, in a cell with nothing granted.
    let help = r#"(module
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(data (i32.const 0) "\08\00\00\00\0b\00\00\00Usage: show")
(func (export "_start") (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))))"#;
    user.file("help.wasm", wat::parse_str(help).unwrap())
        .configure(&format!(
            "[tools.help]\ncomponent = \"{}\"\ndescription = \"--help\"\n",
            user.work().join("help.wasm").display()
        ));
    let shown = user.run(&["tool", "inspect", "help"]).ended(0).stdout;
    assert!(shown.contains("│ Usage: show"), "{shown}");
    user.configure("[tools.text]\ndescription = \"x\"\n");
    let refused = user.run(&["call", "text_count", r#"{"text": "x"}"#]).ended(7);
    assert!(
        refused
            .stderr
            .contains("only a program takes another description"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("config.toml, line 2"),
        "{}",
        refused.stderr
    );
}

#[test]
fn model_runs_a_program_and_reads_its_output() {
    let user = User::new();
    user.file("show.wasm", program()).file(
        "script.json",
        json!({"steps": [
            {"calls": [{"name": "show", "arguments": {"stdin": "of the call"}}]},
            {"text": "Done."},
        ]})
        .to_string(),
    );
    let seen = user.run(&[&SCRIPTED[..], &["--tool", "show.wasm", "--json"]].concat());
    assert!(
        seen.stdout.contains(r#""text":"of the call""#),
        "{}{}",
        seen.stdout,
        seen.stderr
    );
}
