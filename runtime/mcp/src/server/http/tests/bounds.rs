//! Limits of requests and connections.

use super::*;
use toolcell_http::{BODY_TIME, HEADER_TIME, MAX_HEADER_BYTES, MAX_HEADERS};

use crate::server::http::{MAX_CONNECTIONS, MAX_REQUESTS};

fn head(extra: &str) -> String {
    format!("GET /healthz HTTP/1.1\r\nhost: {ADDRESS}\r\nconnection: close\r\n{extra}\r\n")
}

#[tokio::test]
async fn headers_are_read_up_to_their_bytes_and_number() {
    let host = Host::start();
    let filled = |bytes: usize| {
        let rest = bytes - head("x: \r\n").len();
        head(&format!("x: {}\r\n", "x".repeat(rest)))
    };
    assert_eq!(filled(MAX_HEADER_BYTES).len(), MAX_HEADER_BYTES);
    for (text, status) in [
        (filled(MAX_HEADER_BYTES), "200"),
        (filled(MAX_HEADER_BYTES + 1), "431"),
        (head(&"x: y\r\n".repeat(MAX_HEADERS - 2)), "200"),
        (head(&"x: y\r\n".repeat(MAX_HEADERS - 1)), "431"),
    ] {
        let answer = raw(host.open(), text.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{} {answer}",
            text.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn incomplete_headers_and_bodies_are_left_after_a_time() {
    let host = Host::start();
    let begun = tokio::time::Instant::now();
    assert_eq!(raw(host.open(), b"GET /healthz HTTP/1.1\r\n").await, "");
    assert_eq!(begun.elapsed(), HEADER_TIME);
    let begun = tokio::time::Instant::now();
    assert_eq!(raw(host.open(), b"").await, "");
    assert_eq!(begun.elapsed(), HEADER_TIME);
    let begun = tokio::time::Instant::now();
    let body = format!(
        "POST /mcp HTTP/1.1\r\nhost: {ADDRESS}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\
         connection: close\r\n\r\n{{"
    );
    let answer = raw(host.open(), body.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(begun.elapsed(), BODY_TIME);
}

#[tokio::test]
async fn requests_of_a_client_are_limited_in_number() {
    let host = Host::start();
    let mut waiting = tokio::task::JoinSet::new();
    for id in 0..MAX_REQUESTS {
        let (headers, body) = current(id, "tools/call", json!({"name": "wait"}));
        let all: Vec<_> = DEFAULTS
            .map(|(name, value)| (name, value.to_owned()))
            .into_iter()
            .chain(headers)
            .collect();
        let stream = host.open();
        waiting.spawn(async move {
            let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
            read(exchange(stream, "POST", "/mcp", &all, body.to_string().into_bytes()).await).await
        });
    }
    let in_progress = format!("toolcell_calls_in_progress {MAX_REQUESTS}\n");
    while !host.server.0.metrics.render(0).contains(&in_progress) {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        host.current(1, "tools/list", json!({})).await.code(),
        (429, -32600)
    );
    host.gate.add_permits(MAX_REQUESTS);
    while let Some(answer) = waiting.join_next().await {
        assert_eq!(answer.unwrap().status, 200);
    }
    while !host.server.0.is_idle() {
        tokio::task::yield_now().await;
    }
    assert_eq!(host.current(1, "tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn bodies_of_a_client_are_limited_in_total_size() {
    let host = Host::start();
    let others = host.server.0.fill_messages(10);
    for (length, status) in [(10, 400), (11, 429)] {
        assert_eq!(
            host.post(&[], "x".repeat(length)).await.status,
            status,
            "{length}"
        );
    }
    drop(others);
    assert_eq!(host.post(&[], "x".repeat(11)).await.status, 400);
    assert!(host.server.0.is_idle());
}

#[tokio::test]
async fn silent_connections_leave_their_places() {
    let host = Host::start();
    let (address, _served) = host.listen().await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // The oldest has ended.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn connections_are_limited_in_number() {
    let host = Host::start();
    let (address, _served) = host.listen().await;
    let mut open = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.read_u8().await.unwrap();
        open.push(stream);
    }
    let mut beyond = TcpStream::connect(address).await.unwrap();
    let mut answer = String::new();
    beyond.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    drop(open);
    loop {
        let own = address.to_string();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let text = format!("GET /healthz HTTP/1.1\r\nhost: {own}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(text.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        if answer.starts_with("HTTP/1.1 200") {
            return;
        }
    }
}
