//! Tests of Anthropic Messages.

mod answers;

use insta::assert_json_snapshot;
use serde_json::{Value, json};
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, ToolChoice, Usage};
use toolcell_core::{Message, Part, Schema, ToolName};
use toolcell_providers::anthropic::{Anthropic, CacheTime, Messages};
use toolcell_providers::{Connection, SetupError};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

fn at(server: &Server) -> Connection {
    connection("model-x", server.url("")).with_key("sk-ant-planted")
}

fn model(server: &Server) -> Anthropic {
    Anthropic::new(at(server)).unwrap()
}

/// Named events as the API sends them.
fn events(events: &[&str]) -> Reply {
    let body: String = events
        .iter()
        .map(|data| {
            let kind: Value = serde_json::from_str(data).unwrap();
            format!("event: {}\ndata: {data}\n\n", kind["type"].as_str().unwrap())
        })
        .collect();
    Reply::sse(body)
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"model-x","stop_reason":null,"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":5,"output_tokens":1}}}"#;
const END: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":30,"output_tokens_details":{"thinking_tokens":12}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn hello_events() -> Vec<&'static str> {
    vec![
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type": "ping"}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüß "}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Gott"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        END,
        STOP,
    ]
}

const THOUGHT: &[&str] = &[
    START,
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB=="}}"#,
    r#"{"type":"content_block_stop","index":0}"#,
    r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}"#,
    r#"{"type":"content_block_stop","index":1}"#,
    r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look."}}"#,
    r#"{"type":"content_block_stop","index":2}"#,
    r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_01ABC","name":"weather","input":{}}}"#,
    r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}"#,
    r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Ro"}}"#,
    r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"me\"}"}}"#,
    r#"{"type":"content_block_stop","index":3}"#,
    r#"{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_02DEF","name":"weather","input":{}}}"#,
    r#"{"type":"content_block_stop","index":4}"#,
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":30}}"#,
    STOP,
];

#[tokio::test]
async fn text_is_streamed_and_cached_tokens_are_counted() {
    let server = Server::start([events(&hello_events()).in_pieces(7)]).await;
    let (deltas, end) = play(&model(&server), hello()).await;
    let end = end.unwrap();
    assert_eq!(deltas, [Delta::Text("Grüß ".into()), Delta::Text("Gott".into())]);
    assert_eq!(end.parts, [text("Grüß Gott")]);
    assert_eq!(
        end.usage,
        Some(Usage {
            input: 115,
            cache_read: 100,
            cache_write: 5,
            output: 30,
            reasoning: 12,
            ..Usage::default()
        })
    );
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /v1/messages HTTP/1.1");
    assert_eq!(received.header("x-api-key"), Some("sk-ant-planted"));
    assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(received.header("authorization"), None);
}

#[tokio::test]
async fn reasoning_and_calls_keep_order_and_are_sent_back_unchanged() {
    let server = Server::start([events(THOUGHT), events(&hello_events())]).await;
    let provider = model(&server);
    let (deltas, end) = play(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!(end.stop, StopReason::Complete);
    assert_eq!(
        calls(&end),
        [
            ("weather".to_owned(), r#"{"city": "Rome"}"#.to_owned()),
            ("weather".to_owned(), String::new())
        ]
    );
    assert_eq!(deltas[0], Delta::Reasoning("Let me ".into()));
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts: end.parts },
        result("toolu_01ABC", "weather", vec![], false),
        result("toolu_02DEF", "weather", vec![], false),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "Let me see.", "signature": "EqQB=="},
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_01ABC", "name": "weather", "input": {"city": "Rome"}},
            {"type": "tool_use", "id": "toolu_02DEF", "name": "weather", "input": {}},
        ])
    );
}

#[tokio::test]
async fn conversation_is_sent_with_cache_breakpoints() {
    let server = Server::start([events(&hello_events())]).await;
    let reasoning = Part::Reasoning {
        text: "Looks like Paris.".into(),
        opaque: json!({"anthropic": {"type": "thinking", "thinking": "Looks like Paris.", "signature": "sig"}}),
    };
    let mut request = rich(reasoning);
    request.parallel_calls = Some(false);
    request.reasoning_effort = Some("high".into());
    request.temperature = Some(0.5);
    request.response_schema = Some(std::sync::Arc::new(
        Schema::parse(r#"{"type":"object"}"#).unwrap(),
    ));
    play(&model(&server), request).await.1.unwrap();
    assert_json_snapshot!(server.body(), @r#"
    {
      "max_tokens": 16384,
      "messages": [
        {
          "content": [
            {
              "text": "Where is this, and how is the weather there?",
              "type": "text"
            },
            {
              "source": {
                "data": "cG5n",
                "media_type": "image/png",
                "type": "base64"
              },
              "type": "image"
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
          "content": [
            {
              "signature": "sig",
              "thinking": "Looks like Paris.",
              "type": "thinking"
            },
            {
              "text": "I look it up.",
              "type": "text"
            },
            {
              "id": "call_paris_1",
              "input": {
                "city": "Paris"
              },
              "name": "weather",
              "type": "tool_use"
            },
            {
              "id": "call_rome_22",
              "input": {
                "malformed_arguments": "{\"city\":"
              },
              "name": "weather",
              "type": "tool_use"
            }
          ],
          "role": "assistant"
        },
        {
          "content": [
            {
              "content": [
                {
                  "text": "18 °C",
                  "type": "text"
                },
                {
                  "source": {
                    "data": "anBn",
                    "media_type": "image/jpeg",
                    "type": "base64"
                  },
                  "type": "image"
                },
                {
                  "text": "[application/zip of 4 bytes, not supported by this model]",
                  "type": "text"
                }
              ],
              "tool_use_id": "call_paris_1",
              "type": "tool_result"
            },
            {
              "content": [
                {
                  "text": "Error: no JSON",
                  "type": "text"
                }
              ],
              "is_error": true,
              "tool_use_id": "call_rome_22",
              "type": "tool_result"
            }
          ],
          "role": "user"
        },
        {
          "content": [
            {
              "text": "Paris, 18 °C.",
              "type": "text"
            }
          ],
          "role": "assistant"
        },
        {
          "content": [
            {
              "cache_control": {
                "type": "ephemeral"
              },
              "text": "Thanks",
              "type": "text"
            }
          ],
          "role": "user"
        }
      ],
      "model": "model-x",
      "output_config": {
        "effort": "high",
        "format": {
          "schema": {
            "additionalProperties": false,
            "type": "object"
          },
          "type": "json_schema"
        }
      },
      "stream": true,
      "system": [
        {
          "cache_control": {
            "type": "ephemeral"
          },
          "text": "Be brief.",
          "type": "text"
        }
      ],
      "thinking": {
        "type": "adaptive"
      },
      "tool_choice": {
        "disable_parallel_tool_use": true,
        "type": "auto"
      },
      "tools": [
        {
          "cache_control": {
            "type": "ephemeral"
          },
          "description": "The weather in a city.",
          "input_schema": {
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
          },
          "name": "weather"
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn user_message_after_results_is_merged_behind_them() {
    let server = Server::start([events(&hello_events())]).await;
    let request = request(vec![
        Message::user("a"),
        Message::Assistant {
            parts: vec![call("bad id!", "no such.tool", "{}")],
        },
        result("bad id!", "no such.tool", vec![blob("image/png", b"png")], true),
        Message::user("b"),
    ]);
    play(&model(&server), request).await.1.unwrap();
    let messages = &server.body()["messages"];
    let id = messages[1]["content"][0]["id"].as_str().unwrap();
    assert!(
        id.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
        "{id}"
    );
    assert_eq!(messages[1]["content"][0]["name"], "no_such_tool");
    assert_eq!(
        messages[2]["content"],
        json!([
            {
                "type": "tool_result", "tool_use_id": id, "is_error": true,
                "content": [{"type": "text", "text": "[image/png of 3 bytes, not supported by this model]"}],
            },
            {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}},
        ])
    );
}

#[tokio::test]
async fn content_that_the_api_refuses_is_not_sent() {
    let server = Server::start([events(&hello_events())]).await;
    let mut protocol = Messages::default();
    protocol.cache = Some(CacheTime::OneHour);
    protocol.betas = vec!["a-1".into(), "b-2".into()];
    let mut request = request(vec![
        Message::User { content: vec![] },
        Message::Assistant {
            parts: vec![
                text(" "),
                Part::Reasoning {
                    text: "foreign".into(),
                    opaque: json!({"gemini": {"thoughtSignature": "x"}}),
                },
            ],
        },
        Message::user("b"),
    ]);
    request.tools = vec![tool(
        "t",
        "T.",
        json!({"type": "object", "anyOf": [{"required": ["a"]}], "properties": {"a": {}}}),
    )]
    .into();
    request.tool_choice = ToolChoice::Tool(ToolName::new("t").unwrap());
    request.reasoning_effort = Some("2000".into());
    let provider = Anthropic::with(at(&server), protocol).unwrap();
    play(&provider, request).await.1.unwrap();
    let body = server.body();
    assert_eq!(server.received()[0].header("anthropic-beta"), Some("a-1,b-2"));
    assert_eq!(
        body["messages"],
        json!([{"role": "user", "content": [
            {"type": "text", "text": "[nothing]"},
            {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ]}])
    );
    assert_eq!(body["tool_choice"], json!({"type": "tool", "name": "t"}));
    assert_eq!(
        body["tools"][0]["input_schema"],
        json!({"type": "object", "properties": {"a": {}}})
    );
    assert_eq!(
        body.get("thinking"),
        None,
        "a forced call and thinking exclude each other"
    );
}

#[tokio::test]
async fn thinking_budget_leaves_tokens_for_the_answer() {
    let server = Server::start([events(&hello_events())]).await;
    let mut request = hello();
    request.reasoning_effort = Some("4000".into());
    request.max_output_tokens = Some(1000);
    play(&model(&server), request).await.1.unwrap();
    let body = server.body();
    assert_eq!(
        body["thinking"],
        json!({"type": "enabled", "budget_tokens": 4000})
    );
    assert_eq!(body["max_tokens"], 5024);
}

#[tokio::test]
async fn token_limit_is_lowered_to_what_the_model_allows() {
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message":
        "max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens for model-x"}});
    let server = Server::start([
        Reply::json(400, refusal.to_string()),
        events(&hello_events()),
        events(&hello_events()),
    ])
    .await;
    let provider = model(&server);
    for _ in 0..2 {
        assert!(play(&provider, hello()).await.1.is_ok());
    }
    let sent: Vec<_> = server
        .received()
        .iter()
        .map(|r| r.body["max_tokens"].as_u64())
        .collect();
    assert_eq!(sent, [Some(16384), Some(8192), Some(8192)]);
}

#[test]
fn missing_key_is_refused_only_if_required() {
    assert!(matches!(
        Anthropic::new(Connection::new("model-x")),
        Err(SetupError::MissingKey { .. })
    ));
    let local = Connection::new("local").with_base_url("http://localhost:11434");
    assert!(Anthropic::new(local).is_ok());
}
