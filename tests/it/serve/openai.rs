//! `/v1`, without a client of OpenAI: those are in `tests/serve/clients`.

use serde_json::{Value, json};

use super::{Served, user};

#[test]
fn chat_completion_is_answered_and_streamed() {
    let user = user(json!([{"text": "Hello."}]));
    let served = Served::start(&user);
    assert_eq!(served.get("/v1/models").json()["data"][0]["id"], "default");
    let mut request = json!({"model": "default", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = served.post("/v1/chat/completions", &request).json();
    assert_eq!(answer["choices"][0]["message"]["content"], "Hello.");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert!(answer["usage"]["total_tokens"].is_u64());
    request["stream"] = json!(true);
    let streamed = served.post("/v1/chat/completions", &request).body;
    assert!(streamed.contains("data: [DONE]"), "{streamed}");
    request["model"] = json!("gpt-4");
    let wrong = served.post("/v1/chat/completions", &request);
    assert_eq!(
        (wrong.status, wrong.json()["error"]["code"].clone()),
        (404, json!("model_not_found"))
    );
    request["messages"] = json!([]);
    request["model"] = json!("default");
    assert_eq!(served.post("/v1/chat/completions", &request).status, 400);
}

#[test]
fn tool_of_the_client_is_called_and_the_turn_continues() {
    let user = user(json!([
        {"text": "Let me look.", "calls": [
            {"name": "weather", "arguments": {"city": "Oslo"}},
            {"name": "text_count", "arguments": {"text": "a b"}},
        ]},
        {"text": "It rains in Oslo."},
    ]));
    let served = Served::start(&user);
    // The name of a tool of the agent, and that of a control tool, are left out.
    let tools = json!([
        {"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        }}},
        {"type": "function", "function": {"name": "text_count", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "read_result", "parameters": {"type": "object"}}},
    ]);
    let mut messages = json!([{"role": "user", "content": "Does it rain?"}]);
    let request = |messages: &Value| json!({"model": "default", "messages": messages, "tools": tools});
    let first = served.post("/v1/chat/completions", &request(&messages)).json();
    let choice = &first["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{first}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], r#"{"city":"Oslo"}"#);
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"});
    messages
        .as_array_mut()
        .unwrap()
        .extend([choice["message"].clone(), result]);
    let second = served.post("/v1/chat/completions", &request(&messages)).json();
    assert_eq!(
        second["choices"][0]["message"]["content"], "It rains in Oslo.",
        "{second}"
    );
}

#[test]
fn response_continues_the_one_before() {
    let user = user(json!([{"text": "One."}, {"text": "Two."}]));
    let served = Served::start(&user);
    let first = served
        .post("/v1/responses", &json!({"model": "default", "input": "first"}))
        .json();
    assert_eq!(first["output"][0]["content"][0]["text"], "One.", "{first}");
    let next = json!({"model": "default", "input": "second", "previous_response_id": first["id"]});
    let second = served.post("/v1/responses", &next).json();
    assert_eq!(second["output"][0]["content"][0]["text"], "Two.", "{second}");
    // From the same response again: a copy of the session.
    let again = served.post("/v1/responses", &next).json();
    assert_eq!(again["output"][0]["content"][0]["text"], "Two.", "{again}");
    assert_ne!(again["id"], second["id"]);
    let mut streamed = next.clone();
    streamed["stream"] = json!(true);
    let events = served.post("/v1/responses", &streamed).body;
    for kind in [
        "response.created",
        "response.output_text.delta",
        "response.completed",
    ] {
        assert!(events.contains(&format!("event: {kind}\n")), "{kind}: {events}");
    }
    let none = json!({"model": "default", "input": "x", "previous_response_id": "resp_1"});
    assert_eq!(served.post("/v1/responses", &none).status, 404);
}
