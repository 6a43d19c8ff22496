//! Servers over HTTP that behave well, and those that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use toolcell_core::{Content, ToolError};

use super::testing::{
    Does, JSON, Scripted, Seen, answer, event, events, polite, response, result, said, stateless,
};
use super::{MAX_REFUSAL_BYTES, MAX_SESSION_ID, MAX_STREAM_BYTES, Remote};
use crate::client::link::MAX_ANSWER_BYTES;
use crate::client::pending::MAX_UNASKED;
use crate::client::server::{McpServer, Options};
use crate::client::testing::{Seen as Observed, call, call_seen, fail, identity};
use crate::version::Version;

fn text(result: &toolcell_core::CallResult) -> &str {
    match result.content.as_slice() {
        [Content::Text { text }] => text,
        other => panic!("{other:?}: {:?}", result.error),
    }
}

fn counted(calls: impl Fn(usize, &Seen) -> Vec<Does> + Send + Sync + 'static) -> impl Fn(&Seen) -> Vec<Does> {
    let count = AtomicUsize::new(0);
    move |seen| calls(count.fetch_add(1, Ordering::SeqCst), seen)
}

/// Options with a short time for calls.
fn quick() -> Options {
    Options {
        call_timeout: Duration::from_millis(300),
        ..Options::new("srv")
    }
}

#[tokio::test]
async fn requests_without_session_state_all_in_headers() {
    let scripted = Scripted::new(|seen| match seen.does() {
        "tools/call" => result(seen, said("done")),
        "tools/list" => {
            let schema =
                json!({"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "R"}}});
            result(seen, json!({"tools": [{"name": "t", "inputSchema": schema}]}))
        }
        _ => stateless(seen),
    })
    .await;
    let server = scripted.start().await;
    assert_eq!(text(&call(&server).await), "done");
    let called = &scripted.seen("tools/call")[0];
    for (header, value) in [
        ("mcp-protocol-version", Some("2026-07-28")),
        ("mcp-method", Some("tools/call")),
        ("mcp-name", Some("t")),
        ("mcp-session-id", None),
        ("mcp-param-r", None),
        ("content-type", Some("application/json")),
        ("accept", Some("application/json, text/event-stream")),
        ("accept-encoding", None),
        ("x-key", Some("mine")),
    ] {
        assert_eq!(called.header(header), value, "{header}");
    }
    assert_eq!(server.version().await, Some(Version::V2026_07_28));
    server.stop().await;
    for method in ["initialize", "GET", "DELETE"] {
        assert_eq!(scripted.seen(method).len(), 0, "{method}");
    }
}

#[tokio::test]
async fn every_older_version_has_a_session() {
    for version in [Version::V2025_03_26, Version::V2025_06_18, Version::V2025_11_25] {
        for has_session in [true, false] {
            let scripted = Scripted::new(move |seen| match seen.does() {
                "initialize" => {
                    let about = answer(
                        seen,
                        json!({"protocolVersion": version.as_str(), "capabilities": {}}),
                    );
                    let id = if has_session {
                        "mcp-session-id: s 1\r\n"
                    } else {
                        ""
                    };
                    response(200, &format!("{JSON}{id}"), about.to_string())
                }
                "tools/call" => vec![events(), event(&answer(seen, said("done")))],
                _ => polite(seen),
            })
            .await;
            let server = scripted.start().await;
            assert_eq!(text(&call(&server).await), "done");
            server.stop().await;
            let stated = (version >= Version::V2025_06_18).then(|| version.as_str());
            for method in ["notifications/initialized", "tools/list", "tools/call"] {
                let seen = &scripted.seen(method)[0];
                assert_eq!(
                    seen.header("mcp-session-id"),
                    has_session.then_some("s 1"),
                    "{method}"
                );
                assert_eq!(seen.header("mcp-protocol-version"), stated, "{method}");
                assert_eq!(seen.header("mcp-method"), None, "{method}");
            }
            assert_eq!(
                scripted.seen("initialize")[0].header("mcp-protocol-version"),
                None
            );
            assert_eq!(scripted.seen("DELETE").len(), usize::from(has_session));
        }
    }
}

#[tokio::test]
async fn progress_comes_before_the_answer() {
    let scripted = Scripted::calls(|seen| {
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
            "progressToken": seen.body["params"]["_meta"]["progressToken"], "progress": 1, "total": 2,
        }});
        vec![events(), event(&progress), event(&answer(seen, said("done")))]
    })
    .await;
    let server = scripted.start().await;
    let observed = Arc::new(Observed::default());
    let called = call_seen(&server, "_t", observed.clone()).await;
    assert_eq!(text(&called), "done");
    let progress = observed.progress.lock().unwrap();
    assert_eq!((progress[0].done, progress[0].total), (1, Some(2)));
}

#[tokio::test]
async fn answer_that_cannot_be_used_fails_its_own_call() {
    type Calls = fn(&Seen) -> Vec<Does>;
    let cases: [(&str, Calls, &str); 15] = [
        (
            "huge body",
            |_| response(200, JSON, vec![b'x'; MAX_ANSWER_BYTES + 1]),
            "has more than 8388608 bytes",
        ),
        (
            "huge event",
            |_| {
                vec![
                    events(),
                    Does::Write(b"data: ".to_vec()),
                    Does::Repeat(vec![b'x'; 1 << 16]),
                ]
            },
            "has more than 8388608 bytes",
        ),
        (
            "foreign identifier",
            |_| response(200, JSON, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            "is not an answer to it",
        ),
        (
            "foreign identifier in a stream",
            |_| vec![events(), event(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}))],
            "connection to the MCP server `srv` ended during the call",
        ),
        (
            "no UTF-8",
            |_| response(200, JSON, b"{\"id\":1,\"result\":\"\xff\"}"),
            "is not an answer to it",
        ),
        (
            "redirect",
            |_| response(302, "location: http://169.254.169.254/latest/meta-data\r\n", ""),
            "refused the request; nothing was called",
        ),
        (
            "compressed",
            |_| response(200, &format!("{JSON}content-encoding: gzip\r\n"), [0x1f, 0x8b]),
            "is compressed, which was not asked for",
        ),
        ("silence", |_| vec![Does::Hang], "did not answer within"),
        (
            "silence in a stream",
            |_| vec![events(), Does::Hang],
            "did not answer within",
        ),
        (
            "late",
            |seen| {
                let late = vec![Does::Wait(Duration::from_millis(400))];
                [late, result(seen, said("late"))].concat()
            },
            "did not answer within",
        ),
        (
            "half a body",
            |_| {
                let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"id\":";
                vec![Does::Write(head.to_vec())]
            },
            "connection to the MCP server `srv` ended during the call",
        ),
        (
            "half an event",
            |_| vec![events(), Does::Write(b"data: {\"id\":4".to_vec())],
            "connection to the MCP server `srv` ended during the call",
        ),
        (
            "no HTTP",
            |_| vec![Does::Write(b"\0\0\0\n\n".to_vec())],
            "connection to the MCP server `srv` ended during the call",
        ),
        (
            "a page",
            |_| response(200, "content-type: text/html\r\n", "<html>"),
            "but of type `text/html`",
        ),
        (
            "failure",
            |_| response(503, "", "overloaded"),
            "answered with the status 503; whether the call had an effect is unknown",
        ),
    ];
    for (what, calls, why) in cases {
        let scripted = Scripted::calls(counted(move |count, seen| match count {
            0 => calls(seen),
            _ => result(seen, said("done")),
        }))
        .await;
        let mut options = quick();
        if !why.contains("did not answer") {
            options.call_timeout = Duration::from_secs(20);
        }
        let server = scripted.start_with(options).await.unwrap();
        let error = fail(&server).await.to_string();
        assert!(error.contains(why), "{what}: {error}");
        assert_eq!(text(&call(&server).await), "done", "{what}");
        assert_eq!(scripted.seen("initialize").len(), 1, "{what}");
    }
}

#[tokio::test]
async fn stream_is_read_up_to_its_size() {
    for (more, is_read) in [(0, true), (1, false)] {
        let scripted = Scripted::calls(move |seen| {
            let Does::Write(done) = event(&answer(seen, said("done"))) else {
                unreachable!()
            };
            let mut comments = [&[b':'; 1 << 20][..], b"\n"].concat().repeat(63);
            comments.resize(MAX_STREAM_BYTES - done.len() - 1 + more, b':');
            comments.push(b'\n');
            vec![events(), Does::Write(comments), Does::Write(done)]
        })
        .await;
        let server = scripted.start().await;
        let called = call(&server).await;
        assert_eq!(called.error.is_none(), is_read, "{:?}", called.error);
    }
}

#[tokio::test]
async fn refusal_and_session_are_read_up_to_their_sizes() {
    for (bytes, why) in [
        (MAX_REFUSAL_BYTES, "no luck"),
        (MAX_REFUSAL_BYTES + 1, "the status 400"),
    ] {
        let scripted = Scripted::calls(move |_| {
            let mut body = br#"{"error":{"code":-1,"message":"no luck"}}"#.to_vec();
            body.resize(bytes, b' ');
            response(400, JSON, body)
        })
        .await;
        let error = fail(&scripted.start().await).await.to_string();
        assert!(error.contains(why), "{error}");
    }
    for (bytes, is_kept) in [(MAX_SESSION_ID, true), (MAX_SESSION_ID + 1, false)] {
        let scripted = Scripted::new(move |seen| match seen.does() {
            "initialize" => {
                let about = answer(seen, json!({"protocolVersion": "2025-06-18"}));
                let id = "s".repeat(bytes);
                response(200, &format!("{JSON}mcp-session-id: {id}\r\n"), about.to_string())
            }
            _ => polite(seen),
        })
        .await;
        assert_eq!(scripted.start_with(quick()).await.is_ok(), is_kept, "{bytes}");
    }
}

#[tokio::test]
async fn answer_that_comes_twice_counts_once() {
    let scripted = Scripted::calls(|seen| {
        let twice = ["done", "again"].map(|text| event(&answer(seen, said(text))));
        vec![events()].into_iter().chain(twice).collect()
    })
    .await;
    let server = scripted.start().await;
    for _ in 0..3 {
        assert_eq!(text(&call(&server).await), "done");
    }
}

#[tokio::test]
async fn flood_of_events_ends_the_session_and_no_more() {
    for (count, is_flood) in [(MAX_UNASKED, false), (MAX_UNASKED + 1, true)] {
        let scripted = Scripted::calls(move |seen| {
            let odd = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
            let flood = Does::Write(odd.repeat(count as usize).into_bytes());
            vec![events(), flood, event(&answer(seen, said("done")))]
        })
        .await;
        let server = scripted.start().await;
        let called = call(&server).await;
        assert_eq!(called.error.is_some(), is_flood, "{count}: {:?}", called.error);
    }
}

#[tokio::test]
async fn hung_call_delays_no_other() {
    let scripted = Scripted::calls(counted(|count, seen| match count {
        0 => vec![Does::Hang],
        _ => result(seen, said("done")),
    }))
    .await;
    let server = scripted.start_with(quick()).await.unwrap();
    let (hung, other) = tokio::join!(fail(&server), async {
        scripted.wait_for("tools/call", 1, |_| true).await;
        let begun = std::time::Instant::now();
        (call(&server).await, begun.elapsed())
    });
    assert!(matches!(hung, ToolError::Unavailable { .. }), "{hung}");
    assert_eq!(text(&other.0), "done");
    assert!(other.1 < Duration::from_millis(250), "{:?}", other.1);
}

#[tokio::test]
async fn lost_session_is_opened_again_once() {
    for losses in [1, 2] {
        let scripted = Scripted::calls(counted(move |count, seen| match count < losses {
            true => response(
                404,
                JSON,
                r#"{"error":{"code":-32001,"message":"Session not found"}}"#,
            ),
            false => result(seen, said("done")),
        }))
        .await;
        let server = scripted.start().await;
        let called = call(&server).await;
        match losses {
            1 => assert_eq!(text(&called), "done"),
            _ => {
                let error = called.into_result().unwrap_err().to_string();
                assert!(
                    error.contains("refused the request; nothing was called"),
                    "{error}"
                );
            }
        }
        assert_eq!(scripted.seen("initialize").len(), 2);
        assert_eq!(scripted.seen("initialize")[1].header("mcp-session-id"), None);
        assert_eq!(scripted.seen("tools/call").len(), 2);
    }
}

#[tokio::test]
async fn session_lost_before_a_list_is_opened_again() {
    let (lists, is_listening) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let scripted = Scripted::new(move |seen| match seen.does() {
        // The list changes, and the server forgets the session before it is read again.
        "GET" if is_listening.fetch_add(1, Ordering::SeqCst) == 0 => {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            vec![events(), event(&changed), Does::Hang]
        }
        "tools/list" if lists.fetch_add(1, Ordering::SeqCst) == 1 => response(404, "", ""),
        "tools/call" => result(seen, said("done")),
        _ => polite(seen),
    })
    .await;
    let server = scripted.start().await;
    scripted.wait_for("GET", 1, |_| true).await;
    let begun = std::time::Instant::now();
    while scripted.seen("initialize").len() < 2 {
        assert_eq!(text(&call(&server).await), "done");
        assert!(begun.elapsed().as_secs() < 60);
    }
    assert_eq!(text(&call(&server).await), "done");
}

#[tokio::test]
async fn refusal_tells_what_the_server_said() {
    for (status, body, why) in [
        (
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"no `n`"}}"#,
            "no `n`",
        ),
        (
            404,
            r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no tools"}}"#,
            "the error -32601: no tools",
        ),
        (403, "<html>", "the status 403"),
        (401, "", "refused the request; nothing was called"),
    ] {
        let scripted = Scripted::calls(move |_| response(status, "", body)).await;
        let server = scripted.start().await;
        let error = fail(&server).await.to_string();
        assert!(error.contains(why), "{status}: {error}");
    }
}

#[tokio::test]
async fn server_that_refuses_the_client_does_not_start() {
    for (status, headers, why) in [
        (401, "www-authenticate: Bearer\r\n", "(status 401)"),
        (
            307,
            "location: https://mcp.example/\r\n",
            "the status 307, a redirect",
        ),
        (500, "", "`initialize` was answered with the status 500"),
    ] {
        let scripted = Scripted::new(move |_| response(status, headers, "")).await;
        let error = scripted.start_with(quick()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // A port that nobody listens on.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let remote = Remote::new(&url, []).unwrap();
    let error = McpServer::over_http(remote, quick(), identity())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("could not be reached"), "{error}");
}

#[tokio::test]
async fn closed_stream_is_continued_after_its_last_event() {
    let scripted = Scripted::new(|seen| match (seen.does(), seen.header("last-event-id")) {
        ("tools/call", _) => vec![events(), Does::Write(b"id: e1\nretry: 100\ndata:\n\n".to_vec())],
        ("GET", Some("e1")) => vec![events(), Does::Write(b"id: e2\ndata: \n\n".to_vec())],
        ("GET", Some("e2")) => {
            // After discovery, initialisation and the list.
            let done = json!({"jsonrpc": "2.0", "id": 4, "result": said("done")});
            vec![events(), event(&done)]
        }
        _ => polite(seen),
    })
    .await;
    let server = scripted.start().await;
    let called = call(&server).await;
    let id = &scripted.seen("tools/call")[0].body["id"];
    assert_eq!(id, 4, "the script answers this one");
    assert_eq!(text(&called), "done");
    // A stream that cannot be continued is the end of its call.
    let scripted = Scripted::calls(|_| vec![events(), Does::Write(b"id: e1\ndata:\n\n".to_vec())]).await;
    let server = scripted.start().await;
    let error = fail(&server).await.to_string();
    assert!(error.contains("the status 405"), "{error}");
}

#[tokio::test]
async fn dropped_call_is_cancelled_as_its_version_wants() {
    for is_stateless in [false, true] {
        let scripted = Scripted::new(move |seen| match (seen.does(), is_stateless) {
            ("tools/call", _) => vec![events(), Does::Hang],
            (_, true) => stateless(seen),
            (_, false) => polite(seen),
        })
        .await;
        let server = scripted.start().await;
        let dropped = tokio::time::timeout(Duration::from_millis(200), call(&server)).await;
        assert!(dropped.is_err());
        scripted.wait_for("tools/call", 1, |seen| seen.is_cut).await;
        const CANCELLED: &str = "notifications/cancelled";
        if is_stateless {
            assert_eq!(scripted.seen(CANCELLED).len(), 0);
        } else {
            scripted.wait_for(CANCELLED, 1, |_| true).await;
            let id = &scripted.seen("tools/call")[0].body["id"];
            assert_eq!(&scripted.seen(CANCELLED)[0].body["params"]["requestId"], id);
        }
    }
}

#[tokio::test]
async fn requests_of_a_server_over_http_are_refused() {
    let scripted = Scripted::new(|seen| match seen.does() {
        "tools/call" => {
            let asks = json!({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}});
            vec![events(), event(&asks), event(&answer(seen, said("done")))]
        }
        "POST" => response(202, "", ""),
        _ => polite(seen),
    })
    .await;
    let server = scripted.start().await;
    assert_eq!(text(&call(&server).await), "done");
    scripted.wait_for("POST", 1, |_| true).await;
    let refused = &scripted.seen("POST")[0].body;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("q"), &json!(-32601))
    );
}

#[tokio::test]
async fn changed_list_is_told_on_a_stream_of_its_own() {
    const CHANGED: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}";
    for is_stateless in [false, true] {
        let lists = AtomicUsize::new(0);
        let scripted = Scripted::new(move |seen| match (seen.does(), is_stateless) {
            ("server/discover", true) => result(
                seen,
                json!({
                    "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}},
                }),
            ),
            ("GET" | "subscriptions/listen", _) => {
                let changed = format!("data: {CHANGED}\n\n").into_bytes();
                vec![events(), Does::Write(changed), Does::Hang]
            }
            ("tools/list", _) => {
                let description = format!("Version {}.", lists.fetch_add(1, Ordering::SeqCst));
                let tool =
                    json!({"name": "t", "description": description, "inputSchema": {"type": "object"}});
                result(seen, json!({ "tools": [tool] }))
            }
            ("tools/call", _) => result(seen, said("done")),
            _ => polite(seen),
        })
        .await;
        let server = scripted.start().await;
        let stream = if is_stateless {
            "subscriptions/listen"
        } else {
            "GET"
        };
        scripted.wait_for(stream, 1, |_| true).await;
        let begun = std::time::Instant::now();
        while call(&server).await.error.is_none() {
            assert!(begun.elapsed().as_secs() < 60);
        }
        assert_eq!(fail(&server).await.kind(), "denied");
        if is_stateless {
            let asked = &scripted.seen(stream)[0];
            assert_eq!(asked.body["params"]["notifications"]["toolsListChanged"], true);
            assert_eq!(asked.header("mcp-method"), Some(stream));
        }
        server.stop().await;
        drop(server);
        scripted.wait_for(stream, 1, |seen| seen.is_cut).await;
    }
}
