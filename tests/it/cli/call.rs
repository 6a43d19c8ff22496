//! `toolcell call`: results, errors, limits, streams.

use serde_json::{Value, json};

use crate::probe::Probe;
use crate::support::cli_user::User;

#[test]
fn shipped_tool_answers_on_standard_output() {
    let seen = User::new()
        .run(&["call", "text_count", r#"{"text": "one two three"}"#])
        .ended(0);
    let counts: serde_json::Value = seen.json();
    assert_eq!(counts["words"], 3);
    assert_eq!(seen.stderr, "");
}

#[test]
fn missing_arguments_are_read_from_standard_input() {
    let user = User::new();
    for arguments in [&["call", "text_count"][..], &["call", "text_count", "-"]] {
        let seen = user.run_with_input(arguments, r#"{"text": "a b"}"#).ended(0);
        assert_eq!(seen.json()["words"], 2);
    }
}

#[test]
fn file_is_read_only_below_granted_directory() {
    let user = User::new();
    user.file("notes/a.md", "one two\n").file("b.md", "x");
    let call = |path: &str, grants: &[&str]| {
        let arguments = json!({ "path": path }).to_string();
        let mut all = vec!["call", "text_count", &arguments];
        all.extend(grants);
        user.run(&all)
    };
    assert_eq!(
        call("notes/a.md", &["--grant", "read=."]).ended(0).json()["words"],
        2
    );
    assert_eq!(
        call("notes/a.md", &["--grant", "text:read=notes"])
            .ended(0)
            .json()["words"],
        2
    );
    call("b.md", &["--grant", "read=notes"]).ended(1);
    call("../work/b.md", &["--grant", "read=notes"]).ended(1);
}

#[test]
fn missing_grant_shows_user_what_would_allow_it() {
    let user = User::new();
    user.file("a.md", "one");
    let seen = user.run(&["call", "text_count", r#"{"path": "a.md"}"#]).ended(1);
    assert_eq!(seen.stdout, "");
    insta::assert_snapshot!(user.plain(&seen.stderr), @r#"
    error: call to `text_count` failed
      why: │ `a.md` does not exist: no files are granted to this tool
     hint: no directory is granted to it; if it needs files here, allow it with --grant text:read=.
           or, in ~/.config/toolcell/config.toml: [tools.text] grants = ["read=."]
    "#);
}

#[test]
fn json_is_one_object_for_answer_and_for_error() {
    let user = User::new();
    let answer = user
        .run(&["call", "text_count", r#"{"text": "a"}"#, "--json"])
        .ended(0)
        .json();
    assert_eq!(answer["error"], json!(null));
    assert_eq!(answer["structured"]["words"], 1);
    assert_eq!(answer["content"][0]["type"], "text");
    assert!(answer["receipt"]["fuel"].as_u64().unwrap() > 0);

    let error = user
        .run(&["call", "text_count", r#"{"text": 1}"#, "--json"])
        .ended(2)
        .json();
    assert_eq!(error["error"]["kind"], "invalid_arguments");
    assert_eq!(error["content"], json!([]));
    assert_eq!(error["receipt"], json!(null));
}

#[test]
fn receipt_says_what_call_used() {
    let user = User::new();
    user.file("a.md", "one");
    let seen = user
        .run(&[
            "call",
            "text_count",
            r#"{"path": "a.md"}"#,
            "--grant",
            "read=.",
            "--receipt",
        ])
        .ended(0);
    for part in [" fuel", " memory", "read /a.md"] {
        assert!(seen.stderr.contains(part), "{}", seen.stderr);
    }
}

#[test]
fn tool_output_is_inert_as_text_and_verbatim_as_json() {
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2Jred\rover \u{202e}exe.txt\u{9b}1m a\u{200b}b \u{e0041}";
    let user = User::new();
    user.probe("echo.wasm", &Probe::default());
    let arguments = json!({ "x": evil }).to_string();
    let seen = user.run(&["call", "echo.wasm", &arguments]).ended(0);
    assert_eq!(
        seen.stdout.trim_end(),
        r#"{"x":"\u001b]0;title\u0007\u001b[2Jred\rover \u{202e}exe.txt\u{9b}1m a\u{200b}b \u{e0041}"}"#
    );
    // The probe returns JSON, in which control characters are escaped; this tool returns them unescaped.
    let raw =
        "(i32.store (i32.const 3000) (i32.const 0x4a325b1b)) (call $text (i32.const 3000) (i32.const 4))";
    user.probe("raw.wasm", &Probe::running(raw));
    assert_eq!(user.run(&["call", "raw.wasm", "{}"]).ended(0).stdout, "␛[2J\n");
    let json = user.run(&["call", "raw.wasm", "{}", "--json"]).ended(0).json();
    assert_eq!(json["content"][0]["text"], "\u{1b}[2J");
}

#[test]
fn json_output_is_inert() {
    let evil = "\u{9b}2J\u{7f}\u{202e}exe.txt \u{2066}a\u{200b}b \u{e0041} e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}";
    let user = User::new();
    let probe = Probe {
        description: evil.into(),
        ..Probe::default()
    };
    user.probe("echo.wasm", &probe);
    user.configure("[approval]\nrules = [{ tool = \"*\", verdict = \"allow\" }]\n");
    let arguments = json!({ "x": evil });
    let calls = json!([{ "name": "probe", "arguments": arguments }]);
    let script = json!({ "steps": [{ "calls": calls }, { "text": evil }] });
    user.file("script.json", script.to_string());
    let arguments = arguments.to_string();
    let commands: [&[&str]; 6] = [
        &["call", "echo.wasm", &arguments, "--json"],
        &["tool", "inspect", "echo.wasm", "--json"],
        &["policy", "explain", "--tool", "echo.wasm", "--json"],
        &[
            "run",
            evil,
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--tool",
            "echo.wasm",
            "--json",
        ],
        &["session", "list", "--json"],
        &["session", "export", "last"],
    ];
    for command in commands {
        let seen = user.run(command).ended(0);
        let is_obeyed =
            |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2066}\u{200b}\u{e0041}".contains(c);
        assert!(!seen.stdout.contains(is_obeyed), "{command:?}: {:?}", seen.stdout);
    }
    let call = user.run(commands[0]).ended(0).json();
    let text: Value = serde_json::from_str(call["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["x"], evil, "{call}");
}

#[test]
fn tool_error_is_inert_as_text() {
    let body = "(i32.store (i32.const 3000) (i32.const 0x4a325b1b)) (call $error (i32.const 3) (i32.const 3000) (i32.const 4))";
    let user = User::new();
    user.probe("bad.wasm", &Probe::running(body));
    let seen = user.run(&["call", "bad.wasm", "{}"]).ended(1);
    assert!(seen.stderr.contains("␛[2J"), "{}", seen.stderr);
    assert!(!seen.stderr.contains('\u{1b}'), "{}", seen.stderr);
}

#[test]
fn endless_tool_is_stopped_and_limit_is_named() {
    let user = User::new();
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let seen = user
        .run(&["call", "loop.wasm", "{}", "--limit", "wall=300ms", "--receipt"])
        .ended(5);
    assert!(seen.stderr.contains("fuel · "), "{}", seen.stderr);
    let error: String = seen
        .stderr
        .lines()
        .skip(1)
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!(error, @r"
    error: call to `probe` failed
      why: stopped by a limit: not finished after 300 ms
     hint: raise the limit with --limit wall=30s
    ");
    let fuel = user
        .run(&["call", "loop.wasm", "{}", "--limit", "fuel=1M"])
        .ended(5);
    assert!(
        fuel.stderr.contains("1 M units of fuel used up"),
        "{}",
        fuel.stderr
    );
}

#[test]
fn trapped_tool_fails_with_cause() {
    let user = User::new();
    user.probe("trap.wasm", &Probe::running("(unreachable)"));
    let seen = user.run(&["call", "trap.wasm", "{}", "--json"]).ended(1);
    let object = seen.json();
    assert_eq!(object["error"]["kind"], "crashed");
    assert!(object["receipt"]["wall_us"].is_u64());
}

#[test]
fn closed_output_pipe_is_success() {
    let user = User::new();
    let text = "x\n".repeat(100_000);
    let mut command = user.command(&["call", "text_diff", "-"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let arguments = json!({ "old_text": "", "new_text": text }).to_string();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, arguments.as_bytes()).unwrap();
    drop(child.stdout.take());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn interrupted_call_ends_as_cancelled_with_its_receipt() {
    use std::io::{BufRead as _, BufReader};
    let user = User::new();
    user.probe("loop.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let limits = ["--limit", "wall=60s", "--limit", "fuel=1000T"];
    let mut child = user
        .command(&["call", "loop.wasm", "{}", "--json"])
        .args(limits)
        .env("TOOLCELL_LOG", "toolcell=debug")
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    stderr
        .by_ref()
        .find(|line| line.contains("the call starts"))
        .expect("the log reports the start of the call");
    let pid = child.id().to_string();
    if let Ok(limits) = std::fs::read_to_string(format!("/proc/{pid}/limits")) {
        let core = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max core file size"))
            .unwrap();
        let words: Vec<&str> = core.split_whitespace().collect();
        assert_eq!(words[..2], ["0", "0"], "no image of its memory is written");
    }
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let rest: Vec<String> = stderr.collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest:?}");
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["error"]["kind"], "cancelled");
    assert!(object["receipt"]["fuel"].is_u64(), "{object}");
}

#[cfg(target_os = "linux")]
#[test]
fn file_name_that_is_not_utf8_hides_no_other_file() {
    use std::os::unix::ffi::OsStrExt as _;
    let user = User::new();
    for name in ["a.txt", "m/b.txt", "z.txt"] {
        user.file(name, "needle");
    }
    for name in [b"caf\xe9.txt".as_slice(), b"m/\xff"] {
        std::fs::write(user.work().join(std::ffi::OsStr::from_bytes(name)), "needle").unwrap();
    }
    let listed = user
        .run(&["call", "files_list", "{\"depth\": 2}", "--grant", "read=."])
        .ended(0);
    for name in [
        "a.txt\t6",
        "caf\\xe9.txt\t",
        "m/b.txt\t6",
        "m/\\xff\t",
        "z.txt\t6",
    ] {
        assert!(listed.stdout.contains(name), "{name}: {}", listed.stdout);
    }
    let found = user
        .run(&[
            "call",
            "files_search",
            "{\"pattern\": \"needle\"}",
            "--grant",
            "read=.",
        ])
        .ended(0);
    for name in ["a.txt", "m/b.txt", "z.txt"] {
        assert!(found.stdout.contains(name), "{name}: {}", found.stdout);
    }
    // Below such a directory there may be files of any name.
    std::fs::create_dir(user.work().join(std::ffi::OsStr::from_bytes(b"dir\xe9"))).unwrap();
    for (tool, arguments, told) in [
        (
            "files_list",
            r#"{"glob": "none"}"#,
            "3 entries have names that are not UTF-8",
        ),
        (
            "files_search",
            r#"{"pattern": "x", "glob": "none"}"#,
            "3 entries have names that are not UTF-8",
        ),
    ] {
        let seen = user.run(&["call", tool, arguments, "--grant", "read=."]).ended(0);
        assert!(seen.stdout.contains(told), "{}", seen.stdout);
    }
}

#[test]
fn limit_that_a_tool_sees_as_an_error_is_a_limit_with_a_hint() {
    let user = User::new();
    let call = |limit: &str| {
        user.run(&[
            "call",
            "files_write",
            r#"{"path": "out.txt", "content": "twelve bytes"}"#,
            "--grant",
            "write=.",
            "--limit",
            limit,
        ])
    };
    for (limit, hint) in [
        ("file_bytes=5", "file_bytes=256MiB"),
        ("file_count=0", "file_count=10k"),
    ] {
        let seen = call(limit).ended(5);
        let hint = format!("raise the limit with --limit files:{hint}");
        assert!(seen.stderr.contains(&hint), "{}", seen.stderr);
    }
    call("file_bytes=1KiB").ended(0);
}

#[test]
fn hint_names_every_right_that_a_call_needs() {
    let user = User::new();
    user.file("a.txt", "a");
    let call = |tool: &str, arguments: &str, grants: &[&str]| {
        let mut command = vec!["call", tool, arguments];
        command.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
        user.run(&command)
    };
    let paths = r#"{"from": "a.txt", "to": "b.txt"}"#;
    let seen = call("files_move", paths, &["read=."]).ended(4);
    let grant = format!("read+create+delete={}:/", user.work().display());
    assert!(
        seen.stderr.contains(&format!("--grant files:{grant}")),
        "{}",
        seen.stderr
    );
    call("files_move", paths, &[&grant]).ended(0);
    // Without a directory, a tool that changes files is offered one to change.
    let path = r#"{"path": "b.txt"}"#;
    for (tool, grant) in [("files_delete", "write=."), ("files_read", "read=.")] {
        let seen = call(tool, path, &[]).ended(1);
        let hint = format!("--grant files:{grant}\n");
        assert!(seen.stderr.contains(&hint), "{}", seen.stderr);
    }
}

#[test]
fn file_that_the_host_cannot_write_is_told_with_a_reason() {
    let user = User::new();
    // A limit of sizes stands for a full disk, which needs rights of an administrator.
    let call = json!({"path": "big.txt", "content": "x".repeat(100_000)}).to_string();
    user.file("call.json", call);
    let line = format!(
        "ulimit -f 8; exec {} call files_write --grant write=. < call.json",
        env!("CARGO_BIN_EXE_toolcell")
    );
    // Compiled before, with the files of its cache.
    user.run(&["call", "files_list", "{}", "--grant", "read=."])
        .ended(0);
    let arguments = ["-c", line.as_str()];
    let ended = user.program("bash", &arguments).output().unwrap();
    let seen = user.seen(&arguments, ended).ended(1);
    assert!(
        seen.stderr.contains("perhaps because its disk is full"),
        "{}",
        seen.stderr
    );
}
