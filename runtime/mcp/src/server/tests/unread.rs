//! Clients that do not read what is sent to them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;
use toolcell_core::ToolError;

use super::{code, settle};
use crate::server::testing::Client;
use crate::{
    BATCH_PART_BYTES, MAX_BATCHES, MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, MAX_RUNNING, MAX_STALL,
    MAX_UNREAD_BYTES,
};

/// Waits until nothing happens any more: the clock is paused, and moves only then.
async fn idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn unread_results_keep_further_calls_from_running() {
    let calls = MAX_RUNNING + 4;
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    for id in 0..calls {
        client.call(id, "large", json!({})).await;
    }
    idle().await;
    assert_eq!(client.seen.finished().len(), MAX_RUNNING);
    let mut answered: Vec<u64> = Vec::new();
    for _ in 0..calls {
        answered.push(client.next().await["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    let all = 0..u64::try_from(calls).unwrap();
    assert_eq!(answered, all.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn calls_count_until_the_client_reads_their_results() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    // The first fills the pipe to the client, so that the others are not written.
    client.call("large", "large", json!({})).await;
    idle().await;
    for id in 1..MAX_IN_FLIGHT {
        client.call(id, "echo", json!({})).await;
        idle().await;
    }
    assert_eq!(client.seen.finished().len(), MAX_RUNNING);
    client.call("beyond", "echo", json!({})).await;
    let mut refused = Vec::new();
    for _ in 0..=MAX_IN_FLIGHT {
        let answer = client.next().await;
        if answer.get("error").is_some() {
            refused.push(answer["id"].clone());
        }
    }
    assert_eq!(refused, ["beyond"]);
    client.call("after", "echo", json!({})).await;
    assert_eq!(client.next().await["id"], "after");
}

#[tokio::test(start_paused = true)]
async fn unread_results_delay_neither_cancellation_nor_the_end() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    client.call("waits", "wait", json!({})).await;
    for id in 0..2 * MAX_RUNNING {
        client.call(id, "large", json!({})).await;
    }
    idle().await;
    let ended = client.seen.finished().len();
    assert_eq!(ended, MAX_RUNNING - 1);
    client
        .notify("notifications/cancelled", json!({"requestId": "waits"}))
        .await;
    idle().await;
    // Its permit goes to the next.
    let finished = client.seen.finished();
    assert_eq!(finished.len(), ended + 2);
    assert_eq!(finished[ended].1.error, Some(ToolError::Cancelled));
    let begun = tokio::time::Instant::now();
    client.end_unread().await;
    assert!(begun.elapsed() < MAX_STALL);
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_gives_its_unread_result_back() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    for id in 0..2 * MAX_RUNNING {
        client.call(id, "large", json!({})).await;
    }
    idle().await;
    assert_eq!(client.seen.finished().len(), MAX_RUNNING);
    // The last of those that ended found no room for their results.
    client
        .notify("notifications/cancelled", json!({"requestId": MAX_RUNNING - 1}))
        .await;
    idle().await;
    assert_eq!(client.seen.finished().len(), MAX_RUNNING + 1);
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_is_left_after_a_time() {
    let (client, server) = tokio::io::duplex(16);
    let (mut writer, input) = tokio::io::duplex(1024);
    let served = tokio::spawn(async move {
        crate::server::testing::server()
            .serve(input, server, &CancellationToken::new())
            .await
    });
    let id = "x".repeat(1 << 20);
    let ping = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"ping\"}}\n");
    let begun = tokio::time::Instant::now();
    for _ in 0..=MAX_UNREAD_BYTES / id.len() {
        // The last is not read any more.
        let _ = writer.write_all(ping.as_bytes()).await;
    }
    let error = served.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("the client read nothing for 60 s"));
    assert!(begun.elapsed() >= MAX_STALL);
    drop((client, writer));
}

fn call(id: impl Into<Value>, tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {"name": tool}})
}

#[tokio::test]
async fn answers_of_a_batch_do_not_wait_for_its_last_call() {
    let mut client = Client::start();
    client.initialize("2025-03-26").await;
    let mut batch = vec![call("last", "wait")];
    batch.extend((0..4).map(|id| call(id, "large")));
    client.send(Value::Array(batch)).await;
    for _ in 0..4 {
        let part = client.next().await;
        assert_eq!(part.as_array().unwrap().len(), 1);
        assert!(part.to_string().len() > BATCH_PART_BYTES);
    }
    client.gate.add_permits(1);
    assert_eq!(client.next().await[0]["id"], "last");
}

#[tokio::test]
async fn open_batches_are_refused_beyond_their_number() {
    let mut client = Client::start();
    client.initialize("2025-03-26").await;
    for id in 0..MAX_BATCHES {
        client.send(json!([call(id, "wait")])).await;
    }
    client.send(json!([call("beyond", "wait")])).await;
    let refused = client.next().await;
    assert_eq!((code(&refused), &refused["id"]), (-32000, &Value::Null));
    client.gate.add_permits(MAX_BATCHES);
    for _ in 0..MAX_BATCHES {
        assert_eq!(client.next().await.as_array().unwrap().len(), 1);
    }
    settle(&mut client).await;
    client.send(json!([call("after", "echo")])).await;
    assert_eq!(client.next().await[0]["id"], "after");
}

#[tokio::test]
async fn waiting_arguments_count_with_their_memory_when_parsed() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    // A third of a megabyte of text, of which each object takes several hundred bytes.
    let many: Vec<Value> = (0..MAX_IN_FLIGHT_BYTES / 2000).map(|_| json!({"": 0})).collect();
    for id in 0..2 {
        client.call(id, "wait", json!({"a": many})).await;
    }
    client.call("beyond", "wait", json!({"a": many})).await;
    let mut refused = client.next().await;
    assert_eq!((code(&refused), &refused["id"]), (-32000, &json!("beyond")));
    client.call("small", "echo", json!({})).await;
    assert_eq!(client.next().await["id"], "small");
    client.gate.add_permits(1);
    refused = client.next().await;
    assert_eq!(refused["result"]["content"][0]["text"], "waited");
}

#[tokio::test]
async fn call_cancelled_before_it_runs_is_told_without_effects() {
    let mut client = Client::start();
    client.initialize("2025-11-25").await;
    for id in 0..=MAX_RUNNING {
        client.call(id, "wait", json!({})).await;
    }
    settle(&mut client).await;
    let (rest, seen) = client.finish().await;
    let not_run: Vec<bool> = seen.finished().iter().map(|(_, result)| result.not_run).collect();
    assert_eq!(not_run.iter().filter(|not_run| **not_run).count(), 1);
    let of_last = rest.iter().find(|answer| answer["id"] == MAX_RUNNING).unwrap();
    assert_eq!(
        of_last["result"]["content"][0]["text"],
        "Error: the call was cancelled before it began; nothing was done."
    );
}
