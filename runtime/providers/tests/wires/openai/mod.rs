//! Tests of Chat Completions.

mod answers;

use insta::assert_json_snapshot;
use serde_json::{Value, json};
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, ToolChoice, Usage};
use toolcell_core::{Message, Part, Schema, ToolName};
use toolcell_providers::openai::{ChatCompletions, OpenAi, ToolSchemas};
use toolcell_providers::{Connection, HttpOptions, SetupError};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

pub(crate) fn model(server: &Server, http: HttpOptions) -> OpenAi {
    let mut connection = connection("gpt-x", server.url("/v1")).with_key("sk-planted-secret");
    connection.http = http;
    OpenAi::new(connection).unwrap()
}

pub(crate) const HELLO: &[&str] = &[
    r#"{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Grüß "}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Gott 🦀"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}}}"#,
    "[DONE]",
];

#[tokio::test]
async fn text_is_streamed_and_usage_is_counted() {
    let server = Server::start([Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    let end = end.unwrap();
    assert_eq!(
        deltas,
        [Delta::Text("Grüß ".into()), Delta::Text("Gott 🦀".into())]
    );
    assert_eq!(end.parts, [text("Grüß Gott 🦀")]);
    assert_eq!(end.stop, StopReason::Complete);
    assert_eq!(
        end.usage,
        Some(Usage {
            input: 12,
            cache_read: 8,
            cache_write: 0,
            output: 5,
            reasoning: 2,
            ..Usage::default()
        })
    );
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(received.header("authorization"), Some("Bearer sk-planted-secret"));
    assert_eq!(received.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn byte_by_byte_stream_gives_the_same_answer() {
    let server = Server::start([Reply::events(HELLO).in_pieces(1)]).await;
    let (deltas, end) = play(&model(&server, http()), hello()).await;
    assert_eq!(end.unwrap().parts, [text("Grüß Gott 🦀")]);
    assert_eq!(shown(&deltas), "Grüß Gott 🦀");
}

#[tokio::test]
async fn minimal_request_has_no_optional_fields() {
    let server = Server::start([Reply::events(HELLO)]).await;
    play(&model(&server, http()), hello()).await.1.unwrap();
    assert_json_snapshot!(server.body(), @r#"
    {
      "messages": [
        {
          "content": "Hello",
          "role": "user"
        }
      ],
      "model": "gpt-x",
      "stream": true,
      "stream_options": {
        "include_usage": true
      }
    }
    "#);
}

#[tokio::test]
async fn conversation_is_sent_with_pictures_and_reasoning() {
    let server = Server::start([Reply::events(HELLO)]).await;
    let reasoning = Part::Reasoning {
        text: "Looks like Paris.".into(),
        opaque: json!({"openai_chat": {"field": "reasoning_content"}}),
    };
    let mut request = rich(reasoning);
    request.tool_choice = ToolChoice::Tool(ToolName::new("weather").unwrap());
    request.parallel_calls = Some(false);
    request.max_output_tokens = Some(100);
    request.temperature = Some(0.5);
    request.reasoning_effort = Some("low".into());
    request.session = Some("s-1".into());
    request.response_schema = Some(std::sync::Arc::new(
        Schema::parse(r#"{"type":"object"}"#).unwrap(),
    ));
    play(&model(&server, http()), request).await.1.unwrap();
    assert_json_snapshot!(server.body(), @r#"
    {
      "max_tokens": 100,
      "messages": [
        {
          "content": "Be brief.",
          "role": "system"
        },
        {
          "content": [
            {
              "text": "Where is this, and how is the weather there?",
              "type": "text"
            },
            {
              "image_url": {
                "url": "data:image/png;base64,cG5n"
              },
              "type": "image_url"
            },
            {
              "text": "[application/zip of 4 bytes, not supported by this model]",
              "type": "text"
            },
            {
              "text": "[a: https://example.com/a (text/html)]",
              "type": "text"
            }
          ],
          "role": "user"
        },
        {
          "content": "I look it up.",
          "reasoning_content": "Looks like Paris.",
          "role": "assistant",
          "tool_calls": [
            {
              "function": {
                "arguments": "{\"city\":\"Paris\"}",
                "name": "weather"
              },
              "id": "call_paris_1",
              "type": "function"
            },
            {
              "function": {
                "arguments": "{\"malformed_arguments\":\"{\\\"city\\\":\"}",
                "name": "weather"
              },
              "id": "call_rome_22",
              "type": "function"
            }
          ]
        },
        {
          "content": "18 °C\n[image/jpeg, shown in the next message]\n[application/zip of 4 bytes, not supported by this model]",
          "role": "tool",
          "tool_call_id": "call_paris_1"
        },
        {
          "content": "Error: no JSON",
          "role": "tool",
          "tool_call_id": "call_rome_22"
        },
        {
          "content": [
            {
              "text": "Picture from the result of `weather`:",
              "type": "text"
            },
            {
              "image_url": {
                "url": "data:image/jpeg;base64,anBn"
              },
              "type": "image_url"
            }
          ],
          "role": "user"
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
      "model": "gpt-x",
      "parallel_tool_calls": false,
      "reasoning_effort": "low",
      "response_format": {
        "json_schema": {
          "name": "answer",
          "schema": {
            "additionalProperties": false,
            "properties": {},
            "required": [],
            "type": "object"
          },
          "strict": true
        },
        "type": "json_schema"
      },
      "stream": true,
      "stream_options": {
        "include_usage": true
      },
      "temperature": 0.5,
      "tool_choice": {
        "function": {
          "name": "weather"
        },
        "type": "function"
      },
      "tools": [
        {
          "function": {
            "description": "The weather in a city.",
            "name": "weather",
            "parameters": {
              "additionalProperties": false,
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
async fn reasoning_is_sent_back_with_calls_in_its_original_field() {
    for field in ["reasoning_content", "reasoning"] {
        let server = Server::start([
            Reply::events(&[
                &format!(r#"{{"choices":[{{"delta":{{"{field}":"Let me "}}}}]}}"#),
                &format!(r#"{{"choices":[{{"delta":{{"{field}":"see."}}}}]}}"#),
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_aaaaaa","function":{"name":"weather","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
                "[DONE]",
            ]),
            Reply::events(HELLO),
        ])
        .await;
        let provider = model(&server, http());
        let (deltas, end) = play(&provider, hello()).await;
        assert_eq!(deltas[0], Delta::Reasoning("Let me ".into()));
        let again = request(vec![
            Message::user("Hello"),
            Message::Assistant {
                parts: end.unwrap().parts,
            },
            result("call_aaaaaa", "weather", vec![], false),
        ]);
        play(&provider, again).await.1.unwrap();
        let body = &server.received()[1].body;
        assert_eq!(body["messages"][1][field], "Let me see.");
    }
}

#[tokio::test]
async fn reasoning_details_are_sent_back_unchanged() {
    let server = Server::start([
        Reply::events(&[
            r#"{"choices":[{"delta":{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","index":0,"text":"a","signature":null}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","index":0,"text":"b","signature":"sig"}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","index":1,"data":"xyz"}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}"#,
        ]),
        Reply::events(HELLO),
    ])
    .await;
    let provider = model(&server, http());
    let parts = play(&provider, hello()).await.1.unwrap().parts;
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts },
        Message::user("More"),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["messages"][1],
        json!({
            "role": "assistant",
            "content": "ok",
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "sig"},
                {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
            ],
        })
    );
}

#[tokio::test]
async fn opaque_data_of_another_provider_is_not_sent() {
    let server = Server::start([Reply::events(HELLO)]).await;
    let reasoning = Part::Reasoning {
        text: "hidden".into(),
        opaque: json!({"anthropic": {"signature": "sig"}}),
    };
    play(&model(&server, http()), rich(reasoning)).await.1.unwrap();
    let sent = server.body().to_string();
    assert!(!sent.contains("hidden") && !sent.contains("sig\""), "{sent}");
}

#[tokio::test]
async fn refused_fields_are_omitted_from_then_on() {
    let refuses = |name: &str| {
        Reply::json(
            400,
            json!({"error": {"message": format!("Unknown parameter: '{name}'")}}).to_string(),
        )
    };
    let server = Server::start([
        refuses("stream_options"),
        refuses("parallel_tool_calls"),
        Reply::events(HELLO),
        Reply::events(HELLO),
    ])
    .await;
    let provider = model(&server, http());
    let mut request = hello();
    request.tools = vec![weather()].into();
    request.parallel_calls = Some(true);
    let (deltas, end) = play(&provider, request.clone()).await;
    assert!(end.is_ok());
    assert_eq!((retries(&deltas), notices(&deltas).len()), (0, 2), "{deltas:?}");
    play(&provider, request).await.1.unwrap();
    let sent: Vec<_> = server
        .received()
        .iter()
        .map(|r| {
            (
                r.body.get("stream_options").is_some(),
                r.body.get("parallel_tool_calls").is_some(),
            )
        })
        .collect();
    assert_eq!(
        sent,
        [(true, true), (false, true), (false, false), (false, false)]
    );
}

#[tokio::test]
async fn refusal_of_an_unsent_field_is_an_error() {
    let server = Server::start([Reply::json(
        400,
        r#"{"error":{"message":"temperature is wrong"}}"#,
    )])
    .await;
    let error = play(&model(&server, http()), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::InvalidRequest);
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn token_limit_is_sent_under_the_required_name() {
    let refusal = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let refusal =
        json!({"error": {"message": refusal, "param": "max_tokens", "code": "unsupported_parameter"}})
            .to_string();
    let server = Server::start([Reply::json(400, refusal), Reply::events(HELLO)]).await;
    let mut request = hello();
    request.max_output_tokens = Some(9);
    assert!(play(&model(&server, http()), request).await.1.is_ok());
    let sent: Vec<_> = server
        .received()
        .iter()
        .map(|r| {
            (
                r.body["max_tokens"].as_u64(),
                r.body["max_completion_tokens"].as_u64(),
            )
        })
        .collect();
    assert_eq!(sent, [(Some(9), None), (None, Some(9))]);
}

#[tokio::test]
async fn strict_schemas_are_sent_and_arguments_converted_back() {
    let server = Server::start([Reply::events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_aaaaaa","function":{"name":"weather","arguments":"{\"city\":\"Rome\",\"unit\":null}"}}]},"finish_reason":"tool_calls"}]}"#,
    ])])
    .await;
    let mut strict = ChatCompletions::default();
    strict.tool_schemas = ToolSchemas::Strict;
    let provider = OpenAi::with(connection("gpt-x", server.url("/v1")), strict).unwrap();
    let mut request = hello();
    request.tools = vec![weather()].into();
    let end = play(&provider, request).await.1.unwrap();
    assert_eq!(
        calls(&end),
        [("weather".to_owned(), r#"{"city":"Rome"}"#.to_owned())]
    );
    let function = &server.body()["tools"][0]["function"];
    assert_eq!(function["strict"], true);
    assert_eq!(function["parameters"]["required"], json!(["city", "unit"]));
}

#[tokio::test]
async fn invalid_identifier_is_repaired_in_call_and_result() {
    let server = Server::start([Reply::events(HELLO)]).await;
    let long = format!("chatcmpl-tool-{}", "a".repeat(40));
    let request = request(vec![
        Message::user("?"),
        Message::Assistant {
            parts: vec![call(&long, "weather", "{}")],
        },
        result(&long, "weather", vec![], false),
    ]);
    play(&model(&server, http()), request).await.1.unwrap();
    let messages = &server.body()["messages"];
    let id = messages[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() <= 40, "{id}");
    assert_eq!(messages[2]["tool_call_id"], id);
}

#[test]
fn missing_key_is_refused_only_if_required() {
    let error = OpenAi::new(Connection::new("gpt-x")).unwrap_err();
    assert!(matches!(error, SetupError::MissingKey { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "no API key is set for the provider `openai`, and `api.openai.com` requires one"
    );
    let local = Connection::new("llama3.2").with_base_url("http://localhost:11434/v1");
    assert!(OpenAi::new(local).is_ok());
}

#[tokio::test]
async fn equal_requests_have_equal_bytes() {
    let server = Server::start([Reply::events(HELLO), Reply::events(HELLO)]).await;
    let provider = model(&server, http());
    for _ in 0..2 {
        play(&provider, rich(text("plain"))).await.1.unwrap();
    }
    let bodies: Vec<Value> = server.received().into_iter().map(|r| r.body).collect();
    assert_eq!(bodies[0].to_string(), bodies[1].to_string());
}
