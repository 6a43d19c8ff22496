//! Turns one after another, and at one time.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{SCRIPTED, Served, asking, is_finished, is_waiting, user};
use crate::hooks::built;
use crate::probe::Probe;

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
fn session_that_ended_with_a_question_says_so() {
    let call = json!({"name": "ask_question", "arguments": {"question": "Which text?"}});
    let done = json!({"name": "task_completion", "arguments": {"result": "Done."}});
    let user = user(json!([{"calls": [call]}, {"calls": [done]}]));
    let served = Served::with(&user, &[&SCRIPTED[..], &["--preset", "stepwise"]].concat());
    let session = served.session();
    let mut seen = 0;
    for state in ["asked", "idle"] {
        served.post(&format!("{session}/turns"), &json!({"text": "Go."}));
        let (ids, _) = served.stream(&session, seen, is_finished);
        seen = *ids.last().unwrap();
        let (_, told) = served.stream(&session, seen, |value| value["state"].is_string());
        assert_eq!(told.last().unwrap()["state"], state);
        assert_eq!(served.get(&session).json()["state"], state);
        assert_eq!(served.get("/api/sessions").json()["sessions"][0]["state"], state);
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
fn one_call_is_cancelled_while_its_turn_goes_on() {
    let count = json!({"name": "text_count", "arguments": {"text": "a"}});
    let endless = json!({"name": "probe", "arguments": {"a": 1}});
    let user = user(json!([{"calls": [endless, count]}, {"text": "Done."}]));
    user.probe("probe.wasm", &Probe::running("(loop $l (br $l)) (unreachable)"));
    let probe = user.work().join("probe.wasm");
    user.configure(&format!(
        "[tools.probe]\ncomponent = {probe:?}\nlimits = {{ wall = \"10m\" }}\n"
    ));
    let served = Served::with(&user, &[&SCRIPTED[..], &["--tool", "probe"]].concat());
    let session = served.session();
    let cancel = |call: &str| served.post(&format!("{session}/calls/{call}/cancel"), &json!({}));
    assert_eq!(cancel("x").json()["error"]["code"], "no_call");
    served.post(&format!("{session}/turns"), &json!({"text": "Go."}));
    let has_begun =
        |value: &Value| value["event"]["type"] == "call_started" && value["event"]["tool"] == "probe";
    let (_, all) = served.stream(&session, 0, has_begun);
    let id = all.last().unwrap()["event"]["id"].as_str().unwrap().to_owned();
    assert_eq!(cancel("none").status, 409);
    assert_eq!(cancel(&id).status, 202);
    let (_, all) = served.stream(&session, 0, is_finished);
    assert_eq!(all.last().unwrap()["event"]["text"], "Done.");
    let errors: Vec<&Value> = all
        .iter()
        .map(|value| &value["event"])
        .filter(|event| event["type"] == "call_finished")
        .filter_map(|event| event.get("error"))
        .collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["kind"], "cancelled");
    assert_eq!(cancel(&id).status, 409);
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

/// Reads a stream until its turn runs; the head and what was there instead if the turn is refused.
fn begun(mut stream: TcpStream) -> Result<TcpStream, String> {
    let mut seen = String::new();
    let mut piece = [0; 4_096];
    while !seen.contains("Wait.") {
        let read = stream.read(&mut piece).unwrap();
        if read == 0 {
            return Err(seen);
        }
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    Ok(stream)
}

#[test]
fn large_messages_run_up_to_their_total_size() {
    let user = user(json!([
        {"text": "Wait.", "calls": [{"name": "text_count", "arguments": {"text": "a"}}]},
        {"delay_ms": 600_000, "text": "Late."},
    ]));
    let served = Served::start(&user);
    let headers = served.authorized();
    let begin = |bytes: usize| {
        let message = json!({"role": "user", "content": "x".repeat(bytes)});
        let body = json!({"model": "default", "stream": true, "messages": [message]}).to_string();
        begun(served.open("POST", "/v1/chat/completions", &headers, &body))
    };
    // Four of the largest bodies run at one time. There is no room for another one, and some for small ones.
    let large = 31 << 20;
    let mut running: Vec<TcpStream> = (0..4).map(|_| begin(large).unwrap()).collect();
    let refused = begin(large).unwrap_err();
    assert!(
        refused.contains("the messages of your turns that run"),
        "{refused}"
    );
    assert!(refused.contains(r#""type":"rate_limit_error""#), "{refused}");
    let head = refused.to_ascii_lowercase();
    assert!(head.contains("retry-after: 5\r\n"), "{refused}");
    let small = begin(1_000).unwrap();
    // The end of a turn makes room.
    running.pop();
    let mut again = begin(large);
    while again.is_err() {
        std::thread::sleep(Duration::from_millis(100));
        again = begin(large);
    }
    drop((running, small, again));
}
