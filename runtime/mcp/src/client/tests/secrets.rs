//! Servers that return the values of their secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use toolcell_core::Secrets;

use crate::client::server::Options;
use crate::client::testing::{
    Scripted, Seen, call, call_seen, call_with, error, notification, polite, result, text,
};

/// Options of a server that got a secret.
fn with_secret(value: &str) -> Options {
    let mut secrets = Secrets::default();
    secrets.insert("token", value).unwrap();
    Options {
        redactor: secrets.redactor(),
        ..Options::new("srv")
    }
}

#[tokio::test(start_paused = true)]
async fn secret_of_a_server_is_in_nothing_that_it_returns() {
    const VALUE: &str = "s3cret-of-the-server";
    let calls = AtomicUsize::new(0);
    let scripted = Scripted::new(move |_, message| match message["method"].as_str() {
        Some("tools/call") => match calls.fetch_add(1, Ordering::SeqCst) {
            0 => vec![error(message, -1, VALUE)],
            1 => vec![result(
                message,
                json!({"isError": true, "content": [{"type": "text", "text": VALUE}]}),
            )],
            2 => vec![result(
                message,
                json!({
                    "content": [
                        {"type": "text", "text": VALUE},
                        {"type": "resource_link", "uri": format!("x:{VALUE}"), "name": VALUE},
                    ],
                    "structuredContent": {"a": [VALUE]},
                }),
            )],
            _ => vec![result(message, json!({"structuredContent": {"n": VALUE}}))],
        },
        _ => polite(message, &[("t", &format!("Uses {VALUE}."))]),
    });
    let server = scripted.start_with(with_secret(VALUE)).await.unwrap();
    assert!(!server.definitions()[0].spec.description.contains(VALUE));
    for _ in 0..4 {
        let all = serde_json::to_string(&call(&server).await).unwrap();
        assert!(!all.contains(VALUE) && all.contains("redacted"), "{all}");
    }
}

#[tokio::test]
async fn secret_of_a_server_is_in_no_error_of_its_start() {
    const VALUE: &str = "s3cret-of-the-server";
    for refused in ["initialize", "tools/list", "version"] {
        let scripted = Scripted::new(move |_, message| match message["method"].as_str() {
            Some(method) if method == refused => vec![error(message, -1, &format!("no {VALUE}"))],
            Some("initialize") if refused == "version" => vec![result(
                message,
                json!({ "protocolVersion": VALUE, "capabilities": {}, "serverInfo": {} }),
            )],
            _ => polite(message, &[("t", "For tests.")]),
        });
        let Err(failed) = scripted.start_with(with_secret(VALUE)).await else {
            panic!("{refused}: it starts");
        };
        let shown = format!("{failed:?} {failed}");
        assert!(!shown.contains(VALUE), "{shown}");
        assert!(shown.contains("[redacted:token]"), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn secret_of_a_server_is_in_no_progress() {
    const VALUE: &str = "s3cret-of-the-server";
    let scripted = Scripted::calls(|_, message| {
        let progress = |done: u64, text: String| {
            let token = &message["params"]["_meta"]["progressToken"];
            let params = json!({"progressToken": token, "progress": done, "message": text});
            notification("notifications/progress", params)
        };
        let long = format!("{}{VALUE}", "x".repeat(1_010));
        vec![
            progress(1, format!("uses {VALUE}")),
            progress(2, long),
            text(message, "done"),
        ]
    });
    let server = scripted.start_with(with_secret(VALUE)).await.unwrap();
    let seen = Arc::new(Seen::default());
    call_seen(&server, "_t", seen.clone()).await;
    let progress = seen.progress.lock().unwrap();
    assert_eq!(progress[0].message.as_deref(), Some("uses [redacted:token]"));
    assert_eq!(progress[1].message.as_deref(), Some(&*"x".repeat(1_010)));
}

#[tokio::test(start_paused = true)]
async fn text_that_is_cut_keeps_no_half_of_a_secret() {
    const VALUE: &str = "s3cret-of-the-server";
    let long = format!("{}{VALUE}", "x".repeat(1_010));
    let calls = AtomicUsize::new(0);
    let scripted = Scripted::new(move |_, message| match message["method"].as_str() {
        Some("initialize") => vec![result(
            message,
            json!({"protocolVersion": "2025-06-18", "capabilities": {"resources": {}, "prompts": {}}}),
        )],
        Some("tools/call") => match calls.fetch_add(1, Ordering::SeqCst) {
            0 => vec![error(message, -1, &long)],
            1 => vec![error(message, -32602, &long)],
            2 => vec![result(message, json!({ "resultType": long }))],
            _ => vec![result(message, json!({"content": [{"type": long}]}))],
        },
        Some("resources/list") => vec![result(
            message,
            json!({"resources": [{"uri": "x:1", "name": long}]}),
        )],
        Some("prompts/list") => vec![result(message, json!({"prompts": [{"name": long}]}))],
        Some("prompts/get") => vec![result(
            message,
            json!({"messages": [{"role": long, "content": {"type": "text", "text": "x"}}]}),
        )],
        _ => polite(message, &[("t", "")]),
    });
    let server = scripted.start_with(with_secret(VALUE)).await.unwrap();
    let mut all = vec![format!("{:?}", server.prompts().await.unwrap())];
    for tool in ["_t", "_t", "_t", "_t", "_list_resources", "_list_prompts"] {
        let result = call_seen(&server, tool, Arc::default()).await;
        all.push(serde_json::to_string(&result).unwrap());
    }
    let prompt = call_with(&server, "_get_prompt", json!({"name": "p"}), Arc::default());
    all.push(serde_json::to_string(&prompt.await).unwrap());
    for text in all {
        assert!(text.contains("xxxx") && !text.contains("s3c"), "{text}");
    }
}
