//! Hooks that are components: what they change, refuse and say in a turn, and what holds them when they misbehave.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::cli_person::{Person, Seen};
use crate::house::root;

/// The hooks among the examples of the SDK, built once for all tests.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let ready = Command::new(root().join("tests/wasm-target"))
            .status()
            .expect("bash runs");
        assert!(ready.success(), "tests/wasm-target failed");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("it lies in the target directory");
        let output = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--profile", "guest"])
            .args(["--target", "wasm32-wasip2", "--package", "toolcell-sdk"])
            .args(["--example", "keep_files", "--example", "unruly_hook"])
            .arg("--target-dir")
            .arg(target)
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        target.join("wasm32-wasip2/guest/examples")
    })
}

/// A person with a hook in the own configuration, whose model makes these calls and then answers.
fn person(hook: &str, settings: &str, calls: &Value) -> Person {
    let person = Person::new();
    person.file("hook.wasm", std::fs::read(built().join(hook)).unwrap());
    configure(&person, settings);
    let script = json!({ "model": "demo", "steps": [{ "calls": calls }, { "text": "Done." }] });
    person.file("script.json", script.to_string());
    person
}

/// Puts the hook `h` into the person's configuration.
fn configure(person: &Person, settings: &str) {
    let path = person.work().join("hook.wasm");
    person.configure(&format!("[hooks.h]\ncomponent = {path:?}\n{settings}\n"));
}

/// One call of `text_count` with an order for the hook `unruly`.
fn order(text: &str) -> Value {
    json!([{ "name": "text_count", "arguments": { "text": text } }])
}

fn run(person: &Person, prompt: &str, more: &[&str]) -> Seen {
    let mut arguments = vec![
        "run",
        prompt,
        "--provider",
        "scripted",
        "--model",
        "script.json",
        "--json",
    ];
    arguments.extend(more);
    if !more.contains(&"--tool") {
        arguments.extend(["--tool", "text"]);
    }
    person.run(&arguments)
}

fn events(seen: &Seen, kind: &str) -> Vec<Value> {
    seen.json_lines()
        .into_iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

fn notices(seen: &Seen) -> Vec<String> {
    events(seen, "notice")
        .iter()
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect()
}

/// What became of the only call.
fn only_result(seen: &Seen) -> Value {
    let mut finished = events(seen, "call_finished");
    assert_eq!(finished.len(), 1, "{}", seen.stdout);
    finished.remove(0)
}

#[test]
fn arguments_that_a_component_changed_are_checked_and_are_the_ones_that_run() {
    let person = person("unruly_hook.wasm", "", &order("change one two three"));
    let seen = run(&person, "x", &[]).ended(0);
    assert_eq!(
        events(&seen, "call_started")[0]["arguments"]["text"],
        "one two three"
    );
    assert_eq!(only_result(&seen)["structured"]["words"], 3, "{}", seen.stdout);

    let script = json!({ "steps": [{ "calls": order("break it") }, { "text": "Done." }] });
    person.file("script.json", script.to_string());
    let result = only_result(&run(&person, "x", &[]).ended(0));
    assert_eq!(result["error"]["kind"], "invalid_arguments");
    assert!(result.to_string().contains("/text"), "{result}");
}

#[test]
fn a_person_is_asked_about_the_arguments_that_the_component_made() {
    let person = person("unruly_hook.wasm", "", &order("change b"));
    let path = person.work().join("hook.wasm");
    person.configure(&format!(
        "[hooks.h]\ncomponent = {path:?}\n[approval]\nrules = [{{ tool = \"text_count\", verdict = \"ask\" }}]\n"
    ));
    let seen = run(&person, "x", &[]).ended(0);
    assert_eq!(events(&seen, "approval_requested")[0]["arguments"]["text"], "b");
}

#[test]
fn a_component_refuses_a_call_with_a_reason_that_the_model_reads() {
    let person = person("unruly_hook.wasm", "", &order("refuse this is private"));
    let result = only_result(&run(&person, "x", &[]).ended(0));
    assert_eq!(result["error"]["kind"], "denied");
    assert!(
        result["content"].to_string().contains("this is private"),
        "{result}"
    );
}

#[test]
fn a_component_ends_a_turn_before_a_call_and_before_the_prompt() {
    let person = person("unruly_hook.wasm", "", &order("abort enough is enough"));
    let seen = run(&person, "x", &[]);
    let outcome = &events(&seen, "turn_finished")[0]["outcome"];
    assert_eq!(
        *outcome,
        json!({ "outcome": "aborted", "by": "h", "reason": "enough is enough" })
    );
    let seen = run(&person, "forbidden", &[]);
    assert!(events(&seen, "step_started").is_empty(), "{}", seen.stdout);
    assert!(
        seen.stdout.contains("this is not talked about"),
        "{}",
        seen.stdout
    );
}

/// Everything that can go wrong in a cell, and the words that the person reads of it.
const FAILURES: [(&str, &str); 5] = [
    ("fail no idea", "no idea"),
    (
        "panic",
        "it crashed: wasm trap: wasm `unreachable` instruction executed",
    ),
    ("spin", "stopped by a limit: not finished after 300 ms"),
    ("hoard", "stopped by a limit: more than 33554432 bytes of memory"),
    (
        "flood",
        "its response is invalid: it leaves more than 65536 bytes",
    ),
];

const LIMITS: &str = "limits = { wall = \"300ms\", memory = \"32 MiB\", fuel = \"1000 T\" }";

#[test]
fn a_component_that_guards_and_fails_refuses_the_call_and_is_reported() {
    let person = person("unruly_hook.wasm", &format!("guard = true\n{LIMITS}"), &json!([]));
    for (order_text, words) in FAILURES {
        let script = json!({ "steps": [{ "calls": order(order_text) }, { "text": "Done." }] });
        person.file("script.json", script.to_string());
        let seen = run(&person, "x", &[]).ended(0);
        assert_eq!(only_result(&seen)["error"]["kind"], "denied", "{order_text}");
        assert_eq!(only_result(&seen)["receipt"], Value::Null, "{order_text}");
        let said = notices(&seen);
        let told = said
            .iter()
            .any(|n| n.starts_with("the hook `h` failed in `before_call`") && n.contains(words));
        assert!(told, "{order_text}: {said:?}");
    }
    let seen = run(&person, "panic", &[]);
    assert!(events(&seen, "step_started").is_empty(), "{}", seen.stdout);
}

#[test]
fn a_component_that_does_not_guard_and_fails_is_reported_and_the_call_goes_on() {
    let person = person("unruly_hook.wasm", LIMITS, &json!([]));
    for (order_text, words) in FAILURES {
        let script = json!({ "steps": [{ "calls": order(order_text) }, { "text": "Done." }] });
        person.file("script.json", script.to_string());
        let seen = run(&person, "x", &[]).ended(0);
        assert_eq!(only_result(&seen)["error"], Value::Null, "{order_text}");
        let said = notices(&seen);
        assert!(said.iter().any(|n| n.contains(words)), "{order_text}: {said:?}");
    }
}

#[test]
fn notices_of_a_component_stream_in_their_place_and_each_moment_leaves_a_receipt() {
    let person = person("unruly_hook.wasm", "", &order("say about to count"));
    let seen = run(&person, "what is it?", &[]).ended(0);
    let kinds: Vec<String> = seen
        .json_lines()
        .iter()
        .filter_map(|event| match event["type"].as_str().unwrap() {
            "notice" => Some(event["text"].as_str().unwrap().to_owned()),
            "hook_finished" => {
                assert!(event["receipt"]["fuel"].as_u64() > Some(0), "{event}");
                Some(format!(
                    "receipt of {} {}",
                    event["hook"].as_str()?,
                    event["moment"].as_str()?
                ))
            }
            kind @ ("call_started" | "call_finished") => Some(kind.to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "receipt of h before_prompt",
            "receipt of h before_call",
            "about to count",
            "call_started",
            "receipt of h after_call",
            "after text_count: asked `what is it?`, error none, has a receipt true",
            "call_finished",
            "receipt of h after_turn",
            "after the turn: completed, 2 steps",
        ]
    );
}

#[test]
fn what_a_component_adds_to_the_prompt_is_what_the_model_gets() {
    let person = person("unruly_hook.wasm", "", &json!([]));
    let seen = run(&person, "Hello", &[]);
    let changed = &events(&seen, "prompt_changed")[0];
    assert!(
        changed["message"].to_string().contains("<context>\\nsession "),
        "{changed}"
    );
    assert_eq!(changed["instructions"], "Be brief.");
}

#[test]
fn values_go_from_moment_to_moment_and_from_component_to_component_in_their_order() {
    // The second hook runs first because the person says so, whatever the components claim.
    let person = person("unruly_hook.wasm", "", &order("say one"));
    let path = person.work().join("hook.wasm");
    person.configure(&format!(
        "[hooks.a]\ncomponent = {path:?}\n[hooks.b]\ncomponent = {path:?}\nbefore = [\"a\"]\n[hooks.c]\ncomponent = {path:?}\npriority = 9\n"
    ));
    let seen = run(&person, "x", &[]).ended(0);
    let order: Vec<String> = events(&seen, "hook_finished")
        .iter()
        .filter(|event| event["moment"] == "before_call")
        .map(|event| event["hook"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(order, ["c", "b", "a"]);
    let after = notices(&seen).into_iter().filter(|n| n.contains("asked `x`"));
    assert_eq!(after.count(), 3);
}

#[test]
fn a_component_sees_why_a_call_failed() {
    let calls = json!([{ "name": "text_count", "arguments": { "path": "gone.md" } }, { "name": "text_count", "arguments": { "text": 7 } }]);
    let person = person("unruly_hook.wasm", "", &calls);
    let said = notices(&run(&person, "x", &[]).ended(0));
    for words in [
        "error in call",
        "error in call_arguments",
        "after text_count: asked `x`, error failed",
    ] {
        assert!(said.iter().any(|n| n.starts_with(words)), "{words}: {said:?}");
    }
}

#[test]
fn a_component_touches_no_file_until_its_own_grant_says_so() {
    let person = person("unruly_hook.wasm", "", &order("read /secret.txt"));
    person.file("secret.txt", "the plan");
    // A grant for the tools is none for a hook.
    let said = notices(&run(&person, "x", &["--grant", "read=."]).ended(0));
    assert!(
        said.iter().any(|n| n.starts_with("it could not read")),
        "{said:?}"
    );
    configure(&person, "grants = [\"read=.\"]");
    let said = notices(&run(&person, "x", &[]).ended(0));
    assert!(said.contains(&"the plan".to_owned()), "{said:?}");
}

#[test]
fn a_component_can_be_a_hook_and_have_tools() {
    let calls = json!([{ "name": "unruly_order", "arguments": { "text": "change it" } }]);
    let person = person("unruly_hook.wasm", "", &calls);
    let seen = run(&person, "x", &["--tool", "hook.wasm"]).ended(0);
    let told = only_result(&seen)["content"].to_string();
    assert!(told.contains("the tool read: it"), "{told}");
    let json = person
        .run(&["tool", "inspect", "hook.wasm", "--json"])
        .ended(0)
        .json();
    assert_eq!(json["hook"]["name"], "unruly");
    assert_eq!(json["tools"][0]["name"], "unruly_order");
}

#[test]
fn a_guard_keeps_files_where_they_are_and_gives_an_argument_its_default() {
    let calls = json!([
        { "name": "files_write", "arguments": { "path": "a.txt", "content": "x" } },
        { "name": "files_write", "arguments": { "path": "scratch/a.txt", "content": "one\ntwo\n", "parents": true } },
        { "name": "files_read", "arguments": { "path": "scratch/a.txt" } },
    ]);
    let person = person("keep_files.wasm", "", &calls);
    let seen = run(&person, "x", &["--tool", "files", "--grant", "write=."]).ended(0);
    assert!(!person.work().join("a.txt").exists());
    assert!(person.work().join("scratch/a.txt").exists(), "{}", seen.stdout);
    let started = events(&seen, "call_started");
    let read = started
        .iter()
        .find(|event| event["tool"] == "files_read")
        .unwrap();
    assert_eq!(read["arguments"]["max_lines"], 200);
    let said = notices(&seen);
    assert_eq!(said, ["the model wanted to write outside `scratch/`"]);
    // It wants one moment, and no other costs a cell.
    assert!(
        events(&seen, "hook_finished")
            .iter()
            .all(|event| event["moment"] == "before_call")
    );
}

#[test]
fn a_hook_in_a_projects_file_stops_the_start() {
    let person = person("unruly_hook.wasm", "", &order("x"));
    person.configure("");
    person.file("toolcell.toml", "[hooks.h]\ncomponent = \"hook.wasm\"\n");
    let seen = person.run(&["config", "check"]).ended(3);
    insta::assert_snapshot!(person.plain(&seen.stderr), @r#"
    error: a project's file cannot bring or change a hook
      why: in toolcell.toml, line 1, column 8
           │   1 | [hooks.h]
           │     |        ^
         - a hook sees every prompt and every call, and a guard that a project changes guards nothing
     hint: look at the component with `toolcell tool inspect`; to use it, move the table to your own configuration
    "#);
    // Not even to switch one off that the person has.
    configure(&person, "");
    person.file("toolcell.toml", "[hooks.h]\nenabled = false\n");
    run(&person, "x", &[]).ended(3);
}

#[test]
fn a_hook_that_cannot_be_used_stops_the_start() {
    let person = person("unruly_hook.wasm", "", &order("x"));
    let mut all = String::new();
    person.file("core.wasm", wat::parse_str("(module)").unwrap());
    person.file("none.wasm", wat::parse_str("(component)").unwrap());
    person.probe("tool.wasm", &crate::probe::Probe::default());
    let named = |file: &str| format!("[hooks.h]\ncomponent = {:?}\n", person.work().join(file));
    let circle = ["a", "b"].map(|name| {
        let other = if name == "a" { "b" } else { "a" };
        named("hook.wasm").replace(".h]", &format!(".{name}]")) + &format!("before = [{other:?}]\n")
    });
    for (toml, code) in [
        ("[hooks.h]\n".to_owned(), 3),
        ("[hooks.\"a b\"]\ncomponent = \"x.wasm\"\n".to_owned(), 3),
        (named("gone.wasm"), 7),
        (named("core.wasm"), 7),
        (named("none.wasm"), 7),
        (named("tool.wasm"), 7),
        (circle.concat(), 3),
    ] {
        person.configure(&toml);
        let said = run(&person, "x", &[]).ended(code).stderr;
        // The line of the configuration holds a path of this machine.
        let lines = said.lines().filter(|line| !line.contains("| "));
        all.extend(lines.map(|line| person.plain(line) + "\n"));
    }
    person.configure("");
    person.file(
        "hook.wasm",
        std::fs::read(built().join("keep_files.wasm")).unwrap(),
    );
    all.push_str(&person.plain(&run(&person, "x", &["--tool", "hook.wasm"]).ended(7).stderr));
    insta::assert_snapshot!(all, @r#"
    error: the hook `h` has no component
      why: in ~/.config/toolcell/config.toml, line 1, column 8
     hint: say which file it is: component = "FILE.wasm"
    error: `a b` is no name of a hook
      why: in ~/.config/toolcell/config.toml, line 1, column 8
     hint: use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`, the first one a letter
    error: the component `gone.wasm` cannot be read
      why: in ~/.config/toolcell/config.toml, line 2, column 13
         - No such file or directory (os error 2)
     hint: check the path; relative paths start at the working directory
    error: `core.wasm` cannot be loaded
      why: this is a WebAssembly core module, not a component
         - in ~/.config/toolcell/config.toml, line 2, column 13
     hint: build it for `wasm32-wasip2`, or make a component of it with `wasm-tools component new`
    error: `none.wasm` cannot be loaded
      why: the component is not a hook: it does not export `toolcell:tool/hooks`
         - in ~/.config/toolcell/config.toml, line 2, column 13
     hint: build it against the world `toolcell:tool/hook-provider`
    error: `tool.wasm` cannot be loaded
      why: the component is not a hook: it does not export `toolcell:tool/hooks`
         - in ~/.config/toolcell/config.toml, line 2, column 13
     hint: it has tools: add them with --tool, or with `[tools.NAME] component = "FILE.wasm"`
    error: the hooks cannot run together
      why: the ordering constraints of hooks form a cycle: a, b
     hint: say in `[hooks.NAME]` which runs first: `priority`, `before`, `after`
    error: `hook.wasm` cannot be loaded
      why: the component is not a tool: it does not export `toolcell:tool/tools`
     hint: it is a hook: add it to your own configuration, `[hooks.NAME] component = "FILE.wasm"`
    "#);
}

#[test]
fn a_hook_that_is_what_the_lock_says_runs_and_one_that_changed_does_not() {
    let person = person("unruly_hook.wasm", "", &order("say hello"));
    let locked = ["--locked"];
    run(&person, "x", &locked).ended(3);
    let seen = person.run(&["lock", "--tool", "text"]).ended(0);
    assert!(seen.stderr.contains("the hook h"), "{}", seen.stderr);
    run(&person, "x", &locked).ended(0);
    configure(&person, "grants = [\"read=.\"]");
    let seen = run(&person, "x", &locked).ended(4);
    assert!(
        seen.stderr
            .contains("the hook `h`: the grant `read=.` is not among those that are locked"),
        "{}",
        seen.stderr
    );
    configure(&person, "");
    person.file(
        "hook.wasm",
        std::fs::read(built().join("keep_files.wasm")).unwrap(),
    );
    let seen = run(&person, "x", &locked).ended(4);
    for words in [
        "the hook `h`: its code changed",
        "it is asked at before_call, and was at before_prompt",
    ] {
        assert!(seen.stderr.contains(words), "{}", seen.stderr);
    }
    // A guard that somebody took out of the configuration is missed.
    person.configure("");
    let seen = run(&person, "x", &locked).ended(4);
    assert!(
        seen.stderr.contains("the hook `h` is locked and takes no part"),
        "{}",
        seen.stderr
    );
}

#[test]
fn a_person_reads_what_a_hook_is() {
    let person = person(
        "keep_files.wasm",
        "priority = 3\nlimits = { wall = \"2s\" }",
        &json!([]),
    );
    let seen = person.run(&["tool", "inspect", "h"]).ended(0);
    let (_, stable) = seen.stdout.split_once("\n\n").unwrap();
    insta::assert_snapshot!(stable, @r#"
      + can read environment variables, and sees only those that are granted
      + can write to standard output and standard error, which go to the log of the call
      + can terminate itself, which ends only the call
      - cannot access files, whatever is granted
      - cannot send HTTP requests, whatever is granted
      - cannot read the time of day
      - cannot get random numbers

    nothing is granted to it

    keep_files  is a hook, says it is a guard
      │ Allows writing files only below `scratch/`.
        before_call    sees every call; may change its arguments, refuse it, or end the turn
    "#);
    let json = person
        .run(&["tool", "inspect", "hook.wasm", "--json"])
        .ended(0)
        .json();
    assert_eq!(json["hook"]["moments"], json!(["before_call"]));
    assert_eq!(json["tools"], json!([]));
    let seen = person.run(&["config", "check"]).ended(0);
    for words in ["hooks.h.component", "hooks.h.priority", "hooks.h.limits.wall"] {
        assert!(seen.stdout.contains(words), "{}", seen.stdout);
    }
    let seen = person.run(&["doctor"]);
    assert!(
        seen.stdout.contains("✓ hook h         guards: before_call"),
        "{}",
        seen.stdout
    );
}

#[test]
fn agent_does_not_bypass_hooks() {
    let person = person("unruly_hook.wasm", "", &json!([]));
    let path = person.work().join("hook.wasm");
    person.configure(&format!(
        "[hooks.h]\ncomponent = {path:?}\n[agents.counter]\ndescription = \"Counts\"\n\
         provider = {{ name = \"scripted\", model = \"inner.json\" }}\n"
    ));
    let inner = json!({ "steps": [{ "calls": order("refuse this is private") }, { "text": "No." }] });
    person.file("inner.json", inner.to_string());
    let calls = json!([{ "name": "counter", "arguments": { "task": "Count" } }]);
    let outer = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    person.file("script.json", outer.to_string());
    let nested = events(&run(&person, "x", &[]).ended(0), "nested");
    let finished = nested
        .iter()
        .find(|event| event["event"]["type"] == "call_finished")
        .unwrap();
    assert_eq!(finished["event"]["error"]["kind"], "denied");
    assert!(finished.to_string().contains("this is private"), "{finished}");
}

/// A hook is asked about every call: what it can read and send, every session with it can.
#[test]
fn what_a_hook_is_granted_counts_for_the_guard_over_the_flow_of_data() {
    let fetch = json!([{ "name": "fetch", "arguments": { "url": "http://127.0.0.1:9/" } }]);
    let flags = ["--tool", "fetch", "--grant", "fetch:http=http://127.0.0.1:9"];
    for (grants, is_held) in [("[\"read=.\"]", true), ("[]", false)] {
        let person = person("unruly_hook.wasm", &format!("grants = {grants}"), &fetch);
        let seen = run(&person, "x", &flags).ended(0);
        let kind = &only_result(&seen)["error"]["kind"];
        assert_eq!(kind == "denied", is_held, "{}", seen.stdout);
        let explained = person.run(&[&["policy", "explain"][..], &flags].concat());
        let shown = explained.ended(0).stdout;
        assert_eq!(shown.contains("hook h  reads private data"), is_held, "{shown}");
        assert_eq!(
            shown.contains("`fetch` and `hook h` together can carry private data outside"),
            is_held,
            "{shown}"
        );
    }
}
