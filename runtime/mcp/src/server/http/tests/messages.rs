//! Messages in each version, and their errors.

use super::*;
use crate::lines::MAX_MESSAGE_BYTES;

#[tokio::test]
async fn request_of_the_current_version_stands_alone() {
    let host = Host::start();
    let discovered = host.current("d", "server/discover", json!({})).await;
    assert_eq!((discovered.status, &discovered.session), (200, &None));
    assert_eq!(discovered.kind, "application/json");
    assert_eq!(
        discovered.json()["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    let call = json!({"name": "echo", "arguments": {"a": 1}});
    let called = host.current(2, "tools/call", call).await.json();
    assert_eq!(called["id"], 2);
    assert_eq!(called["result"]["structuredContent"], json!({"a": 1}));
    for (method, expected) in [
        ("initialize", (404, -32601)),
        ("ping", (404, -32601)),
        ("logging/setLevel", (404, -32601)),
        ("unknown/method", (404, -32601)),
    ] {
        assert_eq!(
            host.current(3, method, json!({})).await.code(),
            expected,
            "{method}"
        );
    }
    let unknown = host.current(3, "tools/call", json!({"name": "x"})).await;
    assert_eq!(unknown.code(), (200, -32602));
}

#[tokio::test]
async fn header_and_body_state_the_same_version() {
    let host = Host::start();
    let (headers, body) = current(1, "tools/list", json!({}));
    let sent = |change: &[(&'static str, &str)], body: &Value| {
        let kept = headers
            .iter()
            .filter(|(name, _)| change.iter().all(|(other, _)| other != name));
        let all: Vec<(&str, String)> = kept
            .cloned()
            .chain(change.iter().map(|(name, value)| (*name, (*value).to_owned())))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let (host, body) = (&host, body.clone());
        async move {
            let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
            host.post(&all, body).await
        }
    };
    assert_eq!(sent(&[], &body).await.status, 200);
    for change in [
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-protocol-version", "v999"),
        ("mcp-protocol-version", ""),
        ("mcp-method", "tools/call"),
        ("mcp-method", ""),
    ] {
        let refused = sent(&[change], &body).await;
        assert_eq!(refused.code(), (400, -32020), "{change:?}");
        assert_eq!(refused.json()["id"], 1);
    }
    let mut other = body.clone();
    other["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "v999".into();
    assert_eq!(
        sent(&[("mcp-protocol-version", "v999")], &other).await.code(),
        (400, -32022)
    );
    for meta in [
        json!({}),
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
    ] {
        let body = request(1, "tools/list", json!({"_meta": meta}));
        assert_eq!(sent(&[], &body).await.code(), (400, -32602));
    }
}

#[tokio::test]
async fn notifications_make_events_of_an_answer() {
    let host = Host::start();
    let plain = host.current(1, "tools/call", json!({"name": "report"})).await;
    assert_eq!(plain.kind, "application/json");
    let params = json!({
        "name": "report",
        "_meta": {"progressToken": "p", "io.modelcontextprotocol/logLevel": "warning"},
    });
    let answer = host.current(1, "tools/call", params.clone()).await;
    let events = answer.events();
    let methods: Vec<_> = events.iter().map(|event| event["method"].as_str()).collect();
    assert_eq!(
        methods,
        [
            Some("notifications/message"),
            Some("notifications/progress"),
            Some("notifications/progress"),
            None
        ]
    );
    assert_eq!(events[3]["id"], 1);
    assert_eq!(answer.body.matches("event: message\n").count(), 4);
    // A client that takes no events gets the result alone.
    let (headers, body) = current(1, "tools/call", params);
    let mut all = vec![
        ("host", ADDRESS),
        ("content-type", "application/json"),
        ("accept", "application/json"),
    ];
    all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
    let alone = host
        .send("POST", "/mcp", &all, body.to_string().into_bytes())
        .await;
    assert_eq!(alone.json()["result"]["content"][0]["text"], "reported");
}

#[tokio::test]
async fn headers_of_a_session_tell_the_same_as_the_body() {
    let host = Host::start();
    let id = host.session("2025-03-26").await;
    let call = || request(1, "tools/call", json!({"name": "echo"}));
    for (method, name, message, status) in [
        (Some("tools/call"), Some("echo"), call(), 200),
        (None, Some("echo"), call(), 200),
        (Some("tools/list"), None, call(), 400),
        (None, Some("other"), call(), 400),
        (Some("ping"), Some("echo"), request(1, "ping", json!({})), 400),
        (Some("tools/call"), Some("echo"), json!([call()]), 400),
    ] {
        let mut headers = vec![("mcp-session-id", id.as_str())];
        headers.extend(method.map(|method| ("mcp-method", method)));
        headers.extend(name.map(|name| ("mcp-name", name)));
        assert_eq!(host.post(&headers, message).await.status, status, "{headers:?}");
    }
}

#[tokio::test]
async fn every_request_of_a_session_states_its_version_or_none() {
    let host = Host::start();
    let id = host.session("2025-11-25").await;
    let with = |version: &'static str| {
        [
            ("host", ADDRESS),
            ("accept", "text/event-stream"),
            ("mcp-session-id", id.as_str()),
            ("mcp-protocol-version", version),
        ]
    };
    for version in ["2025-06-18", "v999"] {
        let ping = host
            .post(&with(version)[2..], request(7, "ping", json!({})))
            .await;
        assert_eq!(ping.status, 400, "{version}");
        for method in ["GET", "DELETE"] {
            let refused = host.send(method, "/mcp", &with(version), Vec::new()).await;
            assert_eq!(refused.status, 400, "{method} {version}");
        }
    }
    let ended = host.send("DELETE", "/mcp", &with("2025-11-25"), Vec::new()).await;
    assert_eq!(ended.status, 204);
}

#[tokio::test]
async fn unknown_version_in_the_header_is_answered_with_the_supported_ones() {
    let host = Host::start();
    for message in [request(7, "tools/list", json!({})), initialize("2025-11-25")] {
        let refused = host
            .post(&[("mcp-protocol-version", "v999")], message.clone())
            .await;
        assert_eq!(refused.code(), (400, -32022), "{message}");
        assert_eq!(refused.json()["id"], message["id"]);
        assert_eq!(
            refused.json()["error"]["data"],
            json!({"requested": "v999", "supported": ["2026-07-28"]})
        );
    }
}

#[tokio::test]
async fn session_of_older_versions_begins_and_ends() {
    let host = Host::start();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let id = host.session(version).await;
        let session = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", version)];
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let noted = host.post(&session, initialized).await;
        assert_eq!((noted.status, noted.body.as_str()), (202, ""));
        let called = host
            .post(&session, request(1, "tools/call", json!({"name": "echo"})))
            .await;
        assert_eq!(called.json()["result"]["isError"], false);
        // Without the version, as in sessions before 2025-06-18.
        assert_eq!(
            host.post(&session[..1], request(1, "ping", json!({})))
                .await
                .status,
            200
        );
        let unknown = host.post(&session, request(1, "unknown", json!({}))).await;
        assert_eq!(unknown.code(), (200, -32601));
        let again = host.post(&session, initialize(version)).await;
        assert_eq!((again.code(), again.session), ((400, -32600), None));
        let other = [
            session[0],
            (
                "mcp-protocol-version",
                if version == "2025-03-26" {
                    "2024-11-05"
                } else {
                    "2025-03-26"
                },
            ),
        ];
        assert_eq!(host.post(&other, request(1, "ping", json!({}))).await.status, 400);
        let ended = host
            .send("DELETE", "/mcp", &[("host", ADDRESS), session[0]], Vec::new())
            .await;
        assert_eq!(ended.status, 204);
        assert_eq!(
            host.post(&session, request(1, "ping", json!({}))).await.status,
            404
        );
        let twice = host
            .send("DELETE", "/mcp", &[("host", ADDRESS), session[0]], Vec::new())
            .await;
        assert_eq!(twice.status, 404);
    }
    for message in [
        request(1, "ping", json!({})),
        request(1, "tools/list", json!({})),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!([request(1, "ping", json!({}))]),
    ] {
        assert_eq!(host.post(&[], message).await.status, 400);
    }
    assert_eq!(
        host.post(&[], request(0, "initialize", json!({}))).await.session,
        None
    );
}

#[tokio::test]
async fn session_remembers_its_log_level_and_cancels_by_id() {
    let host = Host::start();
    let id = host.session("2025-11-25").await;
    let session = [("mcp-session-id", id.as_str())];
    let level = request(1, "logging/setLevel", json!({"level": "warning"}));
    assert_eq!(host.post(&session, level).await.json()["result"], json!({}));
    let reported = host
        .post(&session, request(2, "tools/call", json!({"name": "report"})))
        .await;
    assert_eq!(reported.events()[0]["params"]["data"], "warn");
    let waits = host.post(&session, request(3, "tools/call", json!({"name": "wait"})));
    let cancel = async {
        while host.server.0.metrics.render(0).contains("toolcell_cells 0") {
            tokio::task::yield_now().await;
        }
        let params = json!({"requestId": 3});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        host.post(&session, message).await
    };
    let (waited, cancelled) = tokio::join!(waits, cancel);
    assert_eq!(cancelled.status, 202);
    assert_eq!(
        (waited.status, waited.body.as_str()),
        (202, ""),
        "no response follows"
    );
    assert_eq!(host.seen.finished().len(), 2);
}

#[tokio::test]
async fn batch_is_answered_with_events_in_its_version_only() {
    let host = Host::start();
    let batch = json!([
        request(1, "ping", json!({})),
        request(2, "tools/call", json!({"name": "echo"}))
    ]);
    let id = host.session("2025-03-26").await;
    let answer = host.post(&[("mcp-session-id", &id)], &batch).await;
    assert_eq!(answer.events()[0].as_array().unwrap().len(), 2);
    let only_json = [
        ("host", ADDRESS),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("mcp-session-id", &id),
    ];
    let body = batch.to_string().into_bytes();
    assert_eq!(host.send("POST", "/mcp", &only_json, body).await.status, 406);
    let id = host.session("2025-06-18").await;
    assert_eq!(
        host.post(&[("mcp-session-id", &id)], &batch).await.code(),
        (400, -32600)
    );
    let current = [("mcp-protocol-version", "2026-07-28")];
    assert_eq!(host.post(&current, &batch).await.code(), (400, -32600));
}

#[tokio::test]
async fn wrong_requests_get_their_errors() {
    let host = Host::start();
    let id = host.session("2025-11-25").await;
    let post = |headers: Vec<(&'static str, String)>, body: Vec<u8>| {
        let host = &host;
        async move {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            host.send("POST", "/mcp", &headers, body).await
        }
    };
    let headers = || -> Vec<(&'static str, String)> {
        let mut all: Vec<_> = DEFAULTS.map(|(name, value)| (name, value.to_owned())).into();
        all.push(("mcp-session-id", id.clone()));
        all
    };
    for (body, code) in [
        (&b"{"[..], -32700),
        (b"", -32700),
        (b"\xff\xfe", -32700),
        (b"7", -32600),
        (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600),
    ] {
        assert_eq!(post(headers(), body.to_vec()).await.code(), (400, code));
        // Also without a session, and whatever version the header states.
        for version in [None, Some("2025-11-25"), Some("2026-07-28")] {
            let mut headers: Vec<_> = DEFAULTS.map(|(name, value)| (name, value.to_owned())).into();
            headers.extend(version.map(|version| ("mcp-protocol-version", version.to_owned())));
            let answer = post(headers, body.to_vec()).await;
            assert_eq!(answer.code(), (400, code), "{version:?}");
        }
    }
    let ping = request(1, "ping", json!({})).to_string().into_bytes();
    for (name, value, status) in [
        ("content-type", "text/plain", 415),
        ("accept", "text/html", 406),
        ("mcp-session-id", "0123", 404),
    ] {
        let mut headers = headers();
        headers.retain(|(other, _)| *other != name);
        headers.push((name, value.to_owned()));
        assert_eq!(post(headers, ping.clone()).await.status, status, "{name}");
    }
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(
        post(headers(), response.to_string().into_bytes()).await.status,
        202
    );
    assert_eq!(post(headers(), ping).await.status, 200);
}

#[tokio::test]
async fn body_is_read_up_to_its_limit() {
    let host = Host::start();
    let id = host.session("2025-11-25").await;
    let session = [("mcp-session-id", id.as_str())];
    let message = |text: &str| {
        let params = json!({"name": "echo", "arguments": {"text": text}});
        request(1, "tools/call", params).to_string()
    };
    let text = "x".repeat(MAX_MESSAGE_BYTES - message("").len());
    let largest = host.post(&session, message(&text)).await;
    assert_eq!(largest.json()["result"]["structuredContent"]["text"], text);
    let beyond = message(&(text + "x"));
    let refused = host.post(&session, &beyond).await;
    assert_eq!(refused.code(), (413, -32600));
    // Without a length, it is counted.
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {ADDRESS}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{beyond}\r\n0\r\n\r\n",
        beyond.len()
    );
    let answer = raw(host.open(), head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn question_is_an_event_and_its_answer_a_request() {
    let host = Host::start();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
    let id = host
        .post(&[], request(0, "initialize", params))
        .await
        .session
        .unwrap();
    let session = [("mcp-session-id", id.as_str())];
    let call = request(1, "tools/call", json!({"name": "ask"}));
    let all: Vec<_> = DEFAULTS.into_iter().chain(session).collect();
    let body = call.to_string().into_bytes();
    let mut response = exchange(host.open(), "POST", "/mcp", &all, body.clone()).await;
    let event = next(response.body_mut()).await.unwrap();
    let event = std::str::from_utf8(&event).unwrap();
    let question: Value =
        serde_json::from_str(event.lines().nth(1).unwrap().strip_prefix("data: ").unwrap()).unwrap();
    let yes = json!({"action": "accept", "content": {"approve": true}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": yes});
    // Another session answers nothing.
    let other = host.session("2025-11-25").await;
    assert_eq!(
        host.post(&[("mcp-session-id", &other)], &answer).await.status,
        202
    );
    idle().await;
    assert_eq!(host.seen.finished().len(), 0);
    assert_eq!(host.post(&session, &answer).await.status, 202);
    assert!(read(response).await.body.contains("true Approve"));
    // A client that takes no events cannot be asked.
    let alone = [
        DEFAULTS[0],
        DEFAULTS[1],
        ("accept", "application/json"),
        session[0],
    ];
    let answer = host.send("POST", "/mcp", &alone, body).await.json();
    assert_eq!(answer["result"]["content"][0]["text"], "false Later");
}
