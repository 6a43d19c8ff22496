//! Turns one after another.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Served, asking, is_finished, is_waiting, user};
use crate::hooks::built;

#[test]
fn next_turn_may_begin_once_the_last_has_finished() {
    let user = user(json!([{"text": "One."}, {"text": "Two."}, {"text": "Three."}]));
    user.file(
        "hook.wasm",
        std::fs::read(built().join("unruly_hook.wasm")).unwrap(),
    );
    let hook = user.work().join("hook.wasm");
    user.configure(&format!("[hooks.h]\ncomponent = {hook:?}\n"));
    let served = Served::start(&user);
    let session = served.session();
    let mut seen = 0;
    for _ in 0..3 {
        // The hook runs on for a while after the end of each turn.
        let started = served.post(&format!("{session}/turns"), &json!({"text": "linger"}));
        assert_eq!(started.status, 202, "{}", started.body);
        let (ids, _) = served.stream(&session, seen, is_finished);
        seen = *ids.last().unwrap();
        assert_eq!(served.get(&session).json()["state"], "idle");
    }
}

#[test]
fn allow_like_answers_the_other_questions_of_the_tool() {
    let count = |text: &str| json!({"name": "text_count", "arguments": {"text": text}});
    let user = user(json!([{"calls": [count("a"), count("b"), count("c")]}, {"text": "Done."}]));
    user.configure("[[approval.rules]]\ntool = \"text_count\"\nverdict = \"ask\"\n");
    let served = Served::start(&user);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Count."}));
    let is_asking = |value: &Value| value["questions"].as_array().is_some_and(|all| all.len() == 3);
    let (_, all) = served.stream(&session, 0, is_asking);
    let id = all.last().unwrap()["questions"][1]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{session}/questions/{id}");
    assert_eq!(served.post(&path, &json!({"choice": "allow_like"})).status, 200);
    let (_, all) = served.stream(&session, 0, is_finished);
    assert_eq!(all.last().unwrap()["event"]["text"], "Done.");
    let receipts = served.get(&format!("{session}/receipts")).json();
    assert_eq!(receipts["receipts"].as_array().unwrap().len(), 3);
}

#[test]
fn stopping_server_pauses_a_turn_that_waits_for_an_answer() {
    // A server whose turn waits for the model ends only after the time for turns to end.
    let user_of_slow = user(json!([{"delay_ms": 600_000, "text": "Late."}]));
    let mut slow = Served::start(&user_of_slow);
    let session = slow.session();
    slow.post(&format!("{session}/turns"), &json!({"text": "Go."}));
    let user = asking();
    let mut served = Served::start(&user);
    let session = served.session();
    served.post(&format!("{session}/turns"), &json!({"text": "Count."}));
    // The state comes first, also before the events so far.
    served.stream(&session, 0, is_waiting);
    let stored = served.get(&format!("{session}/events")).json();
    let last = stored["events_total"].as_u64().unwrap();
    for child in [&slow.child, &served.child] {
        kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    }
    assert!(served.child.wait().unwrap().success());
    assert_eq!(
        slow.child.try_wait().unwrap(),
        None,
        "the question held up the end"
    );

    let served = Served::start(&user);
    assert_eq!(served.get(&session).json()["state"], "open");
    assert_eq!(served.post(&format!("{session}/resume"), &json!({})).status, 202);
    let (_, all) = served.stream(&session, last, is_waiting);
    let id = all.last().unwrap()["questions"][0]["id"].as_str().unwrap();
    served.post(&format!("{session}/questions/{id}"), &json!({"choice": "allow"}));
    let (_, all) = served.stream(&session, last, is_finished);
    assert_eq!(all.last().unwrap()["event"]["text"], "Two words.");
}
