//! Servers over HTTP that behave well: versions, sessions, streams, cancellation.

mod changes;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use toolcell_core::Content;

use super::testing::{
    Does, JSON, Scripted, Seen, answer, event, events, polite, response, result, said, stateless,
};
use crate::client::server::Options;
use crate::client::testing::{Seen as Observed, call, call_seen, call_with, fail};
use crate::version::Version;

pub(super) fn text(result: &toolcell_core::CallResult) -> &str {
    match result.content.as_slice() {
        [Content::Text { text }] => text,
        other => panic!("{other:?}: {:?}", result.error),
    }
}

pub(super) fn counted(
    calls: impl Fn(usize, &Seen) -> Vec<Does> + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Vec<Does> {
    let count = AtomicUsize::new(0);
    move |seen| calls(count.fetch_add(1, Ordering::SeqCst), seen)
}

/// Options with a short time for calls.
pub(super) fn quick() -> Options {
    Options {
        call_timeout: Duration::from_secs(1),
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
async fn arguments_are_sent_in_headers_where_the_schema_says_so() {
    let placed = |name: &str| json!({"type": "string", "x-mcp-header": name});
    let nested = json!({"r": placed("R"), "o": {"type": "object", "properties": {"n": placed("N")}}});
    let wrong = json!({"list": {"type": "array", "items": placed("L")}});
    for is_stateless in [true, false] {
        let tool = |name, properties| json!({"name": name, "inputSchema": {"type": "object", "properties": properties}});
        let listed = json!({"tools": [tool("t", &nested), tool("w", &wrong)]});
        let scripted = Scripted::new(move |seen| match seen.does() {
            "tools/call" => result(seen, said("done")),
            "tools/list" => result(seen, listed.clone()),
            _ if is_stateless => stateless(seen),
            _ => polite(seen),
        })
        .await;
        let server = scripted.start().await;
        let arguments = json!({"r": "eu", "o": {"n": "é"}});
        call_with(&server, "_t", arguments, Arc::default()).await;
        let called = &scripted.seen("tools/call")[0];
        let sent = [called.header("mcp-param-r"), called.header("mcp-param-n")];
        let left_out: Vec<&str> = server.left_out().iter().map(|left| &*left.tool).collect();
        // Versions with sessions have no such headers.
        match is_stateless {
            true => assert_eq!(
                (sent, left_out),
                ([Some("eu"), Some("=?base64?w6k=?=")], vec!["w"])
            ),
            false => assert_eq!((sent, left_out), ([None, None], vec![])),
        }
    }
}

#[tokio::test]
async fn version_that_was_refused_is_tried_once_more() {
    for (refusals, version) in [(1, Version::V2026_07_28), (2, Version::V2025_06_18)] {
        let left = AtomicUsize::new(refusals);
        let scripted = Scripted::new(move |seen| {
            let is_one_less = |left: usize| left.checked_sub(1);
            match seen.does() {
                "server/discover"
                    if left
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_one_less)
                        .is_ok() =>
                {
                    let error =
                        json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}});
                    let refusal = json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error});
                    response(400, JSON, refusal.to_string())
                }
                "server/discover" => stateless(seen),
                _ => polite(seen),
            }
        })
        .await;
        let server = scripted.start().await;
        assert_eq!(server.version().await, Some(version), "{refusals}");
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
                    error.contains("ended the session again; nothing was called"),
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
    // A call whose stream is lost with the session is not repeated: it may have had an effect.
    for status in [404, 401, 302] {
        let scripted = Scripted::new(move |seen| match (seen.does(), seen.header("last-event-id")) {
            ("tools/call", _) => vec![events(), Does::Write(b"id: e1\nretry: 100\ndata:\n\n".to_vec())],
            ("GET", Some(_)) => response(status, "", ""),
            _ => polite(seen),
        })
        .await;
        let error = fail(&scripted.start().await).await.to_string();
        assert!(
            error.contains("whether the call had an effect is unknown"),
            "{error}"
        );
        assert_eq!(scripted.seen("tools/call").len(), 1);
    }
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
        let dropped = tokio::time::timeout(Duration::from_secs(1), call(&server)).await;
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
