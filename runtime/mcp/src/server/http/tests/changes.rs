//! Tools that are replaced while clients listen.

use super::*;
use toolcell_core::{ResourceSpec, Resources};

use crate::server::Offered;
use crate::server::testing::{Does, tool};

const CHANGED: &str = "notifications/tools/list_changed";

impl Host {
    fn replace(&self, name: &str) {
        let other = tool(name, Does::Echo, &self.gate);
        self.offered.replace([other]).unwrap();
    }

    async fn stream(&self, method: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response<Incoming> {
        let all: Vec<_> = DEFAULTS.into_iter().chain(headers.iter().copied()).collect();
        exchange(self.open(), method, "/mcp", &all, body).await
    }

    async fn listen_to_changes(&self) -> Response<Incoming> {
        let (headers, body) = current(
            7,
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        );
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        self.stream("POST", &headers, body.to_string().into_bytes()).await
    }
}

/// Next message of a stream, without comments.
async fn event(body: &mut Incoming) -> Option<Value> {
    loop {
        let text = String::from_utf8(next(body).await?.to_vec()).unwrap();
        if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_over_http_is_a_stream_that_ends_with_the_server() {
    let host = Host::start();
    let response = host.listen_to_changes().await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let first = event(&mut body).await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    idle().await;
    host.replace("one");
    let told = event(&mut body).await.unwrap();
    assert_eq!(told["method"], CHANGED);
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        7
    );
    host.server.service().end_streams();
    let last = event(&mut body).await.unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!(7), &json!("complete"))
    );
    assert!(event(&mut body).await.is_none());
    idle().await;
    assert!(host.server.0.is_idle());
}

#[tokio::test(start_paused = true)]
async fn subscription_that_its_client_leaves_is_forgotten() {
    let host = Host::start();
    let mut body = host.listen_to_changes().await.into_body();
    event(&mut body).await.unwrap();
    drop(body);
    idle().await;
    host.replace("one");
    idle().await;
    assert!(host.server.0.is_idle());
    let (mut headers, body) = current(7, "subscriptions/listen", json!({"notifications": {}}));
    headers.push(("accept", "application/json".into()));
    let mut all = vec![DEFAULTS[0], DEFAULTS[1]];
    all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
    let refused = host
        .send("POST", "/mcp", &all, body.to_string().into_bytes())
        .await;
    assert_eq!(refused.code(), (400, -32600));
}

#[tokio::test(start_paused = true)]
async fn session_over_http_has_one_stream_of_changes() {
    let host = Host::start();
    let id = host.session("2025-11-25").await;
    let own = [("mcp-session-id", id.as_str())];
    let mut body = host.stream("GET", &own, Vec::new()).await.into_body();
    idle().await;
    let second = read(host.stream("GET", &own, Vec::new()).await).await;
    assert_eq!(second.code(), (409, -32600));
    host.replace("one");
    let told = event(&mut body).await.unwrap();
    assert_eq!(told, json!({"jsonrpc": "2.0", "method": CHANGED, "params": {}}));
    // A call of the session does not get the notification into its answer.
    host.replace("echo");
    let call = request(2, "tools/call", json!({"name": "echo", "arguments": {}}));
    let answer = host.post(&own, call).await;
    assert_eq!((answer.status, answer.kind.as_str()), (200, "application/json"));
    assert_eq!(event(&mut body).await.unwrap()["method"], CHANGED);
    // It ends with the session, and a client of another one has none.
    let ended = host
        .send("DELETE", "/mcp", &[DEFAULTS[0], own[0]], Vec::new())
        .await;
    assert_eq!(ended.status, 204);
    assert!(event(&mut body).await.is_none());
    let gone = read(host.stream("GET", &own, Vec::new()).await).await;
    assert_eq!(gone.status, 404);
    let json_only = [DEFAULTS[0], ("accept", "application/json"), own[0]];
    let refused = host.send("GET", "/mcp", &json_only, Vec::new()).await;
    assert_eq!(refused.status, 406);
    idle().await;
    assert!(host.server.0.is_idle());
}

#[tokio::test(start_paused = true)]
async fn session_over_http_is_told_of_resources_on_its_stream() {
    let host = Host::start();
    let spec = ResourceSpec {
        uri: "a:1".into(),
        name: "n".into(),
        title: None,
        description: None,
        media_type: None,
        size: None,
    };
    let resources = Resources {
        resources: vec![spec],
        templates: Vec::new(),
        reader: tool("read", Does::Echo, &host.gate),
    };
    let offered = Offered {
        resources: vec![("source".into(), resources)],
        tells_updates: true,
        ..Offered::default()
    };
    host.offered.replace(offered).unwrap();
    let id = host.session("2025-11-25").await;
    let own = [("mcp-session-id", id.as_str())];
    let follow = request(1, "resources/subscribe", json!({"uri": "a:1"}));
    let begun = host.post(&own, follow).await;
    assert_eq!(begun.status, 200);
    let mut body = host.stream("GET", &own, Vec::new()).await.into_body();
    // Another session follows nothing.
    let other = host.session("2025-11-25").await;
    let other = [("mcp-session-id", other.as_str())];
    let mut of_other = host.stream("GET", &other, Vec::new()).await.into_body();
    idle().await;
    host.offered.updated(|source, _| source == Some("source"));
    let told = event(&mut body).await.unwrap();
    let method = "notifications/resources/updated";
    assert_eq!(
        told,
        json!({"jsonrpc": "2.0", "method": method, "params": {"uri": "a:1"}})
    );
    host.replace("one");
    assert_eq!(event(&mut of_other).await.unwrap()["method"], CHANGED);
}
