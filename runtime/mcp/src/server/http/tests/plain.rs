//! Plain endpoints.

use super::*;
use crate::lines::MAX_MESSAGE_BYTES;

fn host() -> Host {
    Host::reached(Reached {
        plain: true,
        ..Reached::default()
    })
}

async fn post(host: &Host, path: &str, body: impl Into<Vec<u8>>) -> Answered {
    host.send("POST", path, &DEFAULTS, body.into()).await
}

#[tokio::test]
async fn plain_endpoints_answer_without_an_envelope() {
    let host = host();
    for body in ["{}", "", " {\"cursor\":null,\"_meta\":7} "] {
        let listed = post(&host, "/tools/list", body).await;
        assert_eq!(
            (listed.status, listed.kind.as_str()),
            (200, "application/json"),
            "{body}"
        );
        let listed = listed.json();
        assert_eq!(listed["tools"][0]["name"], "ask");
        assert_eq!(listed["tools"][0]["inputSchema"], json!({"type": "object"}));
        assert!(listed.get("jsonrpc").is_none() && listed.get("result").is_none());
    }
    let rest = post(&host, "/tools/list", r#"{"cursor":"report"}"#).await.json();
    assert_eq!(rest["tools"].as_array().unwrap().len(), 1);
    let call = json!({"name": "echo", "arguments": {"a": 1}, "_meta": {"progressToken": 1}});
    let called = post(&host, "/tools/call", call.to_string()).await.json();
    assert_eq!(called["structuredContent"], json!({"a": 1}));
    assert_eq!(called["isError"], false);
    let failed = post(&host, "/tools/call", r#"{"name":"fail"}"#).await;
    assert_eq!((failed.status, &failed.json()["isError"]), (200, &json!(true)));
    let reported = post(&host, "/tools/call", r#"{"name":"report"}"#).await.json();
    assert_eq!(reported["content"][0]["text"], "reported");
    assert_eq!(host.seen.finished().len(), 3);
}

#[tokio::test]
async fn plain_endpoints_tell_errors_by_status() {
    let host = host();
    for (path, body, status, code) in [
        ("/tools/call", "{", 400, -32700),
        ("/tools/call", "\u{7f}", 400, -32700),
        ("/tools/call", "[]", 400, -32600),
        ("/tools/call", "{}", 400, -32602),
        ("/tools/call", r#"{"name":"gone"}"#, 400, -32602),
        ("/tools/call", r#"{"name":"echo","arguments":[]}"#, 400, -32602),
        ("/tools/call", r#"{"name":"echo","name":"fail"}"#, 400, -32700),
        ("/tools/call", r#"{"name":"fail_host"}"#, 500, -32603),
        ("/tools/list", r#"{"cursor":"gone"}"#, 400, -32602),
    ] {
        let refused = post(&host, path, body).await;
        assert_eq!(refused.code(), (status, code), "{body}");
        assert!(refused.json().get("jsonrpc").is_none());
    }
    let long = vec![b' '; MAX_MESSAGE_BYTES + 1];
    assert_eq!(post(&host, "/tools/call", long).await.code(), (413, -32600));
}

#[tokio::test]
async fn plain_endpoints_have_the_checks_of_others() {
    let host = host();
    let call = || br#"{"name":"echo"}"#.to_vec();
    let text = [("host", ADDRESS), ("content-type", "text/plain")];
    let answer = host.send("POST", "/tools/call", &text, call()).await;
    assert_eq!(answer.code(), (415, -32600));
    let page = [DEFAULTS[0], DEFAULTS[1], ("origin", "http://evil.example")];
    let answer = host.send("POST", "/tools/call", &page, call()).await;
    assert_eq!(answer.code(), (403, -32600));
    for method in ["GET", "DELETE"] {
        let answer = host.send(method, "/tools/list", &DEFAULTS, Vec::new()).await;
        assert_eq!(answer.code(), (405, -32600));
    }
    assert_eq!(host.seen.finished().len(), 0);
    // They exist only if the user wants them.
    for path in ["/tools/list", "/tools/call"] {
        assert_eq!(post(&Host::start(), path, call()).await.code(), (404, -32600));
    }
    let (header, token) = token("a");
    let server = server_of(Vec::new(), host.seen.clone());
    let reached = Reached {
        plain: true,
        ..Reached::default()
    };
    let host = Host {
        server: Arc::new(HttpServer::new(
            Access::of_tokens(vec![(token, server)]),
            reached,
            Arc::default(),
        )),
        ..host
    };
    assert_eq!(post(&host, "/tools/list", "{}").await.code(), (401, -32600));
    let own = [DEFAULTS[0], DEFAULTS[1], ("authorization", header.as_str())];
    let answer = host.send("POST", "/tools/list", &own, b"{}".to_vec()).await;
    assert_eq!(answer.json()["tools"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn plain_call_ends_with_its_connection() {
    let host = host();
    let mut stream = host.open();
    let body = r#"{"name":"wait"}"#;
    let request = format!(
        "POST /tools/call HTTP/1.1\r\nhost: {ADDRESS}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    idle().await;
    assert_eq!(host.seen.finished().len(), 0);
    drop(stream);
    idle().await;
    assert_eq!(host.seen.finished().len(), 1);
}
