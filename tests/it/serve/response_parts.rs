//! Responses of `/v1` are parts of turns: each has an identifier of its own, does not change afterwards, and can be continued again.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answered, SCRIPTED, Served, user};

const WEATHER: &str = "weather";

fn called(city: &str) -> Value {
    json!({"name": WEATHER, "arguments": {"city": city}})
}

fn body(input: &Value, previous: Option<&Value>) -> Value {
    let tools = json!([{"type": "function", "name": WEATHER, "parameters": {"type": "object"}}]);
    json!({"model": "default", "input": input, "previous_response_id": previous, "tools": tools})
}

fn respond(served: &Served, input: &Value, previous: Option<&Value>) -> Answered {
    served.post("/v1/responses", &body(input, previous))
}

fn read(served: &Served, response: &Value) -> Value {
    let id = response["id"].as_str().unwrap();
    served.get(&format!("/v1/responses/{id}")).json()
}

fn calls(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().unwrap().iter();
    items
        .filter(|item| item["type"] == "function_call")
        .cloned()
        .collect()
}

/// Results of calls.
fn results(calls: &[Value]) -> Value {
    let results = calls.iter();
    results
        .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}))
        .collect()
}

fn text(response: &Value) -> &Value {
    &response["output"][0]["content"][0]["text"]
}

#[test]
fn each_part_of_a_turn_is_a_stable_response() {
    let user = user(json!([
        {"text": "Let me look.", "calls": [called("Oslo"), called("Rome")]},
        {"calls": [called("Bergen")]},
        {"text": "It rains."},
    ]));
    let served = Served::start(&user);
    let mut all = vec![respond(&served, &json!("Does it rain?"), None).json()];
    let first = calls(&all[0]);
    assert_eq!(first.len(), 2, "{}", all[0]);
    // Only one result: the other call is part of the next response.
    for step in 0..3 {
        let last = all.last().unwrap().clone();
        let input = match step {
            0 => results(&first[..1]),
            _ => results(&calls(&last)),
        };
        let next = respond(&served, &input, Some(&last["id"]));
        assert_eq!(next.status, 200, "{}", next.body);
        let next = next.json();
        assert_eq!(next["previous_response_id"], last["id"]);
        all.push(next);
    }
    assert_eq!(calls(&all[1])[0]["call_id"], first[1]["call_id"], "{}", all[1]);
    assert_eq!(text(&all[3]), "It rains.", "{}", all[3]);
    for (index, response) in all.iter().enumerate() {
        let again = read(&served, response);
        for member in ["id", "status", "output", "usage"] {
            assert_eq!(again[member], response[member], "{member} of {index}");
        }
        let same = all.iter().filter(|other| other["id"] == response["id"]);
        assert_eq!(same.count(), 1, "{response}");
    }
    let sessions = served.get("/api/sessions").json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
}

#[test]
fn results_sent_again_are_answered_in_a_copy() {
    let user = user(json!([{"calls": [called("Oslo")]}, {"text": "It rains."}, {"text": "Bye."}]));
    let served = Served::start(&user);
    let first = respond(&served, &json!("Does it rain?"), None).json();
    let input = results(&calls(&first));
    let once = respond(&served, &input, Some(&first["id"])).json();
    for previous in [Some(&first["id"]), None] {
        let again = respond(&served, &input, previous);
        assert_eq!(again.status, 200, "{}", again.body);
        assert_eq!(text(&again.json()), "It rains.", "{}", again.body);
        assert_ne!(again.json()["id"], once["id"]);
    }
    assert_eq!(read(&served, &once)["output"], once["output"]);
    assert_eq!(read(&served, &first)["output"], first["output"]);
    // Calls that are sent back with their results are those of the response.
    let mut echoed = calls(&first);
    echoed.extend(input.as_array().unwrap().clone());
    let again = respond(&served, &json!(echoed), Some(&first["id"]));
    assert_eq!(text(&again.json()), "It rains.", "{}", again.body);
    let foreign =
        json!([{"type": "function_call", "call_id": "call_1", "name": WEATHER, "arguments": "{}"}, input[0]]);
    let refused = respond(&served, &foreign, Some(&first["id"]));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("leave out items"), "{}", refused.body);
}

#[test]
fn results_are_sent_again_after_the_client_left() {
    let user = user(json!([
        {"calls": [called("Oslo")]},
        {"delay_ms": 1_500, "text": "It rains."},
        {"text": "Bye."},
    ]));
    let served = Served::start(&user);
    let first = respond(&served, &json!("Does it rain?"), None).json();
    let input = results(&calls(&first));
    let given_up = body(&input, Some(&first["id"])).to_string();
    let stream = served.open("POST", "/v1/responses", &served.authorized(), &given_up);
    std::thread::sleep(Duration::from_millis(500));
    drop(stream);
    std::thread::sleep(Duration::from_millis(300));
    let read = read(&served, &first);
    assert_eq!(
        (&read["status"], &read["output"]),
        (&json!("completed"), &first["output"]),
        "{read}"
    );
    let again = respond(&served, &input, Some(&first["id"]));
    assert_eq!(again.status, 200, "{}", again.body);
    assert_eq!(text(&again.json()), "It rains.", "{}", again.body);
    let next = respond(&served, &json!("Thanks"), Some(&again.json()["id"]));
    assert_eq!(text(&next.json()), "Bye.", "{}", next.body);
}

#[test]
fn parts_without_a_store_have_identifiers_of_their_own() {
    let user = user(json!([{"calls": [called("Oslo")]}, {"text": "It rains."}]));
    let served = Served::start(&user);
    let ask = |input: &Value| {
        let mut body = body(input, None);
        body["store"] = json!(false);
        served.post("/v1/responses", &body).json()
    };
    let first = ask(&json!("Does it rain?"));
    let second = ask(&results(&calls(&first)));
    assert_eq!(text(&second), "It rains.", "{second}");
    assert_ne!(first["id"], second["id"]);
    assert_ne!(first["output"][0]["id"], second["output"][0]["id"]);
}

#[test]
fn response_of_a_killed_server_is_continued() {
    let user = user(json!([{"delay_ms": 600_000, "text": "Late."}, {"text": "Hello."}]));
    let mut served = Served::start(&user);
    let request = body(&json!("Hi"), None).to_string();
    let _stream = served.open("POST", "/v1/responses", &served.authorized(), &request);
    // The turn has begun, and its response is that of its session.
    let response = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let sessions = served.get("/api/sessions").json();
        let id = sessions["sessions"][0]["id"].as_str()?.to_owned();
        let events = served.get(&format!("/api/sessions/{id}/events")).json();
        let is_begun = events["events_total"].as_u64()? >= 2;
        is_begun.then(|| json!({"id": format!("resp_{}_0", id.replace('-', ""))}))
    });
    let response = &response.unwrap();
    assert_eq!(read(&served, response)["status"], "in_progress");
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    user.file(
        "script.json",
        json!({"position": "conversation", "steps": [{"text": "Hello."}, {"text": "Hello."}]}).to_string(),
    );
    let served = Served::start(&user);
    let stored = read(&served, response);
    assert_eq!(stored["status"], "incomplete", "{stored}");
    assert_eq!(stored["incomplete_details"]["reason"], "interrupted", "{stored}");
    for _ in 0..2 {
        let next = respond(&served, &json!("Are you there?"), Some(&response["id"]));
        assert_eq!(next.status, 200, "{}", next.body);
        assert_eq!(text(&next.json()), "Hello.", "{}", next.body);
        assert_eq!(read(&served, response)["status"], "incomplete");
    }
}

#[test]
fn requests_at_once_from_one_response_are_answered_apart() {
    let user = user(json!([{"text": "Hello."}, {"delay_ms": 100, "text": "Bye."}]));
    let served = Served::start(&user);
    let first = respond(&served, &json!("Hi"), None).json();
    let ask = |number: usize| respond(&served, &json!(format!("Bye {number}")), Some(&first["id"]));
    let all: Vec<Answered> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|number| scope.spawn(move || ask(number))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let mut ids = std::collections::BTreeSet::new();
    for answered in &all {
        assert_eq!(answered.status, 200, "{}", answered.body);
        let response = answered.json();
        assert_eq!(text(&response), "Bye.", "{response}");
        assert_eq!(read(&served, &response)["output"], response["output"]);
        ids.insert(response["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), all.len());
    // One goes on in the session, the others in copies of it before their questions.
    let sessions = served.get("/api/sessions").json();
    let sessions = sessions["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), all.len());
    for session in sessions {
        let id = session["id"].as_str().unwrap();
        let events = served.get(&format!("/api/sessions/{id}/events")).body;
        assert_eq!(
            events
                .matches(r#""content":[{"type":"text","text":"Bye "#)
                .count(),
            1,
            "{events}"
        );
    }
}

#[test]
fn stored_response_has_the_text_that_its_client_had() {
    let count = json!({"name": "text_count", "arguments": {"text": "a"}});
    let user = user(json!([
        {"text": "Let me count.", "calls": [count]},
        {"text": "Now the weather.", "calls": [called("Oslo")]},
        {"calls": [count]},
        {"text": "It rains."},
    ]));
    let served = Served::start(&user);
    let first = respond(&served, &json!("Does it rain?"), None).json();
    assert_eq!(text(&first), "Let me count.\n\nNow the weather.", "{first}");
    let second = respond(&served, &results(&calls(&first)), Some(&first["id"])).json();
    assert_eq!(text(&second), "It rains.", "{second}");
    for response in [&first, &second] {
        assert_eq!(read(&served, response)["output"], response["output"]);
    }
}

#[test]
fn paused_response_is_continued_after_its_turn_was_given_up() {
    let user = user(json!([{"calls": [called("Oslo"), called("Rome")]}, {"text": "It rains."}]));
    let served = Served::start(&user);
    let first = respond(&served, &json!("Does it rain?"), None).json();
    let sessions = served.get("/api/sessions").json();
    let id = sessions["sessions"][0]["id"].as_str().unwrap();
    let given_up = served.post(&format!("/api/sessions/{id}/abandon"), &json!({}));
    assert_eq!(given_up.status, 202, "{}", given_up.body);
    (0..200).find(|_| {
        std::thread::sleep(Duration::from_millis(20));
        served.get(&format!("/api/sessions/{id}")).json()["state"] != "running"
    });
    assert_eq!(read(&served, &first)["output"], first["output"]);
    for previous in [Some(&first["id"]), None] {
        let next = respond(&served, &results(&calls(&first)), previous);
        assert_eq!(next.status, 200, "{}", next.body);
        assert_eq!(text(&next.json()), "It rains.", "{}", next.body);
    }
}

#[test]
fn answer_has_what_a_control_tool_said() {
    for (control, arguments) in [
        ("task_completion", json!({"result": "All done."})),
        (
            "ask_question",
            json!({"question": "All done.", "suggestions": ["Yes", "No"]}),
        ),
    ] {
        let call = json!({"name": control, "arguments": arguments});
        let user = user(json!([{"text": "Let me see.", "calls": [call]}]));
        let served = Served::with(&user, &[&SCRIPTED[..], &["--preset", "stepwise"]].concat());
        let response = respond(&served, &json!("Go"), None).json();
        assert_eq!(
            text(&response),
            "Let me see.\n\nAll done.",
            "{control} {response}"
        );
        assert_eq!(read(&served, &response)["output"], response["output"]);
        let messages = json!([{"role": "user", "content": "Go"}]);
        let chat = served.post(
            "/v1/chat/completions",
            &json!({"model": "default", "messages": messages}),
        );
        let content = &chat.json()["choices"][0]["message"]["content"];
        assert_eq!(content, "Let me see.\n\nAll done.", "{}", chat.body);
    }
}

/// Clients name earlier items instead of sending them again.
#[test]
fn referenced_call_is_continued_with_its_result() {
    let user = user(json!([
        {"text": "Let me look.", "calls": [called("Oslo")]},
        {"text": "It rains."},
        {"text": "Bye."},
    ]));
    let served = Served::start(&user);
    let question = json!({"role": "user", "content": "Does it rain?"});
    let first = respond(&served, &json!([question]), None).json();
    let of_output = first["output"].as_array().unwrap().iter();
    let references: Vec<Value> = of_output
        .map(|item| json!({"type": "item_reference", "id": item["id"]}))
        .collect();
    let mut input = vec![question];
    input.extend(references);
    input.extend(results(&calls(&first)).as_array().unwrap().clone());
    let second = respond(&served, &json!(input), None);
    assert_eq!(second.status, 200, "{}", second.body);
    let second = second.json();
    assert_eq!(text(&second), "It rains.", "{second}");
    // The same turn goes on.
    let sessions = served.get("/api/sessions").json();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    // The next question has the whole conversation.
    input.push(json!({"type": "item_reference", "id": second["output"][0]["id"]}));
    input.push(json!({"role": "user", "content": "Thanks"}));
    let third = respond(&served, &json!(input), None);
    assert_eq!(third.status, 200, "{}", third.body);
    assert_eq!(text(&third.json()), "Bye.", "{}", third.body);
    let id = third.json()["id"].as_str().unwrap()["resp_".len()..][..32].to_owned();
    let id = uuid::Uuid::try_parse(&id).unwrap().hyphenated();
    let events = served.get(&format!("/api/sessions/{id}/events")).json();
    let imported = &events["events"][0]["event"]["messages"];
    assert_eq!(imported[1]["parts"][0]["text"], "Let me look.", "{events}");
    assert_eq!(imported[1]["parts"][1]["name"], WEATHER, "{events}");
    assert_eq!(imported[2]["role"], "tool", "{events}");
    assert_eq!(imported[3]["parts"][0]["text"], "It rains.", "{events}");
    let foreign = "tc_".to_owned() + &calls(&first)[0]["call_id"].as_str().unwrap()[3..] + "9";
    let foreign = json!([{"type": "item_reference", "id": foreign.replacen("tc_", "fc_", 1)}]);
    assert_eq!(respond(&served, &foreign, None).status, 404);
}

#[test]
fn stored_response_with_one_call_at_a_time_is_continued() {
    let count = json!({"name": "text_count", "arguments": {"text": "a"}});
    let user = user(json!([
        {"text": "Let me look.", "calls": [called("Oslo"), count, called("Rome")]},
        {"text": "It rains."},
    ]));
    let served = Served::with(&user, &[&SCRIPTED[..], &["--preset", "sequential"]].concat());
    let mut last = respond(&served, &json!("Does it rain?"), None).json();
    let mut all = vec![last.clone()];
    for _ in 0..2 {
        let input = results(&calls(&last));
        assert_eq!(input.as_array().unwrap().len(), 1, "{last}");
        let next = respond(&served, &input, Some(&last["id"]));
        assert_eq!(next.status, 200, "{}", next.body);
        last = next.json();
        all.push(last.clone());
    }
    assert_eq!(text(&last), "It rains.", "{last}");
    for response in &all {
        assert_eq!(read(&served, response)["output"], response["output"]);
    }
}

#[test]
fn answer_at_the_limit_of_steps_is_incomplete() {
    let count = json!({"name": "text_count", "arguments": {"text": "a"}});
    let user = user(json!([{"text": "Let me count.", "calls": [count]}, {"text": "Late."}]));
    let served = Served::with(
        &user,
        &[&SCRIPTED[..], &["--max-steps", "1", "--preset", "sequential"]].concat(),
    );
    let response = respond(&served, &json!("Go"), None).json();
    assert_eq!(response["status"], "incomplete", "{response}");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert!(
        text(&response).as_str().unwrap().starts_with("Let me count."),
        "{response}"
    );
    for member in ["status", "output", "incomplete_details"] {
        assert_eq!(read(&served, &response)[member], response[member], "{member}");
    }
    let messages = json!([{"role": "user", "content": "Go"}]);
    let chat = served.post(
        "/v1/chat/completions",
        &json!({"model": "default", "messages": messages}),
    );
    assert_eq!(
        chat.json()["choices"][0]["finish_reason"],
        "length",
        "{}",
        chat.body
    );
}

#[test]
fn failed_response_has_its_output_so_far() {
    let count = json!({"name": "text_count", "arguments": {"text": "a"}});
    let user = user(
        json!([{"text": "Let me count.", "calls": [count]}, {"text": "Then", "error": {"kind": "unauthorized"}}]),
    );
    let served = Served::start(&user);
    let mut body = body(&json!("Go"), None);
    body["stream"] = json!(true);
    let stream = served.post("/v1/responses", &body).body;
    let last = stream
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "))
        .unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let response = &last["response"];
    assert_eq!(last["type"], "response.failed", "{last}");
    assert_eq!(text(response), "Let me count.\n\nThen", "{last}");
    assert_eq!(response["output"][0]["status"], "incomplete", "{last}");
    assert!(response["usage"].is_object(), "{last}");
    let stored = read(&served, response);
    for member in ["status", "output", "usage", "error"] {
        assert_eq!(stored[member], response[member], "{member}");
    }
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(served.get(&format!("{path}?stream=false")).status, 200);
    let refused = served.get(&format!("{path}?stream=true"));
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].as_str()),
        (400, Some("stream"))
    );
}

#[test]
fn stored_response_tells_what_it_was_made_with() {
    let user = user(json!([{"text": "One."}, {"text": "Two."}, {"text": "Three."}]));
    let served = Served::start(&user);
    let told = |response: &Value| {
        ["previous_response_id", "instructions", "metadata"].map(|name| response[name].clone())
    };
    let mut made: Vec<Value> = Vec::new();
    for more in [
        json!({"instructions": "Be brief.", "metadata": {"of": "suite"}}),
        json!({"previous_response_id": null}),
        json!({"instructions": "x".repeat((256 << 10) + 1), "metadata": {}}),
    ] {
        let mut body = json!({"model": "default", "input": "Go."});
        body["previous_response_id"] = made.last().map_or(Value::Null, |last| last["id"].clone());
        for (name, value) in more.as_object().unwrap() {
            if !value.is_null() {
                body[name] = value.clone();
            }
        }
        let answer = served.post("/v1/responses", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        made.push(answer.json());
    }
    let first = &made[0];
    assert_eq!(
        told(first),
        [Value::Null, json!("Be brief."), json!({"of": "suite"})]
    );
    assert_eq!(told(&made[1]), [first["id"].clone(), Value::Null, json!({})]);
    // Instructions of any length are used, and those of up to 256 KiB are kept.
    let mut kept = told(&made[2]);
    assert_eq!(kept[1].as_str().unwrap().len(), (256 << 10) + 1);
    kept[1] = Value::Null;
    for served in [served, Served::start(&user)] {
        assert_eq!(told(&read(&served, first)), told(first));
        assert_eq!(told(&read(&served, &made[1])), told(&made[1]));
        assert_eq!(told(&read(&served, &made[2])), kept);
    }
}

#[test]
fn metadata_of_a_response_are_a_few_short_texts() {
    let user = user(json!([{"text": "One."}]));
    let served = Served::start(&user);
    let with = |metadata: Value| {
        let body = json!({"model": "default", "input": "Go.", "metadata": metadata});
        served.post("/v1/responses", &body)
    };
    let many = |count: usize| -> Value {
        (0..count)
            .map(|number| (number.to_string(), json!("x")))
            .collect()
    };
    let long = |key: usize, value: usize| json!({ "k".repeat(key): "é".repeat(value) });
    for right in [Value::Null, json!({}), many(16), long(64, 512)] {
        assert_eq!(with(right.clone()).status, 200, "{right}");
    }
    for wrong in [
        json!("x"),
        json!([]),
        json!({"a": 1}),
        many(17),
        long(65, 1),
        long(1, 513),
    ] {
        let refused = with(wrong.clone());
        assert_eq!(refused.status, 400, "{wrong}");
        assert_eq!(refused.json()["error"]["param"], "metadata");
    }
}
