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
    // The tools need not be sent again.
    let without = json!({"model": "default", "messages": messages});
    let second = served.post("/v1/chat/completions", &without).json();
    assert_eq!(
        second["choices"][0]["message"]["content"], "It rains in Oslo.",
        "{second}"
    );
}

#[test]
fn results_of_another_server_are_answered_and_others_refused() {
    let user = user(json!([{"text": "Not this."}, {"text": "It rains."}]));
    let served = Served::start(&user);
    let mut messages = json!([
        {"role": "user", "content": "Does it rain?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]);
    let ask = |messages: &Value| {
        let body = json!({"model": "default", "messages": messages});
        served.post("/v1/chat/completions", &body)
    };
    let answer = ask(&messages);
    assert_eq!(
        answer.json()["choices"][0]["message"]["content"],
        "It rains.",
        "{}",
        answer.body
    );
    messages[2]["tool_call_id"] = json!("call_2");
    let refused = ask(&messages);
    assert_eq!(refused.status, 400);
    assert!(
        refused.body.contains("`call_2` is of no call before it"),
        "{}",
        refused.body
    );
}

#[test]
fn stored_response_is_read_again() {
    let user = user(json!([
        {"calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]},
        {"text": "It rains."},
    ]));
    let served = Served::start(&user);
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    let first = json!({"model": "default", "input": "Does it rain?", "tools": tools});
    let first = served.post("/v1/responses", &first).json();
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let read = served.get(&path).json();
    assert_eq!(read["output"], first["output"], "{read}");
    assert_eq!(read["output"][0]["type"], "function_call");
    // A result of no call is told, and does not end the turn.
    let result = |call: &str| {
        let output = json!([{"type": "function_call_output", "call_id": call, "output": "rain"}]);
        let body = json!({"model": "default", "input": output, "previous_response_id": first["id"]});
        served.post("/v1/responses", &body)
    };
    let call = first["output"][0]["call_id"].as_str().unwrap();
    let other = format!("{}_7", call.rsplit_once('_').unwrap().0);
    assert_eq!(result(&other).status, 400);
    let second = result(call);
    assert_eq!(
        second.json()["output"][0]["content"][0]["text"],
        "It rains.",
        "{}",
        second.body
    );
    // Each is a response of its own, which stays as it was.
    for response in [first, second.json()] {
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        let read = served.get(&path).json();
        assert_eq!(read["status"], "completed");
        assert_eq!(read["output"], response["output"], "{read}");
    }
    for none in ["resp_1", "resp_0198f3c0000070008000000000000000_0"] {
        assert_eq!(served.get(&format!("/v1/responses/{none}")).status, 404);
    }
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

#[test]
fn error_names_what_is_wrong_in_the_form_of_openai() {
    let user = user(json!([{"text": "Hi."}]));
    let served = Served::start(&user);
    let hi = json!([{"role": "user", "content": "Hi"}]);
    let picture =
        |url: &str| json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]);
    let long = "x".repeat(1 << 20);
    let chat = "/v1/chat/completions";
    let responses = "/v1/responses";
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let called = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "c", "content": "x"});
    for (path, body, param, message) in [
        (chat, json!({"messages": hi}), "model", "no member `model`"),
        (
            chat,
            json!({"model": "other", "messages": hi}),
            "model",
            "no such model",
        ),
        (
            chat,
            json!({"model": "default", "messages": [1]}),
            "messages[0]",
            "expected an object, not the number `1`",
        ),
        (
            chat,
            json!({"model": "default", "messages": [{"role": 7}]}),
            "messages[0].role",
            "expected a string",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "n": -1}),
            "n",
            "expected a whole number",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "n": 2}),
            "n",
            "`n` is 1",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "toolcell": 5}),
            "toolcell",
            "expected an object",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "tools": [{}]}),
            "tools",
            "has no function with a name",
        ),
        (
            chat,
            json!({"model": "default", "messages": picture("data:text/html;base64,AAAA")}),
            "messages[0]",
            "PNG, JPEG, GIF or WebP",
        ),
        (
            chat,
            json!({"model": "default", "messages": picture("http://127.0.0.1/")}),
            "messages[0]",
            "no other URL is fetched",
        ),
        (
            chat,
            json!({"model": "default", "messages": [{"role": long}]}),
            "messages[0]",
            "unknown role",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "tools": [{"function": {"name": long}}]}),
            "tools",
            "cannot be used",
        ),
        (
            chat,
            json!({"model": "default", "messages": long}),
            "messages",
            "expected an array",
        ),
        (
            responses,
            json!({"model": "default", "input": 5}),
            "input",
            "a string or an array",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "conversation": "c"}),
            "conversation",
            "previous_response_id",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "prompt": {"id": "p"}}),
            "prompt",
            "not supported",
        ),
        (
            chat,
            json!({"model": "default", "messages": [{"role": "user"}]}),
            "messages[0]",
            "has no `content`",
        ),
        (
            chat,
            json!({"model": "default", "messages": [{"role": "user", "content": "x", "tool_calls": [call]}]}),
            "messages[0]",
            "only a message of role `assistant`",
        ),
        (
            chat,
            json!({"model": "default", "messages": [hi[0], {"role": "assistant", "function_call": {"name": "f"}}]}),
            "messages[1]",
            "send `tool_calls`",
        ),
        (
            chat,
            json!({"model": "default", "messages": [hi[0], called, called, result]}),
            "messages",
            "two calls have the identifier `c`",
        ),
        (
            chat,
            json!({"model": "default", "messages": [hi[0], result, called]}),
            "messages",
            "is of no call before it",
        ),
        (
            chat,
            json!({"model": "default", "messages": [hi[0], called, result, result]}),
            "messages",
            "has two results",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "functions": [{"name": "f"}]}),
            "functions",
            "send `tools`",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "function_call": "auto"}),
            "function_call",
            "send `tools`",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "modalities": ["text", "audio"]}),
            "modalities",
            "not supported",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "logprobs": true}),
            "logprobs",
            "not supported",
        ),
        (
            chat,
            json!({"model": "default", "messages": hi, "toolcell": {"cals": true}}),
            "toolcell.cals",
            "not a known member",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "background": true}),
            "background",
            "not supported",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "max_tool_calls": 1}),
            "max_tool_calls",
            "not supported",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "tools": [{"type": "web_search"}]}),
            "tools",
            "of type `function`",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "tools": [{"type": "function", "name": "no name"}]}),
            "tools",
            "cannot be used",
        ),
        (
            responses,
            json!({"model": "default", "input": [{"type": 1, "role": "user", "content": "x"}]}),
            "input[0]",
            "is not a string",
        ),
        (
            responses,
            json!({"model": "default", "input": [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c"},
            ]}),
            "input[1]",
            "no `output`",
        ),
        (
            responses,
            json!({"model": "default", "input": "x", "previous_response_id": "resp_1"}),
            "previous_response_id",
            "no such response",
        ),
    ] {
        let answer = served.post(path, &body);
        let error = answer.json()["error"].clone();
        let told = error["message"].as_str().unwrap();
        assert!([400, 404].contains(&answer.status), "{}", answer.body);
        assert_eq!(error["type"], "invalid_request_error", "{error}");
        assert!(told.contains(message), "{error}");
        assert!(!told.contains("struct ") && !told.contains("u64"), "{error}");
        assert_eq!(error["param"].as_str().unwrap_or_default(), param, "{error}");
        assert!(answer.body.len() < 2_000, "{}", answer.body.len());
    }
    // What a client sends does not fill the audit log.
    let audit = user.home().join(".local/state/toolcell/serve-audit.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    assert!(
        audit.contains("cannot be used") && audit.len() < 10_000,
        "{}",
        audit.len()
    );
}

#[test]
fn answer_that_is_cut_says_so() {
    let user = user(json!([{"text": "Half of", "stop": "max_tokens"}]));
    let served = Served::start(&user);
    let chat = json!({"model": "default", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = served.post("/v1/chat/completions", &chat).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    let mut request = json!({"model": "default", "input": "Hi"});
    let answer = served.post("/v1/responses", &request).json();
    assert_eq!(answer["status"], "incomplete", "{answer}");
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    let id = answer["id"].as_str().unwrap();
    let stored = served.get(&format!("/v1/responses/{id}")).json();
    assert_eq!(stored["status"], "incomplete", "{stored}");
    request["stream"] = json!(true);
    let streamed = served.post("/v1/responses", &request).body;
    assert!(streamed.contains("event: response.incomplete"), "{streamed}");
}

/// Answers in JSON, by a schema of the client: what does not fit is asked again, and no other text is among them.
#[test]
fn answer_fits_the_schema_of_the_client() {
    let schema = json!({
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
    });
    let count = json!({"name": "text_count", "arguments": {"text": "a"}});
    let user = user(json!([
        {"text": "Let me count.", "calls": [count]},
        {"text": "It is three."},
        {"text": " {\"sum\": 3}\n"},
    ]));
    let served = Served::start(&user);
    let message = json!([{"role": "user", "content": "Add 1 and 2."}]);
    let mut chat = json!({
        "model": "default",
        "messages": message,
        "response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}},
        "toolcell": {"calls": true, "notices": true},
    });
    let whole = served.post("/v1/chat/completions", &chat);
    assert_eq!(
        whole.json()["choices"][0]["message"]["content"],
        "{\"sum\": 3}",
        "{}",
        whole.body
    );
    chat["stream"] = json!(true);
    let stream = served.post("/v1/chat/completions", &chat).body;
    assert!(
        stream.contains(r#""content":"{\"sum\": 3}""#) && !stream.contains("three"),
        "{stream}"
    );
    let response = served.post(
        "/v1/responses",
        &json!({
            "model": "default",
            "input": message,
            "text": {"format": {"type": "json_schema", "name": "sum", "schema": schema}},
        }),
    );
    let response = response.json();
    let text = |response: &Value| response["output"][0]["content"][0]["text"].clone();
    assert_eq!(text(&response), "{\"sum\": 3}", "{response}");
    assert_eq!(response["text"]["format"]["name"], "sum");
    let id = response["id"].as_str().unwrap();
    let stored = served.get(&format!("/v1/responses/{id}")).json();
    assert_eq!(text(&stored), text(&response), "{stored}");

    for (format, param) in [
        (
            json!({"type": "json_schema", "json_schema": {"schema": {"type": 1}}}),
            "response_format",
        ),
        (json!({"type": "grammar"}), "response_format"),
    ] {
        chat["response_format"] = format;
        let refused = served.post("/v1/chat/completions", &chat);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error"]["param"], param, "{}", refused.body);
    }
}
