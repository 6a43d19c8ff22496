//! A turn that waits for its client of `/v1`, as the page and the API show it: nobody else can allow the call.

use serde_json::{Value, json};

use super::{Served, user};

#[test]
fn call_of_a_client_is_no_question_and_waits() {
    let user = user(json!([
        {"text": "Let me look.", "calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]},
        {"text": "It rains."},
        {"text": "Something else."},
    ]));
    let served = Served::start(&user);
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    let respond = |input: &Value, previous: Option<&Value>| {
        let body =
            json!({"model": "default", "input": input, "previous_response_id": previous, "tools": tools});
        served.post("/v1/responses", &body).json()
    };
    let first = respond(&json!("Does it rain?"), None);
    let calls = first["output"].as_array().unwrap().iter();
    let results: Vec<Value> = calls
        .filter(|item| item["type"] == "function_call")
        .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}))
        .collect();
    assert_eq!(results.len(), 1, "{first}");

    let sessions = served.get("/api/sessions").json();
    assert_eq!(sessions["sessions"][0]["state"], "client", "{sessions}");
    let id = sessions["sessions"][0]["id"].as_str().unwrap();
    let session = format!("/api/sessions/{id}");
    let refused = |path: &str, body: Value, code: &str| {
        let answer = served.post(&format!("{session}{path}"), &body);
        let told = answer.json()["error"]["code"].clone();
        assert_eq!(
            (answer.status, told),
            (409, json!(code)),
            "{path}: {}",
            answer.body
        );
        answer
    };
    let told = refused("/resume", json!({}), "waits_for_client").body;
    assert!(
        told.contains("waits for the client of `/v1` that asked"),
        "{told}"
    );
    refused("/turns", json!({"text": "And now?"}), "turn_open");
    refused("/compact", json!({}), "turn_open");
    refused("/cancel", json!({}), "no_turn");
    for path in ["/api/questions".to_owned(), format!("{session}/questions")] {
        assert_eq!(served.get(&path).json()["questions"], json!([]));
    }
    let asked = served.get(&format!("{session}/events")).body;
    assert!(asked.contains(r#""cause":"client""#), "{asked}");
    // A question that is none cannot be allowed by its call.
    refused("/questions/call_1", json!({"choice": "allow"}), "answered");

    let second = respond(&json!(results), Some(&first["id"]));
    assert_eq!(second["output"][0]["content"][0]["text"], "It rains.", "{second}");
    let sessions = served.get("/api/sessions").json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    assert_eq!(sessions["sessions"][0]["state"], "idle", "{sessions}");

    // One that its client leaves can be ended.
    let other = respond(&json!("Does it rain?"), None);
    assert!(other["output"].is_array(), "{other}");
    let id = served.get("/api/sessions").json()["sessions"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let session = format!("/api/sessions/{id}");
    assert_eq!(served.get(&session).json()["state"], "client");
    assert_eq!(served.post(&format!("{session}/abandon"), &json!({})).status, 202);
    while served.get(&session).json()["state"] != "idle" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
