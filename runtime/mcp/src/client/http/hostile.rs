//! Servers over HTTP that do not behave well.

use std::time::Duration;

use serde_json::json;
use toolcell_core::ToolError;

use super::testing::{Does, JSON, Scripted, Seen, answer, event, events, polite, response, result, said};
use super::tests::{counted, quick, text};
use super::{MAX_REFUSAL_BYTES, MAX_SESSION_ID, MAX_STREAM_BYTES, Remote};
use crate::client::link::MAX_ANSWER_BYTES;
use crate::client::pending::MAX_UNSOLICITED;
use crate::client::server::McpServer;
use crate::client::testing::{call, fail, identity};

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
            "the status 302, a redirect, which is not followed; nothing was called",
        ),
        (
            "compressed",
            |_| response(200, &format!("{JSON}content-encoding: gzip\r\n"), [0x1f, 0x8b]),
            "has an unsupported content-encoding",
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
                let late = vec![Does::Wait(Duration::from_millis(1_200))];
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
    for (count, is_flood) in [(MAX_UNSOLICITED, false), (MAX_UNSOLICITED + 1, true)] {
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
    assert!(other.1 < Duration::from_millis(900), "{:?}", other.1);
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
        (
            401,
            "",
            "without a valid authorization (status 401); nothing was called",
        ),
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
    // A port without a listener.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let remote = Remote::new(&url, []).unwrap();
    let error = McpServer::over_http(remote, quick(), identity())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("could not be reached"), "{error}");
}
