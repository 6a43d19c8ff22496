//! A model server on loopback that replays responses, one per request, and records the requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A server that runs until the test ends.
pub(crate) struct ModelServer {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A recorded request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Request line and headers.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// A response to replay.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    status: u16,
    media_type: &'static str,
    body: String,
}

impl Answer {
    pub(crate) fn error(status: u16, message: &str) -> Self {
        Self {
            status,
            media_type: "application/json",
            body: json!({ "error": { "message": message } }).to_string(),
        }
    }

    /// A JSON value that is not streamed.
    pub(crate) fn json(value: &Value) -> Self {
        Self {
            status: 200,
            media_type: "application/json",
            body: value.to_string(),
        }
    }

    pub(crate) fn events(events: &[Value]) -> Self {
        Self {
            status: 200,
            media_type: "text/event-stream",
            body: events.iter().map(|event| format!("data: {event}\n\n")).collect(),
        }
    }

    /// A text, streamed as in Chat Completions.
    pub(crate) fn chat(text: &str) -> Self {
        let mut answer = Self::events(&[
            json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ]);
        answer.body.push_str("data: [DONE]\n\n");
        answer
    }

    /// Parts of an answer, streamed as in `generateContent`.
    pub(crate) fn gemini_parts(parts: &Value) -> Self {
        Self::events(&[
            json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}),
        ])
    }

    /// A text, streamed as in `generateContent`.
    pub(crate) fn gemini(text: &str) -> Self {
        Self::gemini_parts(&json!([{ "text": text }]))
    }
}

impl ModelServer {
    /// Starts a server with these responses; the last one is repeated.
    pub(crate) fn playing(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let kept = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                        break;
                    }
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let number = {
                    let mut kept = kept.lock().unwrap();
                    kept.push(Request {
                        head,
                        body: serde_json::from_slice(&body).unwrap_or_default(),
                    });
                    kept.len() - 1
                };
                let answer = answers.get(number).or(answers.last()).unwrap();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {} So\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{}",
                    answer.status,
                    answer.media_type,
                    answer.body.len(),
                    answer.body
                );
            }
        });
        Self { address, requests }
    }

    /// Returns the URL of a path on this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}
