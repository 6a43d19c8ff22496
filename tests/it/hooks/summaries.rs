//! Component hooks around summaries.

use serde_json::{Value, json};

use super::{built, configure, events, notices, run};
use crate::support::cli_user::{Seen, User};

/// Runs a turn with this prompt, whose conversation is summarised after a long call.
fn summarised(hook: &str, settings: &str, prompt: &str) -> (User, Seen) {
    let user = User::new();
    user.file("hook.wasm", std::fs::read(built().join(hook)).unwrap());
    let limits = "[context]\nsummarise_at = 1000\nkeep_rounds = 0";
    configure(&user, &format!("{settings}\n{limits}"));
    user.file("long.txt", "word ".repeat(2_000));
    let call = json!([{ "name": "files_read", "arguments": { "path": "long.txt" } }]);
    let steps = json!([{ "calls": call }, { "text": "The summary." }, { "text": "Done." }]);
    user.file("script.json", json!({ "steps": steps }).to_string());
    let seen = run(&user, prompt, &["--tool", "files", "--grant", "read=."]);
    (user, seen)
}

/// Returns the messages that replaced the older part of the conversation, each as its role and text.
fn replacement(seen: &Seen) -> Vec<(String, String)> {
    let compacted = events(seen, "compacted");
    assert_eq!(compacted.len(), 1, "{}", seen.stdout);
    let text = |message: &Value| {
        let parts = message.get("content").or_else(|| message.get("parts"));
        parts.unwrap()[0]["text"].as_str().unwrap_or_default().to_owned()
    };
    let messages = compacted[0]["replacement"].as_array().unwrap().iter();
    messages
        .map(|message| (message["role"].as_str().unwrap().to_owned(), text(message)))
        .collect()
}

fn reason(seen: &Seen) -> String {
    assert!(events(seen, "compacted").is_empty(), "{}", seen.stdout);
    let failed = events(seen, "summary_failed");
    assert_eq!(failed.len(), 1, "{}", seen.stdout);
    failed[0]["reason"].as_str().unwrap().to_owned()
}

#[test]
fn component_hook_keeps_a_message_beside_the_summary() {
    let (_user, seen) = summarised("keep_task.wasm", "", "The task.");
    let replacement = replacement(&seen.ended(0));
    let texts: Vec<&str> = replacement.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!((texts[0], texts[2]), ("The task.", "The summary."), "{texts:?}");
}

#[test]
fn component_hook_chooses_messages_before_a_summary() {
    let (_user, seen) = summarised("unruly_hook.wasm", "", "summarise the first");
    let seen = seen.ended(0);
    let told = notices(&seen);
    assert!(
        told.iter()
            .any(|text| text.contains("before a summary of 3 messages")),
        "{told:?}"
    );
    assert_eq!(replacement(&seen)[1].1, "The summary.");
    let moments: Vec<Value> = events(&seen, "hook_finished");
    let of = |moment: &str| {
        moments.iter().any(|event| {
            event["moment"] == moment && event["receipt"]["fuel"].as_u64().is_some_and(|fuel| fuel > 0)
        })
    };
    assert!(of("before_summary") && of("after_summary"), "{moments:?}");
}

#[test]
fn component_hook_writes_the_summary_itself() {
    let (_user, seen) = summarised("unruly_hook.wasm", "", "write it yourself");
    let replacement = replacement(&seen.ended(0));
    let expected = [("user", "By a hook:"), ("assistant", "nothing happened")];
    let expected = expected.map(|(role, text)| (role.to_owned(), text.to_owned()));
    assert_eq!(replacement[..2], expected);
}

#[test]
fn component_hook_refuses_a_summary_or_ends_the_turn() {
    for (prompt, why) in [
        ("no summary", "the hook `h` refused it: it is not wanted"),
        ("not this summary", "the hook `h` refused it: it is wrong"),
    ] {
        let (_user, seen) = summarised("unruly_hook.wasm", "", prompt);
        assert_eq!(reason(&seen.ended(0)), why);
    }
    let (_user, seen) = summarised("unruly_hook.wasm", "", "no turn with a summary");
    let outcome = &events(&seen, "turn_finished")[0]["outcome"];
    let aborted = json!({ "outcome": "aborted", "by": "h", "reason": "it is too long" });
    assert_eq!(*outcome, aborted);
}

#[test]
fn invalid_response_around_a_summary_counts_as_failure() {
    for (prompt, why) in [
        ("summarise nothing", "it chooses no message"),
        ("keep all twice", "it chooses message 0 of `messages` twice"),
        ("panic after the summary", "as told"),
    ] {
        let (_user, seen) = summarised("unruly_hook.wasm", "", prompt);
        let seen = seen.ended(0);
        let told = notices(&seen);
        assert!(
            told.iter()
                .any(|text| text.contains("_summary`: ") && text.contains(why)),
            "{told:?}"
        );
        assert_eq!(replacement(&seen)[1].1, "The summary.", "it has no effect");

        let (_user, seen) = summarised("unruly_hook.wasm", "guard = true", prompt);
        assert!(reason(&seen.ended(0)).contains("a check that must pass could not be made"));
    }
}
