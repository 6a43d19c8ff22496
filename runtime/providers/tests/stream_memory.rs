//! Memory use of a streamed answer, measured for the whole process; therefore the only test of this binary.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that panics fails")]

use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use toolcell_core::provider::{Delta, Request};
use toolcell_core::{Part, Provider};
use toolcell_providers::Connection;
use toolcell_providers::openai::OpenAi;

/// Size of the answer and of each delta, in bytes.
const ANSWER: usize = 8 << 20;
const DELTA: usize = 32;

/// Peak memory of the process since the last call, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    // 5 resets the peak (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Serves one answer in small deltas without holding it in memory.
async fn serve(listener: TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await.unwrap();
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let word = "x".repeat(DELTA);
    let delta = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n");
    let many = delta.repeat(64);
    for _ in 0..ANSWER / DELTA / 64 {
        stream.write_all(many.as_bytes()).await.unwrap();
    }
    let last =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    stream.write_all(last.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn memory_of_a_long_answer_is_a_small_multiple_of_its_size() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connection = Connection::new("m")
        .with_base_url(url)
        .with_key("sk-planted-0123456789");
    tokio::spawn(serve(listener));
    let provider = OpenAi::new(connection).unwrap();
    peak();
    let before = peak();
    let mut stream = provider.stream(Request::default());
    let mut read = 0;
    let completion = loop {
        match stream.next().await.unwrap().unwrap() {
            Delta::Text(text) => read += text.len(),
            Delta::Finished(completion) => break completion,
            other => panic!("{other:?}"),
        }
    };
    let cost = peak().saturating_sub(before);
    assert_eq!(read, ANSWER);
    assert!(matches!(&completion.parts[..], [Part::Text { text, .. }] if text.len() == ANSWER));
    println!("{} MiB for an answer of {} MiB", cost >> 20, ANSWER >> 20);
    assert!(cost < 3 * ANSWER, "{cost}");
}
