//! Calls of a client's tools on `/v1`: each result goes to its call, and nothing that the client sends is lost.

use serde_json::{Value, json};

use super::{Answered, Served, user};

fn called(city: &str) -> Value {
    json!({"name": "weather", "arguments": {"city": city}})
}

/// Server whose model calls the client's tool in two rounds.
fn server() -> (crate::support::cli_user::User, Served) {
    let user = user(json!([
        {"text": "Let me look.", "calls": [called("Oslo"), called("Rome")]},
        {"calls": [called("Bergen")]},
        {"text": "It rains."},
        {"text": "It still rains."},
    ]));
    let served = Served::start(&user);
    (user, served)
}

fn respond(served: &Served, input: &Value, previous: Option<&Value>) -> Answered {
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    let body = json!({"model": "default", "input": input, "previous_response_id": previous, "tools": tools});
    served.post("/v1/responses", &body)
}

fn calls(response: &Value) -> Vec<&Value> {
    let items = response["output"].as_array().unwrap().iter();
    items.filter(|item| item["type"] == "function_call").collect()
}

/// Results of all calls of a response.
fn results(response: &Value) -> Value {
    let calls = calls(response).into_iter();
    let results = calls
        .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}));
    results.collect()
}

fn message_of_the_user() -> Value {
    json!({"type": "message", "role": "user", "content": "And tomorrow?"})
}

#[test]
fn calls_have_own_identifiers_and_usage_is_of_one_request() {
    let (_user, served) = server();
    let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
    let mut messages = json!([{"role": "user", "content": "Does it rain?"}]);
    let (mut ids, mut inputs) = (Vec::new(), Vec::new());
    let mut first_round = Value::Null;
    for round in 0..3 {
        let body = json!({"model": "default", "messages": messages, "tools": tools});
        let answer = served.post("/v1/chat/completions", &body).json();
        inputs.push(answer["usage"]["prompt_tokens"].as_u64().unwrap());
        let message = answer["choices"][0]["message"].clone();
        let all = messages.as_array_mut().unwrap();
        all.push(message.clone());
        for call in message["tool_calls"].as_array().unwrap_or(&Vec::new()) {
            ids.push(call["id"].as_str().unwrap().to_owned());
            all.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"}));
        }
        if round == 0 {
            first_round = messages.clone();
        }
    }
    assert_eq!(messages[6]["content"], "It rains.", "{messages}");
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!((ids.len(), unique.len()), (3, 3), "{ids:?}");
    // Each request is one step, so that the tokens of the first are not counted again.
    assert!(inputs[2] < 2 * inputs[0], "{inputs:?}");

    // A client that goes back to the first results does not answer the call of the second round with them.
    let body = json!({"model": "default", "messages": messages.as_array().unwrap()[..1], "tools": tools});
    let again = served.post("/v1/chat/completions", &body).json();
    assert_ne!(again["choices"][0]["message"]["tool_calls"][0]["id"], ids[0]);
    let body = json!({"model": "default", "messages": first_round, "tools": tools});
    let back = served.post("/v1/chat/completions", &body).json();
    let call = &back["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], r#"{"city":"Bergen"}"#, "{back}");
}

#[test]
fn results_of_another_response_are_refused() {
    let (_user, served) = server();
    let input = json!("Does it rain?");
    let [one, other] = [(); 2].map(|()| respond(&served, &input, None).json());
    let refused = respond(&served, &results(&other), Some(&one["id"]));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("the previous response does not have"));
    let mut twice = results(&one);
    let again = twice[0].clone();
    twice.as_array_mut().unwrap().push(again);
    let refused = respond(&served, &twice, Some(&one["id"]));
    assert_eq!(refused.status, 400, "{}", refused.body);
    // An identifier is that of a response, not of a place inside of one.
    let (of_session, _) = one["id"].as_str().unwrap().rsplit_once('_').unwrap();
    let refused = respond(&served, &input, Some(&json!(format!("{of_session}_1"))));
    assert_eq!(refused.status, 404, "{}", refused.body);
    // Neither turn has ended by it.
    let second = respond(&served, &results(&one), Some(&one["id"])).json();
    assert_eq!(calls(&second)[0]["arguments"], r#"{"city":"Bergen"}"#, "{second}");
    // Results of the first round are not those of the second.
    let refused = respond(&served, &results(&one), Some(&second["id"]));
    assert_eq!(refused.status, 400, "{}", refused.body);
    let read = served.get(&format!("/v1/responses/{}", second["id"].as_str().unwrap()));
    assert_eq!(calls(&read.json()), calls(&second), "{}", read.body);
    let third = respond(&served, &results(&second), Some(&second["id"])).json();
    assert_eq!(third["output"][0]["content"][0]["text"], "It rains.", "{third}");
}

#[test]
fn message_beside_results_is_refused_and_not_lost() {
    let (_user, served) = server();
    let first = respond(&served, &json!("Does it rain?"), None).json();
    let message = message_of_the_user();
    let mut input = results(&first);
    input.as_array_mut().unwrap().push(message.clone());
    for (input, told) in [
        (input, "send the results first"),
        (json!([message]), "waits for the results of its calls"),
    ] {
        let refused = respond(&served, &input, Some(&first["id"]));
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(refused.json()["error"]["param"], "input");
        assert!(refused.body.contains(told), "{}", refused.body);
    }
    // Without the response and without the calls, either.
    let mut input = results(&first);
    input.as_array_mut().unwrap().insert(0, message_of_the_user());
    let refused = respond(&served, &input, None);
    assert_eq!(refused.status, 400, "{}", refused.body);
    let second = respond(&served, &results(&first), None);
    assert_eq!(second.status, 200, "{}", second.body);
}

#[test]
fn unstored_response_leaves_the_session_before_it_alone() {
    let user = user(json!([{"text": "Hello."}, {"text": "Hello again."}, {"text": "Bye."}]));
    let served = Served::start(&user);
    let first = respond(&served, &json!("Hi"), None).json();
    let ask = |previous: &Value| {
        let body =
            json!({"model": "default", "input": "Secret", "previous_response_id": previous, "store": false});
        served.post("/v1/responses", &body)
    };
    let second = ask(&first["id"]).json();
    // It is part of the same conversation.
    assert_eq!(
        second["output"][0]["content"][0]["text"], "Hello again.",
        "{second}"
    );
    assert_eq!(second["store"], false);
    let sessions = served.get("/api/sessions").json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    let id = sessions["sessions"][0]["id"].as_str().unwrap();
    let exported = served.get(&format!("/api/sessions/{id}/export")).body;
    assert!(!exported.contains("Secret"), "{exported}");
    assert_eq!(ask(&second["id"]).status, 404);
    // Of a conversation that went on, only the last response can be continued so.
    let third = respond(&served, &json!("Hi"), Some(&first["id"])).json();
    assert_eq!(
        third["output"][0]["content"][0]["text"], "Hello again.",
        "{third}"
    );
    assert_eq!(ask(&first["id"]).status, 400);
}

#[test]
fn refused_response_leaves_no_session() {
    let user = user(json!([{"text": "Hello."}, {"text": "Bye."}]));
    let served = Served::start(&user);
    let count = || {
        let sessions = served.get("/api/sessions").json();
        sessions["sessions"].as_array().unwrap().len()
    };
    let refused = |body: Value| {
        let mut body = body;
        body["model"] = json!("default");
        body["tools"] = json!([{"type": "function", "name": "no name", "parameters": {"type": "object"}}]);
        for stream in [false, true] {
            body["stream"] = json!(stream);
            let answer = served.post("/v1/responses", &body);
            assert_eq!(answer.status, 400, "{}", answer.body);
        }
    };
    refused(json!({"input": "Hi"}));
    let earlier = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "Hi"}]);
    refused(json!({"input": earlier}));
    assert_eq!(count(), 0);
    // The second continues after the first, the refused one in a copy of it.
    let first = respond(&served, &json!("Hi"), None).json();
    respond(&served, &json!("Hi"), Some(&first["id"]));
    refused(json!({"input": "Hi", "previous_response_id": first["id"]}));
    assert_eq!(count(), 1);
}

#[test]
fn tools_of_a_client_have_a_total_size_of_patterns() {
    let user = user(json!([{"text": "Hello."}]));
    let served = Served::start(&user);
    let schema = |states: usize| {
        let pattern = format!("[ab]{{{states}}}");
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    };
    let send = |sizes: &[usize], format: Option<usize>| {
        let tools = sizes.iter().enumerate().map(|(number, states)| {
            let function = json!({"name": format!("t{number}"), "parameters": schema(*states)});
            json!({"type": "function", "function": function})
        });
        let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "Hi"}]});
        body["tools"] = tools.collect();
        if let Some(states) = format {
            let form = json!({"name": "f", "schema": schema(states)});
            body["response_format"] = json!({"type": "json_schema", "json_schema": form});
        }
        served.post("/v1/chat/completions", &body)
    };
    let full = [200_000; 5];
    let answered = send(&full, None);
    assert_eq!(answered.status, 200, "{}", answered.body);
    let more = [&full[..], &[1]].concat();
    for (refused, tool) in [(send(&more, None), "t5"), (send(&full, Some(1)), "t4")] {
        let error = &refused.json()["error"];
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert_eq!(
            (&error["param"], &error["type"]),
            (&json!("tools"), &json!("invalid_request_error"))
        );
        let message = error["message"].as_str().unwrap();
        let told = format!(
            "the tool `{tool}` cannot be used: with those of the schemas before it, a total pattern size of 1000001"
        );
        assert!(message.starts_with(&told), "{message}");
    }
}
