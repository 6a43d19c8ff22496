//! `toolcell mcp serve --agent`: an agent of the configuration as the only tool.

use serde_json::{Value, json};

use super::{Client, initialize, text};
use crate::support::cli_user::User;

const COUNTER: &str = "[agents.counter]\ndescription = \"Counts words\"\ninstructions = \"You count.\"\n\
                       tools = [\"text\"]\nprovider = { name = \"scripted\", model = \"inner.json\" }\n";

const SERVED: [&str; 2] = ["--agent", "counter"];

/// A user whose agent makes one call and answers.
fn user(configuration: &str) -> User {
    let user = User::new();
    user.configure(configuration);
    let usage = json!({ "input": 90, "output": 10 });
    let count = json!({ "name": "text_count", "arguments": { "text": "a b" } });
    let inner = json!({ "model": "small", "steps": [
        { "calls": [count], "usage": usage, "expect": { "instructions": "You count." } },
        { "text": "Two words.", "usage": usage },
    ] });
    user.file("inner.json", inner.to_string());
    user
}

fn task() -> Value {
    json!({"name": "counter", "arguments": {"task": "Count the words of `a b`"}})
}

#[test]
fn agent_is_served_as_one_tool() {
    let user = user(COUNTER);
    user.configure(&format!("{COUNTER}[log]\ndir = {:?}\n", user.work().join("log")));
    let mut client = Client::session(&user, &SERVED);
    let listed = client.ask(1, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1, "{listed}");
    assert_eq!(
        (&tools[0]["name"], &tools[0]["description"]),
        (&json!("counter"), &json!("Counts words"))
    );
    let mut params = task();
    params["_meta"] = json!({"progressToken": 7});
    client.request(2, "tools/call", params);
    let progress = client.next();
    assert_eq!(progress["params"]["message"], "step 1", "{progress}");
    client.next();
    let counted = client.next()["result"].clone();
    assert_eq!(text(&counted), "Two words.");
    let used = &counted["_meta"]["io.github.toolcell/receipt"]["agent"];
    assert_eq!(
        (&used["calls"], &used["steps"]),
        (&json!(1), &json!(2)),
        "{counted}"
    );
    client.finish();
    let events = super::filed(&user);
    let nested = events.iter().any(|event| {
        let text = event.to_string();
        text.contains("nested") && text.contains("text_count")
    });
    assert!(nested, "{events:?}");
}

#[test]
fn calls_of_a_served_agent_ask_the_user_of_the_client() {
    let rules = "[approval]\nflow = \"off\"\nrules = [{ tool = \"text_*\", verdict = \"ask\" }]\n";
    let user = user(&format!("{COUNTER}{rules}"));
    for (action, error) in [("accept", false), ("decline", true)] {
        let mut client = Client::start(&user, &SERVED);
        let mut params = initialize("2025-11-25");
        params["capabilities"] = json!({"elicitation": {}});
        client.ask(0, "initialize", params);
        client.request(1, "tools/call", task());
        let question = client.next();
        let told = question["params"]["message"].as_str().unwrap();
        for part in ["text_count", "inside `counter`"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let content = json!({"action": action, "content": {"approve": true}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": content}));
        let answer = client.next()["result"].clone();
        assert_eq!(text(&answer), "Two words.");
        let ran = &answer["_meta"]["io.github.toolcell/receipt"]["fuel"];
        assert_eq!(ran.as_u64() == Some(0), error, "{answer}");
        client.finish();
    }
}

#[test]
fn call_of_a_served_agent_is_refused_if_nobody_can_be_asked() {
    let rules = "[approval]\nflow = \"off\"\nrules = [{ tool = \"text_*\", verdict = \"ask\" }]\n";
    let user = user(&format!("{COUNTER}{rules}"));
    // A client of the newest version answers by repeating the call, which would begin the work of the agent again.
    let mut params = task();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    let mut client = Client::start(&user, &SERVED);
    let answer = client.ask(1, "tools/call", params)["result"].clone();
    assert_eq!(answer["resultType"], "complete", "{answer}");
    assert_eq!(text(&answer), "Two words.");
    assert_eq!(
        answer["_meta"]["io.github.toolcell/receipt"]["fuel"], 0,
        "{answer}"
    );
    let told = client.finish().stderr;
    assert!(told.contains("a call of `text_count` was refused"), "{told}");
    assert!(
        told.contains("tool = \"text_count\", verdict = \"allow\""),
        "{told}"
    );
}

#[test]
fn budget_of_a_client_holds_for_a_served_agent() {
    let user = user(&format!("{COUNTER}[budget]\ncalls = 3\n"));
    let mut client = Client::session(&user, &SERVED);
    let call = task();
    let first = client.call(1, "counter", call["arguments"].clone());
    assert_eq!(text(&first), "Two words.");
    let second = client.call(2, "counter", call["arguments"].clone());
    assert_eq!(second["isError"], true, "{second}");
    assert!(
        text(&second).contains("it stopped: the budget of 0 calls"),
        "{second}"
    );
    client.finish();
}

#[test]
fn agent_that_cannot_be_served_is_an_error() {
    let user = user(COUNTER);
    let seen = user.run(&["mcp", "serve", "--agent", "count"]).ended(2);
    assert!(seen.stderr.contains("did you mean `counter`?"), "{}", seen.stderr);
    let seen = user
        .run(&["mcp", "serve", "--agent", "counter", "--tool", "text"])
        .ended(2);
    assert!(seen.stderr.contains("cannot be used with"), "{}", seen.stderr);
    user.configure(&COUNTER.replace("agents.counter", "agents.text_count"));
    let seen = user.run(&["mcp", "serve", "--agent", "text_count"]).ended(3);
    assert!(
        seen.stderr.contains("one of its tools has its name"),
        "{}",
        seen.stderr
    );
    user.configure(&COUNTER.replace("inner.json", "gone.json"));
    let seen = user.run(&["mcp", "serve", "--agent", "counter"]).ended(3);
    assert!(
        seen.stderr.contains("it is for the agent `counter`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn hooks_run_for_the_calls_of_a_served_agent() {
    let hook = crate::hooks::built().join("unruly_hook.wasm");
    let user = user(&format!("[hooks.h]\ncomponent = {hook:?}\n{COUNTER}"));
    let refused = json!({ "name": "text_count", "arguments": { "text": "refuse this is private" } });
    // The model gets the refusal of the hook as the result, or its script ends with an error.
    let told = json!({ "text": "No.", "expect": { "results": ["this is private"] } });
    let inner = json!({ "steps": [{ "calls": [refused] }, told] });
    user.file("inner.json", inner.to_string());
    let mut client = Client::session(&user, &SERVED);
    let answer = client.call(1, "counter", task()["arguments"].clone());
    assert_eq!(text(&answer), "No.");
    client.finish();
}
