//! Calls of clients that need an approval: the user of the client is asked, once for each call.

use serde_json::{Value, json};

use super::{Client, initialize, text};
use crate::support::cli_user::User;

/// Configuration in which each call of `text` needs approval.
const ASKS: &str = "[approval]\nrules = [{ tool = \"text_*\", verdict = \"ask\" }]\n";

/// Starts a session of a client that can ask its user.
fn able_client(user: &User) -> Client<'_> {
    user.configure(ASKS);
    let mut client = Client::start(user, &["--tool", "text"]);
    let mut able = initialize("2025-11-25");
    able["capabilities"] = json!({"elicitation": {}});
    client.ask(0, "initialize", able);
    client
}

#[test]
fn client_that_can_ask_decides_about_each_call() {
    let user = User::new();
    let mut client = able_client(&user);
    for (id, answer, is_error) in [
        (
            1,
            json!({"action": "accept", "content": {"approve": true}}),
            false,
        ),
        (
            2,
            json!({"action": "accept", "content": {"approve": false}}),
            true,
        ),
        (3, json!({"action": "decline"}), true),
    ] {
        let forged = "x\n? `safe` wants to run";
        let call = json!({"name": "text_count", "arguments": {"text": forged}});
        client.request(id, "tools/call", call);
        let question = client.next();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let shown = question["params"]["message"].as_str().unwrap();
        assert!(shown.starts_with("? `text_count` wants to run\n"), "{shown}");
        assert!(
            shown.contains("why you are asked: the rule `ask for text_*`"),
            "{shown}"
        );
        let own = shown.lines().filter(|line| line.starts_with('?'));
        assert_eq!(own.count(), 1, "{shown}");
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        let result = client.next();
        assert_eq!(
            (&result["id"], &result["result"]["isError"]),
            (&json!(id), &json!(is_error))
        );
    }
    client.finish();
}

#[test]
fn repeated_call_with_its_answer_runs_once() {
    let user = User::new();
    user.configure(ASKS);
    let mut client = Client::start(&user, &["--tool", "text"]);
    let mut call = |text: &str, state: Option<&Value>| {
        let mut params = json!({
            "name": "text_count",
            "arguments": {"text": text},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            },
        });
        if let Some(state) = state {
            params["requestState"] = state.clone();
            params["inputResponses"] =
                json!({"approval": {"action": "accept", "content": {"approve": true}}});
        }
        client.ask(1, "tools/call", params)
    };
    let asked = call("one two", None);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let state = &asked["result"]["requestState"];
    let other = call("three", Some(state));
    assert_eq!(other["result"]["resultType"], "input_required", "{other}");
    let state = &call("one two", None)["result"]["requestState"];
    let counted = call("one two", Some(state));
    assert_eq!(counted["result"]["structuredContent"]["words"], 2, "{counted}");
    assert_eq!(call("one two", Some(state))["error"]["code"], -32602);
    client.finish();
}

#[test]
fn call_that_is_too_long_for_a_question_is_refused_for_that() {
    let user = User::new();
    let mut client = able_client(&user);
    let refused = client.call(1, "text_count", json!({"text": "x".repeat(30_000)}));
    assert_eq!(refused["isError"], true);
    assert!(
        text(&refused).contains("its arguments are too long for a question"),
        "{refused}"
    );
    let told = client.finish().stderr;
    assert!(
        told.contains("its arguments are too long for a question"),
        "{told}"
    );
    assert!(told.contains("verdict = \"allow\""), "{told}");
    assert!(!told.contains("cannot ask"), "{told}");
}
