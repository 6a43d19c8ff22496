//! Tests of Gemini `generateContent`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use insta::assert_json_snapshot;
use serde_json::json;
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, ToolChoice, Usage};
use toolcell_core::{Message, Part, Schema, ToolName};
use toolcell_providers::gemini::{Access, Gemini, GenerateContent, vertex_base_url};
use toolcell_providers::{ApiKey, Connection, SetupError, Token, TokenSource};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

fn at(server: &Server, model: &str) -> Connection {
    connection(model, server.url("/v1beta")).with_key("AIza-planted")
}

fn model(server: &Server) -> Gemini {
    Gemini::new(at(server, "gemini-3-pro")).unwrap()
}

const HELLO: &[&str] = &[
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Grüß "}]},"index":0}],"usageMetadata":{"promptTokenCount":10}}"#,
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Gott"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":3,"thoughtsTokenCount":7,"totalTokenCount":20},"modelVersion":"m"}"#,
];

#[tokio::test]
async fn text_is_streamed_and_reasoning_tokens_are_counted() {
    let server = Server::start([Reply::events(HELLO).in_pieces(13)]).await;
    let (deltas, end) = play(&model(&server), hello()).await;
    let end = end.unwrap();
    assert_eq!(deltas, [Delta::Text("Grüß ".into()), Delta::Text("Gott".into())]);
    assert_eq!(end.parts, [text("Grüß Gott")]);
    assert_eq!(
        end.usage,
        Some(Usage {
            input: 10,
            cache_read: 4,
            cache_write: 0,
            output: 10,
            reasoning: 7,
            ..Usage::default()
        })
    );
    let received = &server.received()[0];
    assert_eq!(
        received.line,
        "POST /v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse HTTP/1.1"
    );
    assert_eq!(received.header("x-goog-api-key"), Some("AIza-planted"));
}

#[tokio::test]
async fn signatures_are_sent_back_with_their_parts() {
    let server = Server::start([
        Reply::events(&[
            r#"{"candidates":[{"content":{"parts":[{"text":"Hm.","thought":true}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"I look.","thoughtSignature":"c2lnLXQ="},{"functionCall":{"name":"weather","args":{"city":"Rome"},"id":"fc-12345678"},"thoughtSignature":"c2lnLWE="},{"functionCall":{"name":"weather","args":{"city":"Oslo"}}}]},"finishReason":"STOP"}]}"#,
        ]),
        Reply::events(HELLO),
    ])
    .await;
    let provider = model(&server);
    let (deltas, end) = play(&provider, hello()).await;
    let end = end.unwrap();
    assert_eq!(deltas[0], Delta::Reasoning("Hm.".into()));
    assert_eq!(end.stop, StopReason::Complete);
    let ids: Vec<String> = end
        .parts
        .iter()
        .filter_map(|p| match p {
            Part::Call(call) => Some(call.id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ids[0], "fc-12345678");
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts: end.parts },
        result(&ids[0], "weather", vec![blob("image/png", b"png")], false),
        result(&ids[1], "weather", vec![toolcell_core::Content::text("no")], true),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["contents"],
        json!([
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [
                {"text": "I look.", "thoughtSignature": "c2lnLXQ="},
                {"functionCall": {"name": "weather", "args": {"city": "Rome"}, "id": "fc-12345678"}, "thoughtSignature": "c2lnLWE="},
                {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {
                    "name": "weather", "id": "fc-12345678",
                    "response": {"output": "[image/png, shown beside this result]"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}],
                }},
                {"functionResponse": {"name": "weather", "response": {"error": "no"}}},
            ]},
        ])
    );
}

#[tokio::test]
async fn pictures_of_the_model_are_sent_back_with_signatures() {
    let server = Server::start([
        Reply::events(&[
            r#"{"candidates":[{"content":{"parts":[{"text":"A cat:"},{"inlineData":{"mimeType":"image/png","data":"cG5n"},"thoughtSignature":"c2ln"},{"inlineData":{"mimeType":"image/png","data":"%"}},{"thought":true,"inlineData":{"mimeType":"image/png","data":"cG5n"}}]},"finishReason":"STOP"}]}"#,
        ]),
        Reply::events(HELLO),
    ])
    .await;
    let provider = model(&server);
    let (_, end) = play(&provider, hello()).await;
    let parts = end.unwrap().parts;
    let [
        Part::Text { .. },
        Part::File { blob, .. },
        Part::Text { text, .. },
    ] = &*parts
    else {
        panic!("{parts:?}")
    };
    assert_eq!(
        (blob.media_type.as_str(), &*blob.data),
        ("image/png", &b"png"[..])
    );
    assert_eq!(text, "[the model answered with a file that is not valid base64]");
    let again = request(vec![
        Message::user("Hello"),
        Message::Assistant { parts },
        Message::user("And a dog?"),
    ]);
    play(&provider, again).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["contents"][1]["parts"][1],
        json!({"inlineData": {"mimeType": "image/png", "data": "cG5n"}, "thoughtSignature": "c2ln"})
    );
}

#[tokio::test]
async fn trailing_signature_is_sent_back_to_this_api_only() {
    let server = Server::start([
        Reply::events(&[
            r#"{"candidates":[{"content":{"parts":[{"text":"So "}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"it is."}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"c2lnLXQ="}]},"finishReason":"STOP"}]}"#,
        ]),
        Reply::events(HELLO),
    ])
    .await;
    let provider = model(&server);
    let end = play(&provider, hello()).await.1.unwrap();
    let answer = Message::Assistant { parts: end.parts };
    assert_eq!(answer.text(), "So it is.");
    let again = request(vec![
        Message::user("Hello"),
        answer.clone(),
        Message::user("Sure?"),
    ]);
    play(&provider, again.clone()).await.1.unwrap();
    assert_eq!(
        server.received()[1].body["contents"][1]["parts"],
        json!([{"text": "So it is."}, {"text": "", "thoughtSignature": "c2lnLXQ="}])
    );
    let other = Server::start([Reply::sse("data: [DONE]\n\n")]).await;
    let openai = toolcell_providers::openai::OpenAi::new(connection("m", other.url("/v1"))).unwrap();
    let _ = play(&openai, again).await;
    assert!(!other.received()[0].body.to_string().contains("c2lnLXQ="));
}

#[tokio::test]
async fn conversation_of_another_model_is_sent() {
    let server = Server::start([Reply::events(HELLO)]).await;
    let mut request = rich(text(""));
    request.tool_choice = ToolChoice::Tool(ToolName::new("weather").unwrap());
    request.max_output_tokens = Some(100);
    request.temperature = Some(0.5);
    request.reasoning_effort = Some("low".into());
    request.response_schema = Some(std::sync::Arc::new(
        Schema::parse(r#"{"type":"object"}"#).unwrap(),
    ));
    let provider = Gemini::new(at(&server, "models/gemini-2.5-flash")).unwrap();
    play(&provider, request).await.1.unwrap();
    assert_json_snapshot!(server.body(), @r#"
    {
      "contents": [
        {
          "parts": [
            {
              "text": "Where is this, and how is the weather there?"
            },
            {
              "inlineData": {
                "data": "cG5n",
                "mimeType": "image/png"
              }
            },
            {
              "text": "[application/zip of 4 bytes, not supported by this model]"
            },
            {
              "text": "[a: https://example.com/a (text/html)]"
            }
          ],
          "role": "user"
        },
        {
          "parts": [
            {
              "text": "I look it up."
            },
            {
              "functionCall": {
                "args": {
                  "city": "Paris"
                },
                "name": "weather"
              },
              "thoughtSignature": "skip_thought_signature_validator"
            },
            {
              "functionCall": {
                "args": {
                  "malformed_arguments": "{\"city\":"
                },
                "name": "weather"
              }
            }
          ],
          "role": "model"
        },
        {
          "parts": [
            {
              "functionResponse": {
                "name": "weather",
                "response": {
                  "output": "18 °C\n[image/jpeg, shown beside this result]\n[application/zip of 4 bytes, not supported by this model]"
                }
              }
            },
            {
              "functionResponse": {
                "name": "weather",
                "response": {
                  "error": "Error: no JSON"
                }
              }
            },
            {
              "inlineData": {
                "data": "anBn",
                "mimeType": "image/jpeg"
              }
            }
          ],
          "role": "user"
        },
        {
          "parts": [
            {
              "text": "Paris, 18 °C."
            }
          ],
          "role": "model"
        },
        {
          "parts": [
            {
              "text": "Thanks"
            }
          ],
          "role": "user"
        }
      ],
      "generationConfig": {
        "maxOutputTokens": 100,
        "responseJsonSchema": {
          "type": "object"
        },
        "responseMimeType": "application/json",
        "temperature": 0.5,
        "thinkingConfig": {
          "includeThoughts": true,
          "thinkingLevel": "LOW"
        }
      },
      "systemInstruction": {
        "parts": [
          {
            "text": "Be brief."
          }
        ]
      },
      "toolConfig": {
        "functionCallingConfig": {
          "allowedFunctionNames": [
            "weather"
          ],
          "mode": "ANY"
        }
      },
      "tools": [
        {
          "functionDeclarations": [
            {
              "description": "The weather in a city.",
              "name": "weather",
              "parametersJsonSchema": {
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
            }
          ]
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn server_without_json_schema_gets_openapi_schemas() {
    let unknown = json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "Invalid JSON payload received. Unknown name \"parametersJsonSchema\" at 'tools[0].function_declarations[0]'"}}]);
    let server = Server::start([
        Reply::json(400, unknown.to_string()),
        Reply::events(HELLO),
        Reply::events(HELLO),
    ])
    .await;
    let provider = model(&server);
    let mut request = hello();
    request.tools = vec![weather(), tool("ping", "Ping.", json!({"type": "object"}))].into();
    let (deltas, end) = play(&provider, request.clone()).await;
    assert!(end.is_ok());
    assert_eq!(notices(&deltas).len(), 1);
    play(&provider, request).await.1.unwrap();
    for received in &server.received()[1..] {
        let declarations = &received.body["tools"][0]["functionDeclarations"];
        assert_eq!(declarations[0]["parameters"]["type"], "OBJECT");
        assert_eq!(declarations[0].get("parametersJsonSchema"), None);
        assert_eq!(declarations[1], json!({"name": "ping", "description": "Ping."}));
    }
}

#[tokio::test]
async fn reason_of_a_refusal_is_told() {
    for (body, reason) in [
        (
            r#"{"candidates":[{"content":{"parts":[{"text":"Once"}]},"finishReason":"RECITATION"}]}"#,
            Some("the answer was refused: RECITATION"),
        ),
        (
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#,
            Some("the answer was refused: the prompt was blocked, PROHIBITED_CONTENT"),
        ),
        (r#"{"candidates":[{"finishReason":"STOP"}]}"#, None),
    ] {
        let server = Server::start([Reply::events(&[body])]).await;
        let (deltas, _) = play(&model(&server), hello()).await;
        let told = deltas.iter().find_map(|delta| match delta {
            Delta::Notice(text) => Some(text.as_str()),
            _ => None,
        });
        let expected = reason.map(|reason| format!("gemini: {reason}"));
        assert_eq!(told, expected.as_deref(), "{body}");
    }
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    for (body, stop) in [
        (
            r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#,
            StopReason::MaxTokens,
        ),
        (
            r#"{"candidates":[{"finishReason":"SAFETY"}]}"#,
            StopReason::Refused,
        ),
        (
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#,
            StopReason::Refused,
        ),
        (
            r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#,
            StopReason::MalformedCall,
        ),
    ] {
        let server = Server::start([Reply::events(&[body])]).await;
        assert_eq!(play(&model(&server), hello()).await.1.unwrap().stop, stop);
    }
}

#[tokio::test]
async fn stream_without_a_stop_reason_is_truncated() {
    let server = Server::start([Reply::events(&HELLO[..1])]).await;
    let error = play(&model(&server), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Truncated);
}

#[tokio::test]
async fn errors_are_mapped_to_kinds() {
    for (status, name, message, kind) in [
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid.",
            ProviderErrorKind::InvalidRequest,
        ),
        (403, "PERMISSION_DENIED", "no", ProviderErrorKind::Unauthorized),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
            ProviderErrorKind::ContextLength,
        ),
    ] {
        let body = json!([{"error": {"code": status, "message": message, "status": name}}]);
        let server = Server::start([Reply::json(status, body.to_string())]).await;
        let error = play(&model(&server), hello()).await.1.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, message));
    }
    let exhausted = r#"{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}"#;
    let server = Server::start([Reply::events(&[exhausted]), Reply::events(HELLO)]).await;
    let (deltas, end) = play(&model(&server), hello()).await;
    assert!(end.is_ok());
    assert_eq!(retries(&deltas), 1);
}

#[tokio::test]
async fn vertex_uses_a_bearer_token() {
    let server = Server::start([Reply::events(HELLO)]).await;
    assert_eq!(
        vertex_base_url("p1", "europe-west4"),
        "https://europe-west4-aiplatform.googleapis.com/v1/projects/p1/locations/europe-west4/publishers/google"
    );
    assert_eq!(
        vertex_base_url("p1", "global"),
        "https://aiplatform.googleapis.com/v1/projects/p1/locations/global/publishers/google"
    );
    let vertex = GenerateContent::vertex();
    assert_eq!(vertex.access, Access::Token);
    let keyless = Connection::new("gemini-3-pro").with_base_url(vertex_base_url("p1", "global"));
    let error = Gemini::with(keyless, vertex).unwrap_err();
    assert!(matches!(error, SetupError::MissingKey { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "no API key is set for the provider `vertex`, and `aiplatform.googleapis.com` requires one"
    );
    let url = server.url("/v1/projects/p1/locations/l/publishers/google");
    let connection = connection("gemini-3-pro", url).with_key("ya29.planted");
    let provider = Gemini::with(connection, vertex).unwrap();
    play(&provider, hello()).await.1.unwrap();
    let received = &server.received()[0];
    assert_eq!(received.header("authorization"), Some("Bearer ya29.planted"));
    assert!(
        received
            .line
            .contains("/publishers/google/models/gemini-3-pro:streamGenerateContent")
    );
}

/// A model whose tokens are `token-0`, `token-1` and so on, one for each call of the token source.
fn with_tokens(server: &Server) -> (Gemini, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let url = server.url("/v1/projects/p/locations/l/publishers/google");
    let mut connection = connection("gemini-3-pro", url);
    connection.tokens = Some(TokenSource::new(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        async move {
            match number {
                0..3 => Ok(Token {
                    value: ApiKey::new(format!("access-token-{number}")),
                    expires_in: None,
                }),
                _ => Err("not logged in".to_owned()),
            }
        }
    }));
    (
        Gemini::with(connection, GenerateContent::vertex()).unwrap(),
        asked,
    )
}

#[tokio::test]
async fn expired_token_is_renewed_once() {
    // The server's error repeats the token.
    let expired = |number: u32| {
        let body = json!({"error": {"code": 401, "message": format!("access-token-{number} expired")}});
        Reply::json(401, body.to_string())
    };
    let server = Server::start([
        Reply::events(HELLO),
        expired(0),
        Reply::events(HELLO),
        expired(1),
        expired(2),
    ])
    .await;
    let (provider, asked) = with_tokens(&server);
    play(&provider, hello()).await.1.unwrap();
    let (deltas, end) = play(&provider, hello()).await;
    assert!(end.is_ok());
    assert_eq!((retries(&deltas), asked.load(Ordering::Relaxed)), (1, 2));
    // The refusal of a new token is final.
    let (deltas, end) = play(&provider, hello()).await;
    let error = end.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unauthorized);
    assert_eq!((retries(&deltas), asked.load(Ordering::Relaxed)), (1, 3));
    assert!(
        !format!("{deltas:?} {error:?}").contains("token-"),
        "{deltas:?} {error}"
    );
    let sent: Vec<Option<String>> = server
        .received()
        .iter()
        .map(|received| received.header("authorization").map(str::to_owned))
        .collect();
    let bearer = |number: u32| Some(format!("Bearer access-token-{number}"));
    assert_eq!(sent, [bearer(0), bearer(0), bearer(1), bearer(1), bearer(2)]);
}

#[tokio::test]
async fn missing_token_is_reported_and_nothing_is_sent() {
    let server = Server::start([]).await;
    let (provider, asked) = with_tokens(&server);
    asked.store(3, Ordering::Relaxed);
    let error = play(&provider, hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unauthorized);
    assert_eq!(error.message, "not logged in");
    assert!(server.received().is_empty());
}
