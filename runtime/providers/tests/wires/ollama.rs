//! Tests of Ollama's native API.

use insta::assert_json_snapshot;
use serde_json::json;
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, ToolChoice};
use toolcell_core::{Blob, Content, Message, Part};
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
      "shift": false,
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
      ],
      "truncate": false
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
    assert_eq!(notices(&deltas).len(), 1);
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

/// A prompt of this many tokens, as they are estimated.
fn long(tokens: usize) -> toolcell_core::provider::Request {
    request(vec![Message::user("x".repeat(tokens * 4))])
}

#[tokio::test]
async fn context_follows_conversation_and_model() {
    let shown = Reply::json(
        200,
        r#"{"model_info":{"general.x":1,"qwen3.context_length":40960}}"#,
    );
    let server = Server::start([lines(HELLO), shown, lines(HELLO), lines(HELLO)]).await;
    let provider = Ollama::new(connection("m", server.url(""))).unwrap();
    for tokens in [100, 20_000, 100] {
        play(&provider, long(tokens)).await.1.unwrap();
    }
    let error = play(&provider, long(41_000)).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::ContextLength);
    assert!(error.message.contains("num_ctx"), "{}", error.message);
    let sent = server.received();
    let lines: Vec<&str> = sent.iter().map(|r| r.line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(lines, ["/api/chat", "/api/show", "/api/chat", "/api/chat"]);
    let lengths: Vec<_> = sent
        .iter()
        .map(|r| r.body.pointer("/options/num_ctx").cloned())
        .collect();
    assert_eq!(
        lengths,
        [
            Some(json!(16_384)),
            None,
            Some(json!(32_768)),
            Some(json!(32_768))
        ]
    );
    assert_eq!(sent[0].body["truncate"], false);
    assert_eq!(sent[0].body["shift"], false);
}

#[tokio::test]
async fn context_grows_after_a_refusal_up_to_its_limit() {
    let refusal = Reply::json(400, r#"{"error":"the input length exceeds the context length"}"#);
    let server = Server::start([refusal.clone(), lines(HELLO), lines(HELLO)]).await;
    let provider = Ollama::new(connection("m", server.url(""))).unwrap();
    for _ in 0..2 {
        let (deltas, end) = play(&provider, hello()).await;
        assert!(end.is_ok() && notices(&deltas).is_empty() && retries(&deltas) == 0);
    }
    let lengths: Vec<_> = server
        .received()
        .iter()
        .map(|r| r.body["options"]["num_ctx"].as_u64())
        .collect();
    assert_eq!(lengths, [Some(16_384), Some(32_768), Some(32_768)]);

    let server = Server::start(vec![refusal.clone(); 9]).await;
    let provider = Ollama::new(connection("m", server.url(""))).unwrap();
    let error = play(&provider, hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::ContextLength);
    let longest = server.received().last().unwrap().body["options"]["num_ctx"].as_u64();
    assert_eq!((server.received().len(), longest), (4, Some(131_072)));

    // A configured length is not changed.
    let server = Server::start([refusal.clone(), refusal]).await;
    let mut chat = Chat::default();
    chat.context = Some(8_192);
    let provider = Ollama::with(connection("m", server.url("")), chat).unwrap();
    assert!(play(&provider, hello()).await.1.is_err());
    assert!(play(&provider, long(8_193)).await.1.is_err());
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn unknown_limit_of_the_model_is_no_error() {
    for reply in [Reply::json(404, r#"{"error":"no"}"#), Reply::json(200, "no JSON")] {
        let server = Server::start([reply, lines(HELLO), lines(HELLO)]).await;
        let provider = Ollama::new(connection("m", server.url(""))).unwrap();
        for _ in 0..2 {
            assert!(play(&provider, long(20_000)).await.1.is_ok());
        }
        // It is asked for once.
        assert_eq!(server.received().len(), 3);
    }
}

fn notices(deltas: &[Delta]) -> Vec<&str> {
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::Notice(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn prompt_that_fills_the_context_is_probably_cut() {
    for (count, is_told) in [(4_096, true), (4_095, false)] {
        let last = format!(
            r#"{{"message":{{"role":"assistant","content":"Hi"}},"done":true,"prompt_eval_count":{count},"eval_count":5}}"#
        );
        let server = Server::start([lines(&[&last])]).await;
        let mut chat = Chat::default();
        chat.context = Some(4_096);
        let model = Ollama::with(connection("llama3.2", server.url("")), chat).unwrap();
        let (deltas, end) = play(&model, hello()).await;
        end.unwrap();
        let told = notices(&deltas);
        assert_eq!(told.len(), usize::from(is_told), "{count}: {told:?}");
        assert!(
            told.iter()
                .all(|told| told.contains("the prompt filled the context of 4096 tokens")),
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn file_that_the_api_has_no_form_for_is_named() {
    let blob = |media_type: &str| {
        Content::Blob(Blob {
            media_type: media_type.into(),
            data: b"%PDF-".to_vec(),
        })
    };
    let server = Server::start([lines(HELLO), lines(HELLO), lines(HELLO)]).await;
    let provider = model(&server);
    let with = |content: Vec<Content>| Message::User { content };
    let pdf = || with(vec![Content::text("Read it"), blob("application/pdf")]);
    let (deltas, _) = play(&provider, request(vec![pdf()])).await;
    assert_eq!(
        notices(&deltas),
        [
            "ollama: 1 file is not sent, because this API takes no application/pdf; the model is told only type and size"
        ]
    );
    let sent = server.received()[0].body["messages"][0]["content"].to_string();
    assert!(sent.contains("application/pdf of 5 bytes"), "{sent}");

    // Told once: not again with the next request, and not about a picture.
    let answer = Message::Assistant {
        parts: vec![text("Hi")],
    };
    let next = request(vec![pdf(), answer, Message::user("And now?")]);
    assert_eq!(notices(&play(&provider, next).await.0), Vec::<&str>::new());
    let picture = request(vec![with(vec![blob("image/png")])]);
    assert_eq!(notices(&play(&provider, picture).await.0), Vec::<&str>::new());
}
