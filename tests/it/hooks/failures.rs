//! Hooks that fail.

use super::*;

/// Failures of a cell, with the messages shown to the user.
const FAILURES: [(&str, &str); 5] = [
    ("fail no idea", "no idea"),
    (
        "panic",
        "it crashed: wasm trap: wasm `unreachable` instruction executed",
    ),
    ("spin", "stopped by a limit: not finished after 300 ms"),
    ("hoard", "stopped by a limit: more than 32 MiB of memory"),
    (
        "flood",
        "its response is invalid: it leaves more than 65536 bytes",
    ),
];

const LIMITS: &str = "limits = { wall = \"300ms\", memory = \"32 MiB\", fuel = \"1000 T\" }";

#[test]
fn failing_guard_hook_refuses_call_and_is_reported() {
    let user = user("unruly_hook.wasm", &format!("guard = true\n{LIMITS}"), &json!([]));
    for (order_text, words) in FAILURES {
        let script = json!({ "steps": [{ "calls": order(order_text) }, { "text": "Done." }] });
        user.file("script.json", script.to_string());
        let seen = run(&user, "x", &[]).ended(0);
        assert_eq!(only_result(&seen)["error"]["kind"], "denied", "{order_text}");
        assert_eq!(only_result(&seen)["receipt"], Value::Null, "{order_text}");
        let said = notices(&seen);
        let told = said
            .iter()
            .any(|n| n.starts_with("the hook `h` failed in `before_call`") && n.contains(words));
        assert!(told, "{order_text}: {said:?}");
    }
    let seen = run(&user, "panic", &[]);
    assert!(events(&seen, "step_started").is_empty(), "{}", seen.stdout);
}

#[test]
fn failing_observer_hook_is_reported_and_call_continues() {
    let user = user("unruly_hook.wasm", LIMITS, &json!([]));
    for (order_text, words) in FAILURES {
        let script = json!({ "steps": [{ "calls": order(order_text) }, { "text": "Done." }] });
        user.file("script.json", script.to_string());
        let seen = run(&user, "x", &[]).ended(0);
        assert_eq!(only_result(&seen)["error"], Value::Null, "{order_text}");
        let said = notices(&seen);
        assert!(said.iter().any(|n| n.contains(words)), "{order_text}: {said:?}");
    }
}
