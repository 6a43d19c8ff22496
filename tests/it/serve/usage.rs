//! Usage by day: turns of sessions, and of conversations that are not stored.

use serde_json::{Value, json};

use super::{SCRIPTED, Served, is_finished, user};

const ADA: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const EVE: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";

#[test]
fn chat_completions_count_in_the_usage_of_their_client() {
    let user = user(json!([
        {"calls": [{"name": "text_count", "arguments": {"text": "a b"}}]},
        {"text": "One."},
    ]));
    super::users::tokens(
        &user,
        &[format!("{ADA} name=ada tokens=1m"), format!("{EVE} name=eve")],
    );
    let served = Served::with(&user, &[&SCRIPTED[..], &["--token-file", "tokens"]].concat());
    let days = |token: &str| -> Vec<Value> {
        let usage = served
            .send("GET", "/api/usage", &served.headers_of(token), "")
            .json();
        usage["days"].as_array().unwrap().clone()
    };
    let chat = |token: &str, body: &Value| {
        let answer = served.send(
            "POST",
            "/v1/chat/completions",
            &served.headers_of(token),
            &body.to_string(),
        );
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let body = json!({"model": "default", "messages": [{"role": "user", "content": "Go."}]});
    let told = chat(ADA, &body);
    // The same turn in a session is the measure.
    let headers = served.headers_of(EVE);
    let session = served.send("POST", "/api/sessions", &headers, "{}").json();
    let path = format!("/api/sessions/{}", session["id"].as_str().unwrap());
    served.send("POST", &format!("{path}/turns"), &headers, r#"{"text": "Go."}"#);
    loop {
        let page = served.send("GET", &format!("{path}/events"), &headers, "").json();
        if page["events"].as_array().unwrap().iter().any(is_finished) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (ada, eve) = (days(ADA), days(EVE));
    assert_eq!((ada.len(), eve.len()), (1, 1), "{ada:?} {eve:?}");
    for of in [
        "day",
        "agent",
        "turns",
        "failed_turns",
        "usage",
        "calls",
        "failed_calls",
        "denials",
    ] {
        assert_eq!(ada[0][of], eve[0][of], "{of}");
    }
    assert!(ada[0]["p50_us"].is_u64(), "{ada:?}");
    assert_eq!(ada[0]["usage"]["input"], told["usage"]["prompt_tokens"]);
    assert_eq!(ada[0]["usage"]["output"], told["usage"]["completion_tokens"]);
    assert_eq!(days(&served.token), Vec::<Value>::new());
    // So does a response that is not stored, and all of it outlasts the server.
    let body = json!({"model": "default", "input": "Go.", "store": false});
    served.send(
        "POST",
        "/v1/responses",
        &served.headers_of(ADA),
        &body.to_string(),
    );
    let day = days(ADA).remove(0);
    assert_eq!(day["turns"], 2);
    // The limit of the day counts the same.
    let ledger = user.home().join(".local/state/toolcell/serve-use.json");
    let ledger: Value = serde_json::from_str(&std::fs::read_to_string(ledger).unwrap()).unwrap();
    let tokens = ["input", "output"].map(|of| day["usage"][of].as_u64().unwrap());
    assert_eq!(ledger["clients"]["ada"]["tokens"], tokens[0] + tokens[1], "{day}");
    drop(served);
    let served = Served::with(&user, &[&SCRIPTED[..], &["--token-file", "tokens"]].concat());
    let usage = served
        .send("GET", "/api/usage", &served.headers_of(ADA), "")
        .json();
    assert_eq!(usage["days"][0]["calls"], 2, "{usage}");
}

#[test]
fn tokens_before_a_pause_count_once() {
    let user = user(json!([
        {"calls": [{"name": "weather", "arguments": {}}]},
        {"text": "Rain."},
    ]));
    let served = Served::start(&user);
    let tools =
        json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]);
    let mut body =
        json!({"model": "default", "messages": [{"role": "user", "content": "Go."}], "tools": tools});
    let usage = || {
        let usage = served.get("/api/usage").json();
        let day = usage["days"][0].clone();
        (
            day["turns"].as_u64().unwrap_or(0),
            day["usage"]["input"].as_u64().unwrap_or(0),
        )
    };
    let first = served.post("/v1/chat/completions", &body).json();
    let asked = &first["choices"][0]["message"];
    let of_first = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage(), (0, of_first), "{first}");
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(asked.clone());
    messages.push(json!({"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "rain"}));
    let second = served.post("/v1/chat/completions", &body).json();
    let of_second = second["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage(), (1, of_first + of_second), "{second}");
}
