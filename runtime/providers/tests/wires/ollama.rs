//! Tests of Ollama's native API.

use insta::assert_json_snapshot;
use serde_json::json;
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, ToolChoice};
use toolcell_core::{Message, Part};
use toolcell_providers::ollama::{Chat, Ollama};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

fn model(server: &Server) -> Ollama {
    let mut chat = Chat::default();
    chat.keep_alive = Some("10m".into());
    Ollama::with(connection("llama3.2", server.url("")), chat).unwrap()
}

fn lines(lines: &[&str]) -> Reply {
    Reply::new(200, "application/x-ndjson", lines.join("\n") + "\n")
}

const HELLO: &[&str] = &[
    r#"{"model":"llama3.2","message":{"role":"assistant","content":"Grüß "},"done":false}"#,
    r#"{"model":"llama3.2","message":{"role":"assistant","content":"Gott"},"done":false}"#,
    r#"{"model":"llama3.2","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":5,"total_duration":1}"#,
];

#[tokio::test]
async fn text_is_streamed_by_line_and_usage_is_counted() {
    let server = Server::start([lines(HELLO).in_pieces(5)]).await;
    let (deltas, end) = play(&model(&server), hello()).await;
    let end = end.unwrap();
    assert_eq!(deltas, [Delta::Text("Grüß ".into()), Delta::Text("Gott".into())]);
    assert_eq!(end.parts, [text("Grüß Gott")]);
    assert_eq!(end.usage.map(|u| (u.input, u.output)), Some((26, 5)));
    assert_eq!(server.received()[0].line, "POST /api/chat HTTP/1.1");
}

#[tokio::test]
async fn reasoning_and_calls_are_received_and_sent_back() {
    let server = Server::start([
        lines(&[
            r#"{"message":{"role":"assistant","content":"","thinking":"Hm."},"done":false}"#,
            r#"{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"index":0,"name":"weather","arguments":{"city":"Rome"}}},{"function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},"done":false}"#,
            HELLO[2],
        ]),
        lines(HELLO),
    ])
    .await;
    let provider = model(&server);
    let end = play(&provider, hello()).await.1.unwrap();
    assert_eq!(
        calls(&end),
        [
            ("weather".to_owned(), r#"{"city":"Rome"}"#.to_owned()),
            ("weather".to_owned(), r#"{"city":"Oslo"}"#.to_owned())
        ]
    );
    let mut parts = end.parts;
    for (number, part) in parts.iter_mut().enumerate() {
        if let Part::Call(call) = part {
            call.id = format!("call_number_{number}");
        }
    }
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts },
        result("call_number_1", "weather", vec![], false),
        result("call_number_2", "weather", vec![], false),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["messages"][1],
        json!({
            "role": "assistant", "content": "", "thinking": "Hm.",
            "tool_calls": [
                {"id": "call_number_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}},
                {"id": "call_number_2", "function": {"index": 1, "name": "weather", "arguments": {"city": "Oslo"}}},
            ],
        })
    );
}

#[tokio::test]
async fn conversation_is_sent_with_pictures_and_context_length() {
    let server = Server::start([lines(HELLO)]).await;
    let mut request = rich(text(""));
    request.max_output_tokens = Some(100);
    request.temperature = Some(0.5);
    request.reasoning_effort = Some("high".into());
    play(&model(&server), request).await.1.unwrap();
    assert_json_snapshot!(server.body(), @r#"
    {
      "keep_alive": "10m",
      "messages": [
        {
          "content": "Be brief.",
          "role": "system"
        },
        {
          "content": "Where is this, and how is the weather there?\n[application/zip of 4 bytes, not supported by this model]\n[a: https://example.com/a (text/html)]",
          "images": [
            "cG5n"
          ],
          "role": "user"
        },
        {
          "content": "I look it up.",
          "role": "assistant",
          "tool_calls": [
            {
              "function": {
                "arguments": {
                  "city": "Paris"
                },
                "index": 0,
                "name": "weather"
              },
              "id": "call_paris_1"
            },
            {
              "function": {
                "arguments": {
                  "malformed_arguments": "{\"city\":"
                },
                "index": 1,
                "name": "weather"
              },
              "id": "call_rome_22"
            }
          ]
        },
        {
          "content": "18 °C\n[application/zip of 4 bytes, not supported by this model]",
          "images": [
            "anBn"
          ],
          "role": "tool",
          "tool_call_id": "call_paris_1",
          "tool_name": "weather"
        },
        {
          "content": "Error: no JSON",
          "role": "tool",
          "tool_call_id": "call_rome_22",
          "tool_name": "weather"
        },
        {
          "content": "Paris, 18 °C.",
          "role": "assistant"
        },
        {
          "content": "Thanks",
          "role": "user"
        }
      ],
      "model": "llama3.2",
      "options": {
        "num_ctx": 16384,
        "num_predict": 100,
        "temperature": 0.5
      },
      "stream": true,
      "think": "high",
      "tools": [
        {
          "function": {
            "description": "The weather in a city.",
            "name": "weather",
            "parameters": {
              "properties": {
                "city": {
                  "description": "Name of the city.",
                  "type": "string"
                },
                "unit": {
                  "enum": [
                    "c",
                    "f"
                  ],
                  "type": "string"
                }
              },
              "required": [
                "city"
              ],
              "type": "object"
            }
          },
          "type": "function"
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn no_tools_are_sent_if_calls_are_not_allowed() {
    let server = Server::start([lines(HELLO)]).await;
    let mut request = hello();
    request.tools = vec![weather()].into();
    request.tool_choice = ToolChoice::None;
    play(&model(&server), request).await.1.unwrap();
    assert_eq!(server.body().get("tools"), None);
}

#[tokio::test]
async fn request_is_repeated_without_thinking_if_unsupported() {
    let refused = r#"{"error":"\"llama3.2\" does not support thinking"}"#;
    let server = Server::start([Reply::json(400, refused), lines(HELLO), lines(HELLO)]).await;
    let provider = model(&server);
    let mut request = hello();
    request.reasoning_effort = Some("true".into());
    let (deltas, end) = play(&provider, request.clone()).await;
    assert!(end.is_ok());
    assert_eq!(retries(&deltas), 1);
    play(&provider, request).await.1.unwrap();
    let sent: Vec<_> = server
        .received()
        .iter()
        .map(|r| r.body.get("think").cloned())
        .collect();
    assert_eq!(sent, [Some(json!(true)), None, None]);
}

#[tokio::test]
async fn ollama_errors_are_reported() {
    let server = Server::start([lines(&[HELLO[0], r#"{"error":"model runner has stopped"}"#])]).await;
    let error = play(&model(&server), hello()).await.1.unwrap_err();
    assert_eq!(error.message, "model runner has stopped");

    let server = Server::start([Reply::json(404, r#"{"error":"model 'llama3.2' not found"}"#)]).await;
    let error = play(&model(&server), hello()).await.1.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ProviderErrorKind::InvalidRequest, "model 'llama3.2' not found")
    );

    let server = Server::start([lines(&HELLO[..2])]).await;
    let error = play(&model(&server), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Truncated);

    let server = Server::start([lines(&["{\"done\":", "x"])]).await;
    let error = play(&model(&server), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Protocol);
}

#[tokio::test]
async fn token_limit_is_reported() {
    let server = Server::start([lines(&[
        HELLO[0],
        r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"length"}"#,
    ])])
    .await;
    assert_eq!(
        play(&model(&server), hello()).await.1.unwrap().stop,
        StopReason::MaxTokens
    );
}
