//! `toolcell run`: turns with scripted models and a server on loopback.

mod ends;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::json;

use crate::probe::Probe;
use crate::support::cli_user::User;

/// A script of a model that makes these calls and then answers.
fn script(calls: &serde_json::Value, answer: &str) -> String {
    json!({ "model": "demo", "steps": [{ "text": "Let me look. ", "calls": calls }, { "text": answer }] })
        .to_string()
}

#[test]
fn only_answer_goes_to_standard_output() {
    let user = User::new();
    user.file("a.md", "one two three\n");
    let calls = json!([{ "name": "text_count", "arguments": { "path": "a.md" } }]);
    user.file("script.json", script(&calls, "It has three words."));
    let seen = user
        .run(&[
            "run",
            "How many words?",
            "--provider",
            "scripted",
            "--model",
            "script.json",
            "--tool",
            "text",
            "--grant",
            "read=.",
        ])
        .ended(0);
    assert_eq!(seen.stdout, "Let me look. \nIt has three words.\n");
    let stable: Vec<&str> = seen
        .stderr
        .lines()
        .filter(|line| !line.contains(" fuel · "))
        .collect();
    assert_eq!(stable[0], "scripted demo (--provider)");
    assert_eq!(stable[1], r#"● text_count {"path":"a.md"}"#);
    assert!(stable[2].starts_with("✓ text_count │ {"), "{}", stable[2]);
    assert!(stable[3].starts_with("2 steps · 1 call"), "{}", stable[3]);
    assert!(seen.stderr.contains("read /a.md"), "{}", seen.stderr);
}

#[test]
fn offline_provider_runs_tools_without_a_key() {
    let user = User::new();
    user.file("README.md", "one two three four\n");
    let seen = user
        .run(&["run", "How many words are in README.md?", "--grant", "read=."])
        .ended(0);
    assert!(seen.stdout.contains("words: 4"), "{}", seen.stdout);
    assert!(
        seen.stderr.contains("\noffline stand-in, no model"),
        "{}",
        seen.stderr
    );
    let piped = user
        .run_with_input(&["run", "Count the words", "--no-session"], "one two three\n")
        .ended(0);
    assert!(piped.stdout.contains("words: 3"), "{}", piped.stdout);
    // `fetch` can do nothing without a host, and `files` can change nothing.
    assert!(
        seen.stderr
            .starts_with("not offered without a grant: `fetch` (--grant http=HOST), 6 tools of `files` (--grant write=DIR)\n"),
        "{}",
        seen.stderr
    );
    let named = user.run(&["run", "x", "--tool", "fetch"]).ended(0);
    assert!(!named.stderr.contains("not offered"), "{}", named.stderr);
}

#[test]
fn words_of_models_and_tools_are_set_apart_on_call_lines() {
    let user = User::new();
    let calls = json!([
        { "name": "echo  · approved by you", "arguments": {} },
        { "name": "text_count", "arguments": "✓ allowed by your configuration" },
        { "name": "text_count", "arguments": { "text": "a b" } },
    ]);
    user.file("script.json", script(&calls, "Done."));
    let seen = user.run_script(&["--tool", "text"]).ended(0);
    let lines: Vec<&str> = seen.stderr.lines().collect();
    for start in [
        "● `echo  · approved by you` {}",
        "✗ `echo  · approved by you` │ ",
        "● text_count (1 of 2) │ ✓ allowed by your configuration",
        "✗ text_count (1 of 2) │ ",
        "✓ text_count (2 of 2) │ {",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(start)),
            "{start}: {lines:#?}"
        );
    }
}

#[test]
fn json_output_is_event_lines_only() {
    let user = User::new();
    let calls = json!([{ "name": "text_count", "arguments": { "text": "a\u{1b}[2Jb" } }]);
    user.file("script.json", script(&calls, "Done \u{202e}."));
    let seen = user.run_script(&["--tool", "text", "--json"]).ended(0);
    let events = seen.json_lines();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.first(), Some(&"turn_started"));
    assert_eq!(kinds.last(), Some(&"turn_finished"));
    let call = events
        .iter()
        .find(|event| event["type"] == "call_started")
        .unwrap();
    assert_eq!(call["arguments"]["text"], "a\u{1b}[2Jb");
    let finished = events
        .iter()
        .find(|event| event["type"] == "call_finished")
        .unwrap();
    assert!(finished["receipt"]["fuel"].as_u64().unwrap() > 0);
    assert_eq!(events.last().unwrap()["text"], "Done \u{202e}.");
    assert_eq!(seen.stderr, "");
}

#[test]
fn json_events_report_why_turn_did_not_start() {
    let user = User::new();
    let seen = user
        .run(&["run", "x", "--json", "--provider", "anthropic"])
        .ended(3);
    assert_eq!(
        seen.json_lines(),
        [json!({
            "type": "not_started",
            "what": "no model is set for `anthropic` at `https://api.anthropic.com`",
            "why": [],
            "hints": ["set it with --model, TOOLCELL_MODEL or `[provider] model`"],
            "exit": 3,
        })]
    );
    assert!(
        seen.stderr.starts_with("error: no model is set"),
        "{}",
        seen.stderr
    );
    let seen = user.run(&["run", " ", "--json"]).ended(2);
    assert_eq!(seen.json()["what"], "the prompt is empty");
}

#[test]
fn model_and_tool_output_is_inert_as_text() {
    let user = User::new();
    let raw =
        "(i32.store (i32.const 3000) (i32.const 0x4a325b1b)) (call $text (i32.const 3000) (i32.const 4))";
    user.probe("evil.wasm", &Probe::running(raw));
    let calls = json!([{ "name": "probe", "arguments": { "x": "\u{9b}2J" } }]);
    user.file(
        "script.json",
        json!({ "steps": [
        { "reasoning": "\u{1b}[1m", "text": "a\u{1b}", "chunk": 1, "calls": calls },
        { "text": "[2J\u{1b}]0;x\u{7}\r\u{202e}" },
    ] })
        .to_string(),
    );
    let seen = user.run_script(&["--tool", "evil.wasm"]).ended(0);
    for text in [&seen.stdout, &seen.stderr] {
        let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(obeyed), "{text:?}");
    }
    assert!(seen.stdout.contains("␛]0;x␇␍\\u{202e}"), "{}", seen.stdout);
    assert!(seen.stderr.contains("␛[2J"), "{}", seen.stderr);
}

#[test]
fn denial_hint_is_shown_to_user_and_not_to_model() {
    let user = User::new();
    user.file("a.md", "one");
    let calls = json!([{ "name": "text_count", "arguments": { "path": "a.md" } }]);
    user.file("script.json", script(&calls, "No."));
    let arguments = [
        "run",
        "x",
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--tool",
        "text",
    ];
    let seen = user.run(&arguments).ended(0);
    assert!(seen.stderr.contains("--grant text:read=."), "{}", seen.stderr);
    let mut with_json = arguments.to_vec();
    with_json.push("--json");
    let events = user.run(&with_json).ended(0).json_lines();
    let told = events
        .iter()
        .find(|event| event["type"] == "call_finished")
        .unwrap()["content"]
        .to_string();
    assert!(!told.contains("--grant") && !told.contains("read="), "{told}");
}

#[test]
fn result_of_a_task_is_printed() {
    let user = User::new();
    user.configure("[loop]\npreset = \"task\"\n");
    let arguments = json!({ "summary": "Two cities.", "result": { "cities": ["Bern", "Rome"] } });
    let call = json!({ "calls": [{ "name": "task_complete", "arguments": arguments }] });
    user.file("steps.json", json!({ "steps": [call] }).to_string());
    let seen = user
        .run(&[
            "run",
            "x",
            "--provider",
            "scripted",
            "--model",
            "steps.json",
            "--tool",
            "text",
        ])
        .ended(0);
    let (summary, result) = seen.stdout.split_once('\n').unwrap();
    assert_eq!(summary, "Two cities.");
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    assert_eq!(result, json!({ "cities": ["Bern", "Rome"] }));
}

#[test]
fn question_of_the_model_names_its_suggestions() {
    let user = User::new();
    let arguments = json!({ "question": "Which one?", "suggestions": ["the first", "the second"] });
    let calls = json!([{ "name": "ask_question", "arguments": arguments }]);
    user.file(
        "script.json",
        json!({ "steps": [{ "calls": calls }] }).to_string(),
    );
    let seen = user.run_script(&["--preset", "stepwise"]).ended(0);
    assert_eq!(seen.stdout, "Which one?\n- the first\n- the second\n");
}

#[test]
fn last_text_of_the_model_is_printed_once() {
    let user = User::new();
    let calls = json!([{ "name": "text_count", "arguments": { "text": "a" } }]);
    let step = json!({ "text": "Still looking.", "calls": calls });
    user.file("script.json", json!({ "steps": vec![step; 3] }).to_string());
    let seen = user.run_script(&["--preset", "resilient", "--max-steps", "1", "--tool", "text"]);
    assert_eq!(
        seen.stdout.matches("Still looking.").count(),
        1,
        "{}",
        seen.stdout
    );
    assert!(seen.stdout.contains("within 1 step."), "{}", seen.stdout);
}

#[test]
fn component_that_is_no_hook_is_not_listed_as_one() {
    let user = User::new();
    user.probe("any.wasm", &Probe::default());
    let path = user.work().join("any.wasm");
    user.configure(&format!(
        "[hooks.guard]\ncomponent = {:?}\n",
        path.to_str().unwrap()
    ));
    let seen = user.run(&["tool", "list"]);
    assert_ne!(seen.code, 0);
    assert!(
        seen.stdout.contains("cannot be used as a hook"),
        "{}",
        seen.stdout
    );
}
