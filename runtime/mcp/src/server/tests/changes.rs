//! Tools that are replaced while clients are connected.

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{code, object, settle};
use crate::server::testing::{Client, Does, stateless, tool};

const CHANGED: &str = "notifications/tools/list_changed";

fn current(params: Value) -> Value {
    stateless("2026-07-28", object(params))
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Replaces all tools by one of this name.
fn replace(client: &Client, name: &str) {
    let other = tool(name, Does::Echo, &client.gate);
    client.server.replace([other]).unwrap();
}

#[tokio::test]
async fn session_is_told_when_the_list_of_tools_changes() {
    let mut client = Client::start();
    // Before it begins, there is nobody to tell.
    replace(&client, "one");
    client.initialize("2025-06-18").await;
    settle(&mut client).await;
    // A list that reads the same is no change.
    replace(&client, "one");
    let listed = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(names(&listed), ["one"]);
    replace(&client, "two");
    let told = client.next().await;
    assert_eq!(told, json!({"jsonrpc": "2.0", "method": CHANGED, "params": {}}));
    let listed = client.ask(2, "tools/list", json!({})).await;
    assert_eq!(names(&listed), ["two"]);
    let gone = json!({"name": "one"});
    assert_eq!(code(&client.ask(3, "tools/call", gone).await), -32602);
    assert!(client.finish().await.0.is_empty());
}

#[tokio::test]
async fn call_in_progress_ends_with_the_tool_that_it_called() {
    let mut client = Client::start();
    client.initialize("2025-06-18").await;
    client.call(1, "wait", json!({})).await;
    settle(&mut client).await;
    replace(&client, "wait");
    client.call(2, "wait", json!({"new": true})).await;
    assert_eq!(client.next().await["method"], CHANGED);
    let new = client.next().await;
    assert_eq!(
        (&new["id"], &new["result"]["structuredContent"]),
        (&json!(2), &json!({"new": true}))
    );
    client.gate.add_permits(1);
    let old = client.next().await;
    assert_eq!(
        (&old["id"], &old["result"]["content"][0]["text"]),
        (&json!(1), &json!("waited"))
    );
}

#[tokio::test]
async fn tools_that_cannot_be_offered_together_replace_none() {
    let client = Client::start();
    let gate = std::sync::Arc::new(Semaphore::new(0));
    let twice = ["x", "x"].map(|name| tool(name, Does::Echo, &gate));
    let refused = client.server.replace(twice).unwrap_err();
    assert_eq!(refused.to_string(), "two tools have the name `x`");
    assert!(client.server.0.catalog().get("echo").is_some());
}

#[tokio::test]
async fn subscription_is_acknowledged_told_and_ended() {
    let mut client = Client::start();
    let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let first = client.ask("s", "subscriptions/listen", current(wanted)).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let id = json!({"io.modelcontextprotocol/subscriptionId": "s"});
    assert_eq!(
        first["params"],
        json!({"notifications": {"toolsListChanged": true}, "_meta": id})
    );
    // One that wants nothing that there is gets nothing.
    let none = json!({"notifications": {"resourcesListChanged": true}});
    let second = client.ask(2, "subscriptions/listen", current(none)).await;
    assert_eq!(second["params"]["notifications"], json!({}));
    let listed = client.ask(3, "tools/list", current(json!({}))).await;
    assert_eq!(listed["result"]["resultType"], "complete");
    replace(&client, "one");
    let told = client.next().await;
    assert_eq!(
        (&told["method"], &told["params"]["_meta"]),
        (&json!(CHANGED), &id)
    );
    // A cancelled one has no response, and its identifier can be used again.
    client
        .notify("notifications/cancelled", json!({"requestId": "s"}))
        .await;
    let listed = client.ask("s", "tools/list", current(json!({}))).await;
    assert_eq!(names(&listed), ["one"]);
    replace(&client, "two");
    client.stop.cancel();
    let (rest, _) = client.finish().await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(
        (&rest[0]["id"], &rest[0]["result"]["resultType"]),
        (&json!(2), &json!("complete"))
    );
    assert_eq!(
        rest[0]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        2
    );
}

#[tokio::test]
async fn subscription_has_its_version_and_says_what_it_wants() {
    let mut client = Client::start();
    for (params, expected) in [
        (json!({"notifications": {}}), -32602),
        (current(json!({})), -32602),
        (current(json!({"notifications": []})), -32602),
    ] {
        let refused = client.ask(1, "subscriptions/listen", params).await;
        assert_eq!(code(&refused), expected);
    }
    client.initialize("2025-11-25").await;
    let refused = client
        .ask(1, "subscriptions/listen", json!({"notifications": {}}))
        .await;
    assert_eq!(code(&refused), -32601);
}
