//! Component hooks: changes, refusals and notices in a turn, and containment of misbehaving hooks.

mod failures;
mod startup;
mod summaries;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::repository::workspace::root;
use crate::support::cli_user::{Seen, User};

/// Builds the example hooks of the SDK, and the component with resources and prompts, once for all tests.
pub(crate) fn built() -> &'static Path {
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
            .args(["--example", "keep_files", "--example", "keep_task"])
            .args(["--example", "unruly_hook"])
            .args(["--example", "mcp_conformance"])
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

/// Creates a user with a hook in their configuration, whose model makes these calls and then answers.
fn user(hook: &str, settings: &str, calls: &Value) -> User {
    let user = User::new();
    user.file("hook.wasm", std::fs::read(built().join(hook)).unwrap());
    configure(&user, settings);
    let script = json!({ "model": "demo", "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    user
}

/// Adds the hook `h` to the user's configuration.
fn configure(user: &User, settings: &str) {
    let path = user.work().join("hook.wasm");
    user.configure(&format!("[hooks.h]\ncomponent = {path:?}\n{settings}\n"));
}

/// Creates a call of `text_count` with an instruction for the hook `unruly`.
fn order(text: &str) -> Value {
    json!([{ "name": "text_count", "arguments": { "text": text } }])
}

fn run(user: &User, prompt: &str, more: &[&str]) -> Seen {
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
    user.run(&arguments)
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

/// Returns the result of the only call.
fn only_result(seen: &Seen) -> Value {
    let mut finished = events(seen, "call_finished");
    assert_eq!(finished.len(), 1, "{}", seen.stdout);
    finished.remove(0)
}

#[test]
fn arguments_changed_by_hook_are_validated_and_used() {
    let user = user("unruly_hook.wasm", "", &order("change one two three"));
    let seen = run(&user, "x", &[]).ended(0);
    assert_eq!(
        events(&seen, "call_started")[0]["arguments"]["text"],
        "one two three"
    );
    assert_eq!(only_result(&seen)["structured"]["words"], 3, "{}", seen.stdout);

    let script = json!({ "steps": [{ "calls": order("break it") }, { "text": "Done." }] });
    user.file("script.json", script.to_string());
    let result = only_result(&run(&user, "x", &[]).ended(0));
    assert_eq!(result["error"]["kind"], "invalid_arguments");
    assert!(result.to_string().contains("/text"), "{result}");
}

#[test]
fn user_is_asked_about_arguments_changed_by_hook() {
    let user = user("unruly_hook.wasm", "", &order("change b"));
    let path = user.work().join("hook.wasm");
    user.configure(&format!(
        "[hooks.h]\ncomponent = {path:?}\n[approval]\nrules = [{{ tool = \"text_count\", verdict = \"ask\" }}]\n"
    ));
    let seen = run(&user, "x", &[]).ended(0);
    assert_eq!(events(&seen, "approval_requested")[0]["arguments"]["text"], "b");
}

#[test]
fn hook_refuses_call_with_reason_for_model() {
    let user = user("unruly_hook.wasm", "", &order("refuse this is private"));
    let result = only_result(&run(&user, "x", &[]).ended(0));
    assert_eq!(result["error"]["kind"], "denied");
    assert!(
        result["content"].to_string().contains("this is private"),
        "{result}"
    );
}

#[test]
fn hook_ends_turn_before_call_and_before_prompt() {
    let user = user("unruly_hook.wasm", "", &order("abort enough is enough"));
    let seen = run(&user, "x", &[]);
    let outcome = &events(&seen, "turn_finished")[0]["outcome"];
    assert_eq!(
        *outcome,
        json!({ "outcome": "aborted", "by": "h", "reason": "enough is enough" })
    );
    let seen = run(&user, "forbidden", &[]);
    assert!(events(&seen, "step_started").is_empty(), "{}", seen.stdout);
    assert!(
        seen.stdout.contains("this is not talked about"),
        "{}",
        seen.stdout
    );
}

#[test]
fn hook_notices_are_in_order_and_every_point_has_a_receipt() {
    let user = user("unruly_hook.wasm", "", &order("say about to count"));
    let seen = run(&user, "what is it?", &[]).ended(0);
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
fn text_added_to_prompt_by_hook_reaches_model() {
    let user = user("unruly_hook.wasm", "", &json!([]));
    let seen = run(&user, "Hello", &[]);
    let changed = &events(&seen, "prompt_changed")[0];
    assert!(
        changed["message"].to_string().contains("<context>\\nsession "),
        "{changed}"
    );
    assert_eq!(changed["instructions"], "Be brief.");
}

#[test]
fn hook_values_pass_between_points_and_hooks_in_order() {
    // The second hook runs first because of the user's configuration, whatever the components declare.
    let user = user("unruly_hook.wasm", "", &order("say one"));
    let path = user.work().join("hook.wasm");
    user.configure(&format!(
        "[hooks.a]\ncomponent = {path:?}\n[hooks.b]\ncomponent = {path:?}\nbefore = [\"a\"]\n[hooks.c]\ncomponent = {path:?}\npriority = 9\n"
    ));
    let seen = run(&user, "x", &[]).ended(0);
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
fn hook_sees_why_call_failed() {
    let calls = json!([{ "name": "text_count", "arguments": { "path": "gone.md" } }, { "name": "text_count", "arguments": { "text": 7 } }]);
    let user = user("unruly_hook.wasm", "", &calls);
    let said = notices(&run(&user, "x", &[]).ended(0));
    for words in [
        "error in call",
        "error in call_arguments",
        "after text_count: asked `x`, error failed",
    ] {
        assert!(said.iter().any(|n| n.starts_with(words)), "{words}: {said:?}");
    }
}

#[test]
fn hook_reaches_files_only_with_its_own_grant() {
    let user = user("unruly_hook.wasm", "", &order("read /secret.txt"));
    user.file("secret.txt", "the plan");
    // A grant for the tools does not apply to hooks.
    let said = notices(&run(&user, "x", &["--grant", "read=."]).ended(0));
    assert!(
        said.iter().any(|n| n.starts_with("it could not read")),
        "{said:?}"
    );
    configure(&user, "grants = [\"read=.\"]");
    let said = notices(&run(&user, "x", &[]).ended(0));
    assert!(said.contains(&"the plan".to_owned()), "{said:?}");
}

#[test]
fn component_can_be_hook_and_have_tools() {
    let calls = json!([{ "name": "unruly_order", "arguments": { "text": "change it" } }]);
    let user = user("unruly_hook.wasm", "", &calls);
    let seen = run(&user, "x", &["--tool", "hook.wasm"]).ended(0);
    let told = only_result(&seen)["content"].to_string();
    assert!(told.contains("the tool read: it"), "{told}");
    let json = user
        .run(&["tool", "inspect", "hook.wasm", "--json"])
        .ended(0)
        .json();
    assert_eq!(json["hook"]["name"], "unruly");
    assert_eq!(json["tools"][0]["name"], "unruly_order");
}

#[test]
fn guard_hook_protects_files_and_sets_default_argument() {
    let calls = json!([
        { "name": "files_write", "arguments": { "path": "a.txt", "content": "x" } },
        { "name": "files_write", "arguments": { "path": "scratch/a.txt", "content": "one\ntwo\n", "parents": true } },
        { "name": "files_read", "arguments": { "path": "scratch/a.txt" } },
    ]);
    let user = user("keep_files.wasm", "", &calls);
    let seen = run(&user, "x", &["--tool", "files", "--grant", "write=."]).ended(0);
    assert!(!user.work().join("a.txt").exists());
    assert!(user.work().join("scratch/a.txt").exists(), "{}", seen.stdout);
    let started = events(&seen, "call_started");
    let read = started
        .iter()
        .find(|event| event["tool"] == "files_read")
        .unwrap();
    assert_eq!(read["arguments"]["limit"], 200);
    let said = notices(&seen);
    assert_eq!(said, ["the model wanted to write outside `scratch/`"]);
    // It subscribes to one hook point; no other runs a cell.
    assert!(
        events(&seen, "hook_finished")
            .iter()
            .all(|event| event["moment"] == "before_call")
    );
}

#[test]
fn tool_inspect_describes_hook() {
    let user = user(
        "keep_files.wasm",
        "priority = 3\nlimits = { wall = \"2s\" }",
        &json!([]),
    );
    let seen = user.run(&["tool", "inspect", "h"]).ended(0);
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
        before_call    reads every call; can change its arguments, refuse it, or end the turn
    "#);
    let json = user
        .run(&["tool", "inspect", "hook.wasm", "--json"])
        .ended(0)
        .json();
    assert_eq!(json["hook"]["moments"], json!(["before_call"]));
    assert_eq!(json["tools"], json!([]));
    let seen = user.run(&["config", "check"]).ended(0);
    for words in ["hooks.h.component", "hooks.h.priority", "hooks.h.limits.wall"] {
        assert!(seen.stdout.contains(words), "{}", seen.stdout);
    }
    let seen = user.run(&["doctor"]);
    assert!(
        seen.stdout.contains("✓ hook h         guards: before_call"),
        "{}",
        seen.stdout
    );
}

#[test]
fn agent_does_not_bypass_hooks() {
    let user = user("unruly_hook.wasm", "", &json!([]));
    let path = user.work().join("hook.wasm");
    user.configure(&format!(
        "[hooks.h]\ncomponent = {path:?}\n[agents.counter]\ndescription = \"Counts\"\n\
         provider = {{ name = \"scripted\", model = \"inner.json\" }}\n"
    ));
    let inner = json!({ "steps": [{ "calls": order("refuse this is private") }, { "text": "No." }] });
    user.file("inner.json", inner.to_string());
    let calls = json!([{ "name": "counter", "arguments": { "task": "Count" } }]);
    let outer = json!({ "steps": [{ "calls": calls }, { "text": "Done." }] });
    user.file("script.json", outer.to_string());
    let nested = events(&run(&user, "x", &[]).ended(0), "nested");
    let finished = nested
        .iter()
        .find(|event| event["event"]["type"] == "call_finished")
        .unwrap();
    assert_eq!(finished["event"]["error"]["kind"], "denied");
    assert!(finished.to_string().contains("this is private"), "{finished}");
}

/// A hook is called for every call: the session has its access to data and network.
#[test]
fn hook_grants_count_for_data_flow_guard() {
    let fetch = json!([{ "name": "fetch", "arguments": { "url": "http://127.0.0.1:9/" } }]);
    let flags = ["--tool", "fetch", "--grant", "fetch:http=http://127.0.0.1:9"];
    for (grants, is_held) in [("[\"read=.\"]", true), ("[]", false)] {
        let user = user("unruly_hook.wasm", &format!("grants = {grants}"), &fetch);
        let seen = run(&user, "x", &flags).ended(0);
        let kind = &only_result(&seen)["error"]["kind"];
        assert_eq!(kind == "denied", is_held, "{}", seen.stdout);
        let explained = user.run(&[&["policy", "explain"][..], &flags].concat());
        let shown = explained.ended(0).stdout;
        assert_eq!(shown.contains("hook h  reads private data"), is_held, "{shown}");
        assert_eq!(
            shown.contains("`fetch` and `hook h` together can leak private data"),
            is_held,
            "{shown}"
        );
    }
}

#[test]
fn hint_about_a_hook_is_told_from_its_notices() {
    let words = "the hook `h` was denied directories `/`";
    let of = |text: &str| json!({ "name": "text_count", "arguments": { "text": text } });
    let calls = json!([of("read /x"), of(&format!("say {words}"))]);
    let user = user("unruly_hook.wasm", "", &calls);
    let seen = user
        .run(&[&crate::support::cli_user::SCRIPTED[..], &["--tool", "text"]].concat())
        .ended(0);
    let lines = |begin: &str| {
        let line = format!("{begin}{words}");
        seen.stderr.lines().filter(|seen| **seen == line).count()
    };
    assert_eq!(
        (lines("! "), lines("· the hook `h` says: │ ")),
        (1, 1),
        "{}",
        seen.stderr
    );
}
