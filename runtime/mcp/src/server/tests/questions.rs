//! Questions to the user of a client.

use serde_json::{Value, json};

use super::{code, object};
use crate::server::testing::{Client, Does, stateless, tool};

fn params(version: &str, capabilities: Value) -> Value {
    json!({"protocolVersion": version, "capabilities": capabilities})
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{message}"))
}

const DENIED: &str = "true Deny { reason: None }";

#[tokio::test]
async fn session_is_asked_by_a_request_where_the_client_can() {
    for (version, elicitation, is_able) in [
        ("2025-11-25", json!({"elicitation": {}}), true),
        ("2025-06-18", json!({"elicitation": {}}), true),
        ("2025-11-25", json!({}), false),
        ("2025-11-25", json!({"elicitation": {"url": {}}}), false),
        ("2025-03-26", json!({"elicitation": {}}), false),
    ] {
        let mut client = Client::start();
        client.ask(0, "initialize", params(version, elicitation)).await;
        client.call(1, "ask", json!({"a": 1})).await;
        let mut message = client.next().await;
        if is_able {
            assert_eq!(message["method"], "elicitation/create");
            assert_eq!(message["params"]["message"], "run ask with {\"a\":1}?");
            assert_eq!(
                message["params"]["requestedSchema"]["required"],
                json!(["approve"])
            );
            let answer = json!({"action": "accept", "content": {"approve": true}});
            let id = &message["id"];
            client
                .send(json!({"jsonrpc": "2.0", "id": id, "result": answer}))
                .await;
            message = client.next().await;
        }
        let expected = if is_able { "true Approve" } else { "false Later" };
        assert_eq!((&message["id"], text(&message)), (&json!(1), expected));
    }
}

#[tokio::test]
async fn error_as_the_answer_to_a_question_denies() {
    let mut client = Client::start();
    let able = json!({"elicitation": {}});
    client.ask(0, "initialize", params("2025-11-25", able)).await;
    client.call(1, "ask", json!({})).await;
    let id = client.next().await["id"].clone();
    let error = json!({"code": -32601, "message": "no such method"});
    client
        .send(json!({"jsonrpc": "2.0", "id": id, "error": error}))
        .await;
    let denied = client.next().await;
    assert_eq!((&denied["id"], text(&denied)), (&json!(1), DENIED));
}

#[tokio::test]
async fn only_the_answer_to_a_question_approves() {
    let mut client = Client::start();
    let able = json!({"elicitation": {}});
    client.ask(0, "initialize", params("2025-11-25", able)).await;
    client.call(1, "ask", json!({})).await;
    let first = client.next().await["id"].clone();
    client.call(2, "ask", json!({})).await;
    let second = client.next().await["id"].clone();
    assert_ne!(first, second);
    let yes = json!({"action": "accept", "content": {"approve": true}});
    for id in [json!("question-9"), json!(1), json!(2), Value::Null] {
        client
            .send(json!({"jsonrpc": "2.0", "id": id, "result": yes}))
            .await;
    }
    client
        .send(json!({"jsonrpc": "2.0", "id": second, "result": yes}))
        .await;
    let approved = client.next().await;
    assert_eq!((&approved["id"], text(&approved)), (&json!(2), "true Approve"));
    let no = json!({"action": "decline"});
    client
        .send(json!({"jsonrpc": "2.0", "id": first, "result": no}))
        .await;
    let denied = client.next().await;
    assert_eq!((&denied["id"], text(&denied)), (&json!(1), DENIED));
}

/// Calls in version 2026-07-28, with what answers a question.
async fn call(client: &mut Client, arguments: Value, answer: Option<(&Value, Value)>) -> Value {
    let mut params = object(json!({"name": "ask", "arguments": arguments}));
    if let Some((state, answer)) = answer {
        params.insert("requestState".into(), state.clone());
        params.insert("inputResponses".into(), json!({"approval": answer}));
    }
    let mut params = stateless("2026-07-28", params);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    client.ask(1, "tools/call", params).await
}

#[tokio::test]
async fn approval_is_not_for_a_tool_that_was_replaced() {
    let mut client = Client::start();
    let yes = || json!({"action": "accept", "content": {"approve": true}});
    let asked = call(&mut client, json!({"a": 1}), None).await;
    let state = asked["result"]["requestState"].clone();
    // Of the same name and definition, and perhaps other code.
    let other = tool("ask", Does::Ask, &client.gate);
    client.server.replace([other]).unwrap();
    let again = call(&mut client, json!({"a": 1}), Some((&state, yes()))).await;
    assert_eq!(again["result"]["resultType"], "input_required");
    let state = &again["result"]["requestState"];
    let approved = call(&mut client, json!({"a": 1}), Some((state, yes()))).await;
    assert_eq!(text(&approved), "true Approve");
}

#[tokio::test]
async fn repeated_call_has_the_answer_to_its_question() {
    let mut client = Client::start();
    let yes = || json!({"action": "accept", "content": {"approve": true}});
    let asked = call(&mut client, json!({"a": 1}), None).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required");
    let question = &result["inputRequests"]["approval"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "run ask with {\"a\":1}?");
    let state = &result["requestState"];
    let approved = call(&mut client, json!({"a": 1}), Some((state, yes()))).await;
    assert_eq!(text(&approved), "true Approve");
    // Used once, and only as it was given.
    for state in [state.clone(), json!("x"), json!(1)] {
        let refused = call(&mut client, json!({"a": 1}), Some((&state, yes()))).await;
        assert_eq!(code(&refused), -32602, "{state}");
    }
    // The answer to another question approves nothing: it is asked again.
    let state = call(&mut client, json!({"a": 1}), None).await["result"]["requestState"].clone();
    let other = call(&mut client, json!({"a": 2}), Some((&state, yes()))).await;
    assert_eq!(other["result"]["resultType"], "input_required");
    let message = &other["result"]["inputRequests"]["approval"]["params"]["message"];
    assert_eq!(message, "run ask with {\"a\":2}?");
    let state = &other["result"]["requestState"];
    let no = json!({"action": "cancel"});
    assert_eq!(
        text(&call(&mut client, json!({"a": 2}), Some((state, no))).await),
        DENIED
    );
    // An answer without a question is none.
    let mut params = object(json!({"name": "ask", "inputResponses": {"approval": yes()}}));
    params.insert("arguments".into(), json!({}));
    let mut params = stateless("2026-07-28", params);
    assert_eq!(
        text(&client.ask(1, "tools/call", params.clone()).await),
        "false Later"
    );
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let asked = client.ask(1, "tools/call", params).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
}

#[tokio::test]
async fn call_that_waits_for_an_answer_can_be_cancelled() {
    let mut client = Client::start();
    let able = json!({"elicitation": {}});
    client.ask(0, "initialize", params("2025-11-25", able)).await;
    client.call(1, "ask", json!({})).await;
    let question = client.next().await["id"].clone();
    client
        .notify("notifications/cancelled", json!({"requestId": 1}))
        .await;
    let yes = json!({"action": "accept", "content": {"approve": true}});
    client
        .send(json!({"jsonrpc": "2.0", "id": question, "result": yes}))
        .await;
    assert_eq!(client.ask(2, "ping", json!({})).await["id"], 2);
    let (rest, seen) = client.finish().await;
    assert_eq!((rest, seen.finished().len()), (Vec::new(), 1));
}
