//! Clients beside each other.

use super::*;
use toolcell_core::ToolError;
use toolcell_http::DRAIN_TIME;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_the_same_ids_see_their_own_answers() {
    let host = Host::start();
    let (address, served) = host.listen().await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..64 {
        clients.spawn(async move {
            for round in 0..4 {
                let own = format!("{client} {round}");
                let params = json!({"name": "echo", "arguments": {"own": own}});
                let (headers, body) = current(1, "tools/call", params);
                let host = address.to_string();
                let mut all = vec![("host", host.as_str()), DEFAULTS[1], DEFAULTS[2]];
                all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
                let stream = TcpStream::connect(address).await.unwrap();
                let body = body.to_string().into_bytes();
                let answer = read(exchange(stream, "POST", "/mcp", &all, body).await)
                    .await
                    .json();
                assert_eq!(answer["id"], 1);
                assert_eq!(answer["result"]["structuredContent"]["own"], own);
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    host.stop.cancel();
    served.await.unwrap().unwrap();
    assert_eq!(host.seen.finished().len(), 256);
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_delays_no_other() {
    let host = Host::start();
    let (headers, body) = current(1, "tools/call", json!({"name": "large"}));
    let mut silent = Vec::new();
    for _ in 0..crate::MAX_RUNNING + 8 {
        let mut stream = host.open();
        let mut text = format!("POST /mcp HTTP/1.1\r\nhost: {ADDRESS}\r\ncontent-type: application/json\r\n");
        for (name, value) in &headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = body.to_string();
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    idle().await;
    assert_eq!(host.seen.finished().len(), silent.len());
    let begun = tokio::time::Instant::now();
    let answer = host.current(1, "tools/call", json!({"name": "echo"})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // They are left after a time, and their room is free.
    tokio::time::sleep(toolcell_http::MAX_WRITE_STALL + Duration::from_millis(10)).await;
    let metrics = host.server.0.metrics.render(0);
    assert!(metrics.contains("toolcell_connections 0\n"), "{metrics}");
    assert!(host.server.0.is_idle());
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_for_room_are_counted_with_their_memory() {
    let host = Host::start();
    let taken = host.server.0.fill();
    let many: Vec<_> = (0..60_000).map(|_| json!({"": 0})).collect();
    let ask = |id| host.current(id, "tools/list", json!({"x": many}));
    let first = ask(1);
    let mut first = std::pin::pin!(first);
    let waits = tokio::time::timeout(Duration::from_millis(10), first.as_mut()).await;
    assert!(waits.is_err(), "there is no room for the answer");
    let mut refused = 0;
    let mut waiting = Vec::new();
    for id in 2..8 {
        let mut one = Box::pin(ask(id));
        match tokio::time::timeout(Duration::from_millis(10), one.as_mut()).await {
            Ok(answer) => {
                assert_eq!(answer.status, 429);
                refused += 1;
            }
            Err(_) => waiting.push(one),
        }
    }
    assert!(
        refused > 0 && waiting.len() < 4,
        "{refused} refused, {} wait",
        waiting.len()
    );
    drop(taken);
    assert_eq!(first.await.status, 200);
    for one in waiting {
        assert_eq!(one.await.status, 200);
    }
    assert_eq!(ask(9).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn closed_connection_cancels_its_call() {
    let host = Host::start();
    let wait = || {
        let (headers, body) = current(
            1,
            "tools/call",
            json!({"name": "wait", "_meta": {"progressToken": 1}}),
        );
        let all: Vec<_> = DEFAULTS
            .map(|(name, value)| (name, value.to_owned()))
            .into_iter()
            .chain(headers)
            .collect();
        (all, body.to_string().into_bytes())
    };
    let (all, body) = wait();
    let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Before the answer begins, and while it is a stream of events.
    for begins in [false, true] {
        let sent = exchange(host.open(), "POST", "/mcp", &all, body.clone());
        if begins {
            let mut response = sent.await;
            assert_eq!(next(response.body_mut()).await.unwrap(), ":\n\n");
            // A comment follows after each time without an event.
            assert_eq!(next(response.body_mut()).await.unwrap(), ":\n\n");
        } else {
            assert!(tokio::time::timeout(Duration::from_secs(1), sent).await.is_err());
        }
        idle().await;
        let finished = host.seen.finished();
        assert_eq!(finished.len(), 1 + usize::from(begins));
        let (_, result) = finished.last().unwrap();
        assert_eq!(result.error, Some(ToolError::Cancelled));
        assert_eq!(result.receipt.as_ref().unwrap().fuel, 5);
    }
    assert!(host.server.0.is_idle());
}

#[tokio::test]
async fn closed_connection_with_unread_bytes_cancels_its_call() {
    let host = Host::start();
    let (address, _served) = host.listen().await;
    for behind in [&b""[..], b"G", &[b'x'; 32 << 10]] {
        let (headers, body) = current(1, "tools/call", json!({"name": "wait"}));
        let body = body.to_string();
        let mut text = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
        for (name, value) in headers.iter().chain([&("accept", DEFAULTS[2].1.to_owned())]) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        let before = host.seen.finished().len();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        while host.server.0.metrics.render(0).contains("toolcell_cells 0") {
            tokio::task::yield_now().await;
        }
        stream.write_all(behind).await.unwrap();
        drop(stream);
        while host.seen.finished().len() == before {
            tokio::task::yield_now().await;
        }
        let finished = host.seen.finished();
        assert_eq!(finished.last().unwrap().1.error, Some(ToolError::Cancelled));
    }
}

#[tokio::test]
async fn clients_have_equal_shares_of_the_running_calls() {
    let gate = Arc::new(Semaphore::new(0));
    let seen = Arc::new(Seen::default());
    let metrics = Arc::new(Metrics::default());
    let tokens: Vec<_> = ["a", "b", "c"].map(token).into_iter().collect();
    let (names, clients): (Vec<_>, Vec<_>) = tokens
        .into_iter()
        .map(|(name, token)| {
            (
                name,
                (token, server_of(tools(&gate), metrics.observing(seen.clone()))),
            )
        })
        .unzip();
    let mut host = Host::start();
    host.server = Arc::new(HttpServer::new(
        Access::of_tokens(clients),
        Reached::default(),
        metrics.clone(),
    ));
    let share = crate::MAX_HTTP_RUNNING / 3;
    let (headers, body) = current(1, "tools/call", json!({"name": "wait"}));
    let all: Vec<_> = [("authorization", names[0].as_str())]
        .into_iter()
        .chain(headers.iter().map(|(name, value)| (*name, value.as_str())))
        .collect();
    let mut calls: Vec<_> = (0..share + 4).map(|_| Box::pin(host.post(&all, &body))).collect();
    let all_sent = futures_util::future::join_all(calls.iter_mut());
    let waits = async {
        let expected = [
            format!("toolcell_calls_in_progress {}\n", share + 4),
            format!("toolcell_cells {share}\n"),
        ];
        while !expected.iter().all(|line| metrics.render(0).contains(line)) {
            tokio::task::yield_now().await;
        }
        // No further one begins.
        idle().await;
        assert!(metrics.render(0).contains(&expected[1]), "{}", metrics.render(0));
        gate.add_permits(share + 4);
    };
    let (answers, ()) = tokio::join!(all_sent, waits);
    assert!(answers.iter().all(|answer| answer.status == 200));
}

#[tokio::test(start_paused = true)]
async fn ended_session_cancels_its_calls() {
    let host = Host::start();
    let id = host.session("2025-11-25").await;
    let session = [("mcp-session-id", id.as_str())];
    let waits = host.post(&session, request(1, "tools/call", json!({"name": "wait"})));
    let ends = async {
        idle().await;
        host.send("DELETE", "/mcp", &[("host", ADDRESS), session[0]], Vec::new())
            .await
    };
    let (waited, ended) = tokio::join!(waits, ends);
    assert_eq!(ended.status, 204);
    assert_eq!(waited.json()["result"]["isError"], true);
    assert_eq!(host.seen.finished()[0].1.error, Some(ToolError::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_after_the_stop_for_a_time() {
    let host = Host::start();
    let calls = || host.current(1, "tools/call", json!({"name": "wait"}));
    let stops = async {
        idle().await;
        host.stop.cancel();
        idle().await;
        host.gate.add_permits(1);
    };
    let (answer, ()) = tokio::join!(calls(), stops);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "waited");

    let host = Host::start();
    let (address, served) = host.listen().await;
    let (headers, body) = current(1, "tools/call", json!({"name": "wait"}));
    let own = address.to_string();
    let mut all = vec![("host", own.as_str()), DEFAULTS[1], DEFAULTS[2]];
    all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
    let stream = TcpStream::connect(address).await.unwrap();
    let sent =
        async { read(exchange(stream, "POST", "/mcp", &all, body.to_string().into_bytes()).await).await };
    let ends = async {
        while host.server.0.metrics.render(0).contains("toolcell_cells 0") {
            tokio::task::yield_now().await;
        }
        let begun = tokio::time::Instant::now();
        host.stop.cancel();
        served.await.unwrap().unwrap();
        assert!(begun.elapsed() >= DRAIN_TIME);
        assert_eq!(host.seen.finished()[0].1.error, Some(ToolError::Cancelled));
    };
    let (answer, ()) = tokio::join!(sent, ends);
    // The client is told.
    assert_eq!(answer.json()["result"]["isError"], true);
}

#[tokio::test]
async fn token_selects_the_client_and_its_sessions() {
    let ((of_a, a), (of_b, b)) = (token("a"), token("b"));
    let seen = [Arc::new(Seen::default()), Arc::new(Seen::default())];
    let gate = Arc::new(Semaphore::new(0));
    let clients = vec![
        (a, server_of(tools(&gate), seen[0].clone())),
        (b, server_of(tools(&gate), seen[1].clone())),
    ];
    let mut host = Host::start();
    host.server = Arc::new(HttpServer::new(
        Access::of_tokens(clients),
        Reached::default(),
        Arc::default(),
    ));
    let wrong = format!("{of_a}x");
    for headers in [
        &[][..],
        &[("authorization", wrong.as_str())],
        &[("authorization", &of_a), ("authorization", &of_b)],
    ] {
        assert_eq!(host.post(headers, initialize("2025-11-25")).await.status, 401);
        let all: Vec<_> = [("host", ADDRESS)]
            .into_iter()
            .chain(headers.iter().copied())
            .collect();
        assert_eq!(host.send("GET", "/metrics", &all, Vec::new()).await.status, 401);
        assert_eq!(host.send("DELETE", "/mcp", &all, Vec::new()).await.status, 401);
    }
    assert_eq!(host.get("/healthz").await.status, 200);
    let begun = host
        .post(&[("authorization", &of_a)], initialize("2025-11-25"))
        .await;
    let id = begun.session.unwrap();
    let call = || request(1, "tools/call", json!({"name": "echo"}));
    let of = |authorization| [("authorization", authorization), ("mcp-session-id", id.as_str())];
    assert_eq!(host.post(&of(&of_a), call()).await.status, 200);
    assert_eq!(host.post(&of(&of_b), call()).await.status, 404);
    assert_eq!((seen[0].finished().len(), seen[1].finished().len()), (1, 0));
}
