//! Conversations of a client with the server, in memory.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolcell_core::ToolError;

use crate::server::testing::{Client, Does, stateless, tool};
use crate::{
    LOG_KEY, MAX_BATCH, MAX_IN_FLIGHT, MAX_MESSAGE_BYTES, MAX_RUNNING, PAGE_TOOLS, RECEIPT_KEY, Version,
};

mod changes;
mod questions;
mod unread;

fn code(message: &Value) -> i64 {
    message["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("{message}"))
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Waits until the server answers a request that follows, so that what was sent before is handled.
async fn settle(client: &mut Client) {
    let answer = client.ask("settle", "ping", json!({})).await;
    assert_eq!(answer["id"], "settle", "{answer}");
}

#[tokio::test]
async fn session_has_the_requested_version_or_the_newest() {
    for (requested, expected) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start();
        let result = client.initialize(requested).await;
        assert_eq!(result["protocolVersion"], expected);
        assert_eq!(result["serverInfo"]["name"], "test");
        assert_eq!(
            result["capabilities"],
            json!({"tools": {"listChanged": true}, "logging": {}})
        );
        let again = json!({"protocolVersion": requested, "capabilities": {}});
        assert_eq!(code(&client.ask(1, "initialize", again).await), -32600);
    }
}

#[tokio::test]
async fn request_before_initialize_is_refused_except_ping() {
    let mut client = Client::start();
    assert_eq!(client.ask(1, "ping", json!({})).await["result"], json!({}));
    for method in ["tools/list", "tools/call", "server/discover", "logging/setLevel"] {
        assert_eq!(
            code(&client.ask(2, method, json!({"name": "echo"})).await),
            -32602,
            "{method}"
        );
    }
    assert_eq!(code(&client.ask(3, "initialize", json!({})).await), -32602);
}

#[tokio::test]
async fn stateless_requests_state_their_version_each_time() {
    let mut client = Client::start();
    let current = |params: Value| stateless("2026-07-28", object(params));
    let discovered = client.ask(1, "server/discover", current(json!({}))).await;
    let result = &discovered["result"];
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "test"
    );
    assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "private");
    let call = current(json!({"name": "echo", "arguments": {"a": 1}}));
    let called = client.ask(2, "tools/call", call).await;
    assert_eq!(called["result"]["structuredContent"], json!({"a": 1}));
    assert_eq!(called["result"]["resultType"], "complete");
    // Nothing is remembered from the requests before.
    assert_eq!(code(&client.ask(3, "tools/list", json!({})).await), -32602);
    for removed in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        assert_eq!(
            code(&client.ask(4, removed, current(json!({}))).await),
            -32601,
            "{removed}"
        );
    }
}

#[tokio::test]
async fn stated_version_that_is_not_supported_names_those_that_are() {
    let mut client = Client::start();
    for version in ["2025-11-25", "2030-01-01"] {
        for method in ["server/discover", "tools/list"] {
            let answer = client.ask(1, method, stateless(version, Map::new())).await;
            assert_eq!(code(&answer), -32022);
            let data = json!({"supported": ["2026-07-28"], "requested": version});
            assert_eq!(answer["error"]["data"], data);
        }
    }
    let version = "io.modelcontextprotocol/protocolVersion";
    for meta in [json!({version: 1}), json!({version: "2026-07-28"}), json!([])] {
        let answer = client.ask(1, "tools/list", json!({"_meta": meta})).await;
        assert_eq!(code(&answer), -32602, "{meta}");
    }
}

#[tokio::test]
async fn tools_are_listed_by_name_in_the_form_of_the_version() {
    for version in Version::ALL {
        let mut client = Client::start();
        let params = if version.is_stateless() {
            stateless(version.as_str(), Map::new())
        } else {
            client.initialize(version.as_str()).await;
            json!({})
        };
        let answer = client.ask(1, "tools/list", params).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "ask",
                "echo",
                "fail",
                "fail_host",
                "large",
                "panic",
                "report",
                "wait"
            ]
        );
        let has = |name: &str| tools[0].get(name).is_some();
        assert!(has("inputSchema") && has("description"));
        assert_eq!(has("annotations"), version >= Version::V2025_03_26);
        assert_eq!(has("title"), version >= Version::V2025_06_18);
        assert_eq!(has("outputSchema"), version >= Version::V2025_06_18);
        assert_eq!(answer["result"].get("ttlMs").is_some(), version.is_stateless());
    }
}

#[tokio::test]
async fn long_list_has_pages() {
    let gate = Arc::new(Semaphore::new(0));
    let names: Vec<String> = (0..=PAGE_TOOLS).map(|n| format!("t{n:04}")).collect();
    let tools = |count: usize| {
        names[..count]
            .iter()
            .rev()
            .map(|name| tool(name, Does::Echo, &gate))
            .collect()
    };
    let mut client = Client::with(tools(PAGE_TOOLS), gate.clone());
    client.initialize("2025-11-25").await;
    let answer = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(answer["result"].get("nextCursor"), None);

    let mut client = Client::with(tools(PAGE_TOOLS + 1), gate.clone());
    client.initialize("2025-11-25").await;
    let first = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), PAGE_TOOLS);
    let second = client
        .ask(2, "tools/list", json!({"cursor": first["result"]["nextCursor"]}))
        .await;
    assert_eq!(second["result"]["tools"][0]["name"], names[PAGE_TOOLS].as_str());
    assert_eq!(second["result"].get("nextCursor"), None);
    for cursor in [json!("t9999"), json!(1)] {
        assert_eq!(
            code(&client.ask(3, "tools/list", json!({"cursor": cursor})).await),
            -32602
        );
    }
}

#[tokio::test]
async fn two_tools_of_one_name_are_refused() {
    let gate = Arc::new(Semaphore::new(0));
    let tools = [tool("a", Does::Echo, &gate), tool("a", Does::Fail, &gate)];
    let error = crate::server::catalog::Catalog::new(tools.into()).err().unwrap();
    assert_eq!(error.to_string(), "two tools have the name `a`");
}

#[tokio::test]
async fn tool_errors_are_results_and_protocol_errors_are_errors() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call(1, "fail", json!({})).await;
    let failed = client.next().await;
    assert_eq!(failed["result"]["isError"], true);
    assert!(!failed.to_string().contains("for the user"), "{failed}");
    client.call(2, "panic", json!({})).await;
    assert_eq!(client.next().await["result"]["isError"], true);
    client.call(3, "fail_host", json!({})).await;
    let host = client.next().await;
    assert_eq!(code(&host), -32603);
    assert!(!host.to_string().contains("secret path"));
    client.call(4, "other", json!({})).await;
    assert_eq!(code(&client.next().await), -32602);
    assert_eq!(code(&client.ask(5, "tools/call", json!({})).await), -32602);
    client.call(6, "echo", json!([1])).await;
    assert_eq!(code(&client.next().await), -32602);
    assert_eq!(code(&client.ask(7, "resources/list", json!({})).await), -32601);
    client.call(8, "echo", json!({})).await;
    let echoed = client.next().await;
    assert_eq!(echoed["result"]["isError"], false);
    assert_eq!(echoed["result"]["_meta"][RECEIPT_KEY]["fuel"], 3);
}

#[tokio::test]
async fn responses_are_sent_as_calls_end() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call("slow", "wait", json!({})).await;
    client.call("fast", "echo", json!({})).await;
    assert_eq!(client.next().await["id"], "fast");
    client.gate.add_permits(1);
    assert_eq!(client.next().await["id"], "slow");
}

#[tokio::test]
async fn cancelled_call_has_no_response_and_files_its_receipt() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call(7, "wait", json!({})).await;
    settle(&mut client).await;
    client
        .notify("notifications/cancelled", json!({"requestId": 8}))
        .await;
    client
        .notify("notifications/cancelled", json!({"requestId": 7, "reason": "x"}))
        .await;
    // The identifier is free at once.
    client.call(7, "echo", json!({})).await;
    let answer = client.next().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(7), &json!(false))
    );
    let (rest, seen) = client.finish().await;
    assert_eq!(rest, [] as [Value; 0]);
    let finished = seen.finished();
    let (_, cancelled) = finished.iter().find(|(tool, _)| tool == "wait").unwrap();
    assert_eq!(cancelled.error, Some(ToolError::Cancelled));
}

#[tokio::test]
async fn end_of_input_cancels_what_runs_and_files_its_receipt() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    client.call(2, "echo", json!({})).await;
    assert_eq!(client.next().await["id"], 2);
    let (_, seen) = client.finish().await;
    let finished = seen.finished();
    assert_eq!(finished.len(), 2);
    assert_eq!(finished[1].1.error, Some(ToolError::Cancelled));
    assert_eq!(
        finished[1].1.receipt.as_ref().map(|receipt| receipt.fuel),
        Some(5)
    );
}

#[tokio::test]
async fn stop_ends_the_server_while_the_client_stays() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    settle(&mut client).await;
    client.stop.cancel();
    let answer = client.next().await;
    assert_eq!(answer["result"]["isError"], true);
    let (_, seen) = client.finish().await;
    assert_eq!(seen.finished().len(), 1);
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_and_the_server_goes_on() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    for id in 0..MAX_IN_FLIGHT {
        client.call(id, "wait", json!({})).await;
    }
    client.call("beyond", "wait", json!({})).await;
    let refused = client.next().await;
    assert_eq!((code(&refused), &refused["id"]), (-32000, &json!("beyond")));
    client.gate.add_permits(MAX_IN_FLIGHT);
    for _ in 0..MAX_IN_FLIGHT {
        assert_eq!(client.next().await["result"]["isError"], false);
    }
    client.call("after", "echo", json!({})).await;
    assert_eq!(client.next().await["id"], "after");
}

#[tokio::test]
async fn calls_beyond_those_that_run_wait() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    for id in 0..MAX_RUNNING {
        client.call(id, "wait", json!({})).await;
    }
    client.call("next", "echo", json!({})).await;
    settle(&mut client).await;
    assert_eq!(client.seen.finished().len(), 0);
    client.gate.add_permits(1);
    let answers = [client.next().await, client.next().await];
    assert!(answers.iter().any(|answer| answer["id"] == "next"));
}

#[tokio::test]
async fn repeated_id_is_refused_and_the_first_call_keeps_it() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call(1, "wait", json!({})).await;
    for method in ["tools/call", "ping"] {
        let answer = client.ask(1, method, json!({"name": "echo"})).await;
        assert_eq!((code(&answer), &answer["id"]), (-32600, &Value::Null));
    }
    client.call("1", "echo", json!({})).await;
    assert_eq!(client.next().await["id"], "1");
    client.gate.add_permits(1);
    let answer = client.next().await;
    assert_eq!(answer["result"]["content"][0]["text"], "waited");
    client.call(1, "echo", json!({})).await;
    assert_eq!(client.next().await["id"], 1);
}

#[tokio::test]
async fn progress_is_sent_only_with_a_token_and_only_forward() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client
        .request(
            1,
            "tools/call",
            json!({"name": "report", "_meta": {"progressToken": "p"}}),
        )
        .await;
    for done in [1, 2] {
        let message = client.next().await;
        assert_eq!(message["method"], "notifications/progress");
        let params = json!({"progressToken": "p", "progress": done, "total": 2, "message": "step"});
        assert_eq!(message["params"], params);
    }
    assert_eq!(client.next().await["id"], 1);
    client.call(2, "report", json!({})).await;
    assert_eq!(client.next().await["id"], 2);
    let wrong = json!({"name": "report", "_meta": {"progressToken": []}});
    assert_eq!(code(&client.ask(3, "tools/call", wrong).await), -32602);
    for (id, meta) in [(4, json!({"progressToken": null})), (5, Value::Null)] {
        let answer = client
            .ask(id, "tools/call", json!({"name": "report", "_meta": meta}))
            .await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
}

#[tokio::test]
async fn logs_are_sent_from_the_level_that_the_client_set() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call(1, "report", json!({})).await;
    assert_eq!(client.next().await["id"], 1);
    assert_eq!(
        code(&client.ask(2, "logging/setLevel", json!({"level": "loud"})).await),
        -32602
    );
    assert_eq!(
        client
            .ask(3, "logging/setLevel", json!({"level": "warning"}))
            .await["result"],
        json!({})
    );
    client.call(4, "report", json!({})).await;
    let message = client.next().await;
    assert_eq!(message["method"], "notifications/message");
    assert_eq!(
        message["params"],
        json!({
            "level": "warning",
            "logger": "report",
            "data": "warn",
            "_meta": { LOG_KEY: { "source": "stdout", "requestId": 4 } },
        })
    );
    assert_eq!(client.next().await["id"], 4);
}

#[tokio::test]
async fn logs_of_a_stateless_request_follow_its_own_level() {
    let mut client = Client::start();
    let call = |level: Option<&str>| {
        let mut params = stateless("2026-07-28", object(json!({"name": "report"})));
        if let Some(level) = level {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = level.into();
        }
        params
    };
    client.request(1, "tools/call", call(Some("debug"))).await;
    let message = client.next().await;
    // A line that looks like a message stays a string.
    let text = message["params"]["data"].as_str().unwrap();
    assert!(text.contains("\n{\"jsonrpc\""), "{message}");
    assert_eq!(client.next().await["params"]["level"], "warning");
    assert_eq!(client.next().await["id"], 1);
    client.request(2, "tools/call", call(None)).await;
    assert_eq!(client.next().await["id"], 2);
}

#[tokio::test]
async fn batch_is_answered_together_in_version_2025_03_26_only() {
    let ping = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let mut client = Client::start();
    client.initialize("2025-03-26").await;
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "echo"}});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/x"});
    client.send(json!([ping(1), note, 5, call])).await;
    let answer = client.next().await;
    let ids: Vec<&Value> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| &answer["id"])
        .collect();
    assert_eq!(ids, [&json!(1), &Value::Null, &json!("c")]);
    client.send(json!([note])).await;
    client.send((0..MAX_BATCH).map(ping).collect()).await;
    assert_eq!(client.next().await.as_array().unwrap().len(), MAX_BATCH);
    client.send((0..=MAX_BATCH).map(ping).collect()).await;
    assert_eq!(code(&client.next().await), -32600);
    client.send(json!([])).await;
    assert_eq!(code(&client.next().await), -32600);
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut client = Client::start();
        client.initialize(version).await;
        client.send(json!([ping(1)])).await;
        assert_eq!(code(&client.next().await), -32600, "{version}");
    }
}

#[tokio::test]
async fn wrong_message_gets_its_error_and_the_server_goes_on() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    let long = vec![b'x'; MAX_MESSAGE_BYTES + 1];
    for (line, expected) in [
        (&b"{"[..], -32700),
        (b"\xff\xfe", -32700),
        (b"[1]", -32600),
        (b"7", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600),
        (&long, -32600),
    ] {
        client.send_bytes(line).await;
        let answer = client.next().await;
        assert_eq!((code(&answer), &answer["id"]), (expected, &Value::Null));
    }
    for silent in [&b""[..], b"  \r", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"] {
        client.send_bytes(silent).await;
    }
    client.notify("notifications/unknown", json!({})).await;
    settle(&mut client).await;
}

#[tokio::test]
async fn largest_message_is_accepted() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    let message = |text: &str| {
        let params = json!({"name": "echo", "arguments": {"text": text}});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
    };
    let text = "x".repeat(MAX_MESSAGE_BYTES - message("").len());
    let line = message(&text);
    assert_eq!(line.len(), MAX_MESSAGE_BYTES);
    client.send_bytes(line.as_bytes()).await;
    assert_eq!(client.next().await["result"]["structuredContent"]["text"], text);
}

#[tokio::test]
async fn arguments_are_nested_up_to_their_limit() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    for (depth, is_error) in [(63, false), (64, true)] {
        let value: Value =
            serde_json::from_str(&format!("{}{}", "[".repeat(depth), "]".repeat(depth))).unwrap();
        client.call(1, "echo", json!({"a": value})).await;
        assert_eq!(client.next().await["result"]["isError"], is_error, "{depth}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_cannot_keep_the_server() {
    let (_client, server) = tokio::io::duplex(16);
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    let input = ping.repeat(10);
    crate::server::testing::server()
        .serve(input.as_bytes(), server, &CancellationToken::new())
        .await
        .unwrap();
}

#[tokio::test]
async fn closed_output_ends_the_server() {
    let (client, server) = tokio::io::duplex(16);
    let (mut writer, input) = tokio::io::duplex(1024);
    drop(client);
    let served = tokio::spawn(async move {
        crate::server::testing::server()
            .serve(input, server, &CancellationToken::new())
            .await
    });
    writer
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")
        .await
        .unwrap();
    served.await.unwrap().unwrap();
}
