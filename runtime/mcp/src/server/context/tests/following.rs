//! Clients that follow resources.

use super::*;
use crate::MAX_FOLLOWED;

const UPDATED: &str = "notifications/resources/updated";

#[tokio::test]
async fn session_is_told_of_the_resources_that_it_follows() {
    let mut client = session(followed(&["a:1", "a:2", "a:3"])).await;
    for (id, uri) in [(1, "a:1"), (2, "a:2"), (3, "a:/x/1")] {
        let begun = client.ask(id, "resources/subscribe", json!({"uri": uri})).await;
        assert_eq!(begun["result"], json!({}), "{begun}");
    }
    let missing = client.ask(4, "resources/subscribe", json!({"uri": "b:1"})).await;
    assert_eq!(missing["error"]["code"], -32002);
    client
        .ask(5, "resources/unsubscribe", json!({"uri": "a:2"}))
        .await;
    client.server.updated(|source, uri| {
        assert_eq!(source, Some("first"));
        uri != "a:/x/1"
    });
    let told = client.next().await;
    assert_eq!(
        told,
        json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "a:1"}})
    );
    // One that is gone was changed, and can be unfollowed.
    client.server.replace(followed(&["a:2"])).unwrap();
    assert_eq!(
        client.next().await["method"],
        "notifications/resources/list_changed"
    );
    client.server.updated(|source, _| source.is_none());
    assert_eq!(client.next().await["params"]["uri"], "a:1");
    let ended = client
        .ask(6, "resources/unsubscribe", json!({"uri": "a:1"}))
        .await;
    assert_eq!(ended["result"], json!({}));
    client.server.updated(|source, _| source.is_none());
    assert!(client.finish().await.0.is_empty());
}

#[tokio::test]
async fn resources_can_be_followed_only_where_updates_are_told() {
    let mut client = session(offered(&["a:1"], Vec::new())).await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let refused = client.ask(1, method, json!({"uri": "a:1"})).await;
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
        let refused = client.ask(1, method, current(json!({"uri": "a:1"}))).await;
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    let wanted = json!({"notifications": {"resourceSubscriptions": ["a:1"]}});
    let told = client.ask("s", "subscriptions/listen", current(wanted)).await;
    assert_eq!(told["params"]["notifications"], json!({}));
}

#[tokio::test]
async fn number_of_followed_resources_is_limited() {
    let mut client = session(followed(&["a:1"])).await;
    let follow = |n: usize| json!({"uri": format!("a:/x/{n}")});
    for n in 0..MAX_FOLLOWED {
        let begun = client.ask(1, "resources/subscribe", follow(n)).await;
        assert_eq!(begun["result"], json!({}), "{begun}");
    }
    let refused = client.ask(1, "resources/subscribe", follow(MAX_FOLLOWED)).await;
    assert_eq!(refused["error"]["code"], -32602);
    let again = client.ask(1, "resources/subscribe", follow(0)).await;
    assert_eq!(again["result"], json!({}));
    for (number, expected) in [(MAX_FOLLOWED, false), (MAX_FOLLOWED + 1, true)] {
        let uris: Vec<Value> = (0..number).map(|n| follow(n)["uri"].take()).collect();
        let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
        let told = client.ask("s", "subscriptions/listen", current(wanted)).await;
        assert_eq!(told["error"]["code"] == -32602, expected, "{told}");
        client
            .notify("notifications/cancelled", json!({"requestId": "s"}))
            .await;
    }
}

#[tokio::test]
async fn subscription_follows_the_resources_that_it_names() {
    let mut client = session(followed(&["a:1", "a:2"])).await;
    let listen = |uris: Value| current(json!({"notifications": {"resourceSubscriptions": uris}}));
    for bad in [json!("a:1"), json!([1])] {
        let refused = client.ask("s", "subscriptions/listen", listen(bad)).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let told = client
        .ask("s", "subscriptions/listen", listen(json!(["b:1", "a:2"])))
        .await;
    assert_eq!(
        told["params"]["notifications"],
        json!({"resourceSubscriptions": ["a:2"]})
    );
    client.server.updated(|_, _| true);
    let meta = json!({"io.modelcontextprotocol/subscriptionId": "s"});
    let told = client.next().await;
    assert_eq!(
        told,
        json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "a:2", "_meta": meta}})
    );
}
