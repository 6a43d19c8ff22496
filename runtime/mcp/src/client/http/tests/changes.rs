//! Servers over HTTP that tell changes of their tools, or do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::sync::Notify;

use super::{answer, events, polite, response, result, said};
use crate::client::http::testing::{Does, JSON, Scripted, Seen};
use crate::client::testing::{call, fail};

const CHANGED: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";

/// A server with or without sessions that says that it tells changes, on streams as `streams` does. Its tool is described by
/// `version`.
async fn scripted(
    is_stateless: bool,
    version: Arc<AtomicUsize>,
    streams: impl Fn(&Seen) -> Vec<Does> + Send + Sync + 'static,
) -> Scripted {
    let capabilities = json!({"tools": {"listChanged": true}});
    Scripted::new(move |seen| match (seen.does(), is_stateless) {
        ("server/discover", true) => result(
            seen,
            json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities}),
        ),
        ("initialize", false) => {
            let about = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
            let session = format!("{JSON}mcp-session-id: s1\r\n");
            response(200, &session, answer(seen, about).to_string())
        }
        ("GET", false) | ("subscriptions/listen", true) => streams(seen),
        ("tools/list", _) => {
            let description = format!("Version {}.", version.load(Ordering::SeqCst));
            let tool = json!({"name": "t", "description": description, "inputSchema": {"type": "object"}});
            result(seen, json!({ "tools": [tool] }))
        }
        ("tools/call", _) => result(seen, said("done")),
        _ => polite(seen),
    })
    .await
}

fn stream(is_stateless: bool) -> &'static str {
    if is_stateless {
        "subscriptions/listen"
    } else {
        "GET"
    }
}

/// Calls until the change is known.
async fn call_until_denied(server: &Arc<crate::client::McpServer>) {
    let begun = std::time::Instant::now();
    while call(server).await.error.is_none() {
        assert!(begun.elapsed().as_secs() < 60);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(fail(server).await.kind(), "denied");
}

#[tokio::test]
async fn changed_list_is_told_on_a_stream_of_its_own() {
    for is_stateless in [false, true] {
        let (version, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let tell = told.clone();
        let streams = move |_: &Seen| {
            vec![
                events(),
                Does::Until(tell.clone()),
                Does::Write(CHANGED.into()),
                Does::Hang,
            ]
        };
        let scripted = scripted(is_stateless, version.clone(), streams).await;
        let server = scripted.start().await;
        let stream = stream(is_stateless);
        // The list is read again once the stream is open, and then only if it changed.
        while scripted.seen("tools/list").len() < 2 {
            assert_eq!(call(&server).await.error, None);
        }
        version.store(1, Ordering::SeqCst);
        assert_eq!(call(&server).await.error, None);
        told.notify_one();
        call_until_denied(&server).await;
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

#[tokio::test]
async fn stream_of_changes_is_opened_again_when_it_ends() {
    // Ends of a stream: closed by a proxy, refused while the server is started again.
    for (is_stateless, status) in [(true, 200), (false, 200), (true, 503), (false, 502)] {
        let (version, is_started) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (changes, may_open) = (version.clone(), is_started.clone());
        let streams = move |_: &Seen| match may_open.load(Ordering::SeqCst) {
            false if status == 200 => vec![events()],
            false => response(status, "", ""),
            true => {
                // While there was no stream.
                changes.store(1, Ordering::SeqCst);
                vec![events(), Does::Hang]
            }
        };
        let scripted = scripted(is_stateless, version, streams).await;
        let server = scripted.start().await;
        scripted.wait_for(stream(is_stateless), 1, |_| true).await;
        is_started.store(true, Ordering::SeqCst);
        scripted.wait_for(stream(is_stateless), 2, |_| true).await;
        call_until_denied(&server).await;
        let ids: Vec<_> = (scripted.seen("subscriptions/listen").iter())
            .map(|seen| seen.body["id"].clone())
            .collect();
        assert!(ids.len() < 2 || ids[0] != ids[1], "{ids:?}");
    }
}

#[tokio::test]
async fn change_that_is_told_nowhere_is_found_in_the_list() {
    let untold = async |is_stateless| {
        let version = Arc::new(AtomicUsize::new(0));
        let scripted = scripted(is_stateless, version.clone(), |_| response(405, "", "")).await;
        let server = scripted.start().await;
        scripted.wait_for(stream(is_stateless), 1, |_| true).await;
        assert_eq!(call(&server).await.error, None);
        version.store(1, Ordering::SeqCst);
        call_until_denied(&server).await;
        // It is not asked again for a stream that it does not have.
        assert_eq!(scripted.seen(stream(is_stateless)).len(), 1);
    };
    tokio::join!(untold(false), untold(true));
}
