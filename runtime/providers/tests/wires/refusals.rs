//! Parameters that a server refuses are left out of the request and of all later ones, on every protocol, and the user is
//! told once.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcell_core::provider::{ProviderErrorKind, Request};
use toolcell_core::{Content, Message, Part, Provider, Schema};
use toolcell_providers::anthropic::Anthropic;
use toolcell_providers::gemini::Gemini;
use toolcell_providers::ollama::Ollama;
use toolcell_providers::openai::{ChatCompletions, OpenAi, ToolSchemas};
use toolcell_providers::responses::{OpenAiResponses, Responses};

use crate::conversation::{blob, connection, notices, play, request, result, retries, weather};
use crate::loopback::{Reply, Server};

/// Provider and a complete answer of each protocol.
fn wire(name: &str, server: &Server) -> (Arc<dyn Provider>, Reply) {
    let at = || connection("m", server.url(""));
    match name {
        "openai" => (
            Arc::new(OpenAi::new(at()).unwrap()),
            Reply::events(&[
                r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
                "[DONE]",
            ]),
        ),
        "responses" => (Arc::new(OpenAiResponses::new(at()).unwrap()), responses_answer()),
        "anthropic" => (Arc::new(Anthropic::new(at()).unwrap()), anthropic_answer()),
        "gemini" => (
            Arc::new(Gemini::new(at()).unwrap()),
            Reply::events(&[
                r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}"#,
            ]),
        ),
        _ => (
            Arc::new(Ollama::new(at()).unwrap()),
            Reply::new(
                200,
                "application/x-ndjson",
                r#"{"message":{"content":"a"},"done":true}"#,
            ),
        ),
    }
}

fn responses_answer() -> Reply {
    Reply::events(&[
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"a"}]}}"#,
        r#"{"type":"response.completed","response":{"status":"completed"}}"#,
    ])
}

fn anthropic_answer() -> Reply {
    Reply::events(&[
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ])
}

/// Server that refuses once with this message, then answers twice.
async fn refusing(name: &str, status: u16, error: Value) -> (Server, Arc<dyn Provider>) {
    let probe = Server::start([]).await;
    let (_, answer) = wire(name, &probe);
    let server = Server::start([Reply::json(status, error.to_string()), answer.clone(), answer]).await;
    let (provider, _) = wire(name, &server);
    (server, provider)
}

/// A request with every optional parameter.
fn full() -> Request {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    Request {
        tools: vec![weather()].into(),
        parallel_calls: Some(false),
        max_output_tokens: Some(50_000),
        temperature: Some(0.5),
        top_p: Some(0.9),
        stop: vec!["END".to_owned()].into(),
        seed: Some(7),
        response_schema: Some(Arc::new(Schema::new(schema).unwrap())),
        session: Some("session".into()),
        ..request(vec![
            Message::User {
                content: vec![Content::text("look"), blob("image/png", b"png")],
            },
            Message::Assistant {
                parts: vec![crate::conversation::call("call_aaaaaa", "weather", "{}")],
            },
            result("call_aaaaaa", "weather", vec![blob("image/png", b"png")], false),
        ])
    }
}

fn thinking() -> Request {
    Request {
        reasoning_effort: Some("high".into()),
        ..full()
    }
}

#[tokio::test]
async fn refused_parameter_is_left_out_from_then_on() {
    for (name, pointer, message) in [
        (
            "openai",
            "/temperature",
            "Unsupported value: 'temperature' does not support 0.5 with this model.",
        ),
        (
            "openai",
            "/top_p",
            "Unsupported parameter: 'top_p' is not supported with this model.",
        ),
        (
            "openai",
            "/stop",
            "Unsupported parameter: 'stop' is not supported with this model.",
        ),
        ("openai", "/seed", "property 'seed' is unsupported"),
        ("openai", "/seed", "Unrecognized request argument supplied: seed"),
        (
            "openai",
            "/reasoning_effort",
            "Unrecognized request argument supplied: reasoning_effort",
        ),
        (
            "openai",
            "/response_format",
            "This response_format type is unavailable now",
        ),
        (
            "openai",
            "/stream_options",
            "Unrecognized request argument supplied: stream_options",
        ),
        (
            "responses",
            "/prompt_cache_key",
            "Unknown parameter: 'prompt_cache_key'.",
        ),
        (
            "responses",
            "/include",
            "Encrypted content is not supported with this model.",
        ),
        (
            "responses",
            "/reasoning",
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        ),
        (
            "responses",
            "/temperature",
            "Unsupported parameter: 'temperature' is not supported with this model.",
        ),
        (
            "responses",
            "/top_p",
            "Unsupported parameter: 'top_p' is not supported with this model.",
        ),
        (
            "responses",
            "/parallel_tool_calls",
            "Unknown parameter: 'parallel_tool_calls'.",
        ),
        (
            "anthropic",
            "/thinking",
            "adaptive thinking is not supported on this model",
        ),
        (
            "anthropic",
            "/output_config/effort",
            "This model does not support the effort parameter.",
        ),
        (
            "anthropic",
            "/stop_sequences",
            "stop_sequences: Extra inputs are not permitted",
        ),
        (
            "gemini",
            "/generationConfig/thinkingConfig",
            "Thinking level is not supported for this model.",
        ),
        (
            "gemini",
            "/generationConfig/seed",
            "Unknown name \"seed\" at 'generation_config'",
        ),
        (
            "gemini",
            "/generationConfig/temperature",
            "temperature is not supported",
        ),
        ("ollama", "/think", "\"m\" does not support thinking"),
        (
            "ollama",
            "/options/temperature",
            "temperature is not supported by this model",
        ),
        ("ollama", "/options/top_p", "top_p is not supported"),
        ("ollama", "/options/seed", "unknown option: seed"),
        ("ollama", "/options/stop", "Unknown name \"stop\""),
    ] {
        let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
        let (server, provider) = refusing(name, 400, error).await;
        let (deltas, end) = play(&*provider, thinking()).await;
        assert!(end.is_ok(), "{name} {message}: {end:?}");
        let told = notices(&deltas);
        assert_eq!((told.len(), retries(&deltas)), (1, 0), "{name} {message}");
        assert!(
            told[0].contains("left out from now on") && told[0].contains(message),
            "{told:?}"
        );
        let (deltas, end) = play(&*provider, thinking()).await;
        assert!(end.is_ok() && notices(&deltas).is_empty(), "{name} {message}");
        let sent: Vec<bool> = server
            .received()
            .iter()
            .map(|r| r.body.pointer(pointer).is_some())
            .collect();
        assert_eq!(sent, [true, false, false], "{name} {pointer}");
        // Everything else is still sent.
        let count = |at: usize| server.received()[at].body.as_object().unwrap().len();
        assert!(count(0) - count(1) <= 2, "{name} {pointer}");
    }
}

#[tokio::test]
async fn strict_schemas_of_tools_are_left_out_if_refused() {
    for message in [
        "[{'type': 'extra_forbidden', 'loc': ('body', 'tools', 0, 'function', 'strict'), 'msg': 'Extra inputs'}]",
        "Invalid schema for function 'weather': In context=(), 'x' is not permitted.",
    ] {
        for name in ["openai", "responses"] {
            let probe = Server::start([]).await;
            let (_, answer) = wire(name, &probe);
            let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
            let server = Server::start([Reply::json(400, error.to_string()), answer]).await;
            let at = connection("m", server.url(""));
            let provider: Arc<dyn Provider> = match name {
                "openai" => {
                    let mut strict = ChatCompletions::default();
                    strict.tool_schemas = ToolSchemas::Strict;
                    Arc::new(OpenAi::with(at, strict).unwrap())
                }
                _ => {
                    let mut strict = Responses::default();
                    strict.tool_schemas = ToolSchemas::Strict;
                    Arc::new(OpenAiResponses::with(at, strict).unwrap())
                }
            };
            let (deltas, end) = play(&*provider, full()).await;
            assert!(end.is_ok(), "{name}: {end:?}");
            assert!(
                notices(&deltas)[0].contains("strict schemas of tools, left out"),
                "{name}"
            );
            let pointer = if name == "openai" {
                "/tools/0/function/strict"
            } else {
                "/tools/0/strict"
            };
            let strict = |at: usize| server.received()[at].body.pointer(pointer) == Some(&json!(true));
            assert_eq!((strict(0), strict(1)), (true, false), "{name}");
            assert!(server.received()[1].body["tools"][0].is_object(), "{name}");
        }
    }
}

#[tokio::test]
async fn temperature_refused_by_anthropic_is_left_out() {
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message":
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one."}});
    let (server, provider) = refusing("anthropic", 400, error).await;
    assert!(play(&*provider, full()).await.1.is_ok());
    let sent = server.received();
    assert_eq!(sent[0].body["temperature"], 0.5);
    assert_eq!(
        (sent[1].body.get("temperature"), &sent[1].body["top_p"]),
        (None, &json!(0.9))
    );
}

#[tokio::test]
async fn parameter_is_recognised_by_the_field_of_the_error() {
    let error = json!({"error": {"message": "Not available here.", "param": "reasoning.effort"}});
    let (server, provider) = refusing("responses", 400, error).await;
    assert!(play(&*provider, thinking()).await.1.is_ok());
    assert_eq!(server.received()[1].body.get("reasoning"), None);
}

#[tokio::test]
async fn pictures_are_left_out_for_text_only_models() {
    for (name, status, message) in [
        (
            "openai",
            400,
            "Invalid content type. image_url is only supported by certain models.",
        ),
        (
            "openai",
            400,
            "Failed to deserialize the JSON body: unknown variant `image_url`, expected `text`",
        ),
        ("openai", 404, "No endpoints found that support image input"),
        (
            "openai",
            500,
            "image input is not supported - hint: provide the mmproj",
        ),
        ("responses", 400, "This model does not support image inputs."),
        (
            "anthropic",
            400,
            "messages.0.content.1: image inputs are not supported by this model",
        ),
        (
            "gemini",
            400,
            "Image input modality is not enabled for models/gemma-3-1b-it",
        ),
        (
            "ollama",
            500,
            "this model is missing data required for image input",
        ),
    ] {
        let error = json!({"error": {"message": message}});
        let (server, provider) = refusing(name, status, error).await;
        let (deltas, end) = play(&*provider, full()).await;
        assert!(end.is_ok(), "{name} {message}: {end:?}");
        assert_eq!(notices(&deltas).len(), 1, "{name} {message}");
        assert!(play(&*provider, full()).await.1.is_ok());
        let sent: Vec<String> = server.received().iter().map(|r| r.body.to_string()).collect();
        // "png" in base64.
        assert_eq!(
            [0, 1, 2].map(|at| sent[at].contains("cG5n")),
            [true, false, false],
            "{name}"
        );
        let note = "[image/png of 3 bytes, left out: this model takes no pictures]";
        assert_eq!(sent[1].matches(note).count(), 2, "{name}: {}", sent[1]);
    }
}

#[tokio::test]
async fn reasoning_with_an_invalid_signature_is_left_out() {
    let signed = json!({"anthropic": {"type": "thinking", "thinking": "t", "signature": "s"}});
    let request = request(vec![
        Message::user("a"),
        Message::Assistant {
            parts: vec![
                Part::Reasoning {
                    text: "t".into(),
                    opaque: signed,
                },
                Part::text("b"),
            ],
        },
        Message::user("c"),
    ]);
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message":
        "messages.1.content.0: Invalid `signature` in `thinking` block"}});
    let (server, provider) = refusing("anthropic", 400, error).await;
    assert!(play(&*provider, request).await.1.is_ok());
    let sent: Vec<usize> = server
        .received()
        .iter()
        .map(|r| r.body["messages"][1]["content"].as_array().unwrap().len())
        .collect();
    assert_eq!(sent, [2, 1]);
}

#[tokio::test]
async fn limit_of_an_answer_is_lowered_to_what_the_model_allows() {
    for (name, pointer, message) in [
        (
            "openai",
            "/max_tokens",
            "max_tokens is too large: 50000. This model supports at most 8192 completion tokens",
        ),
        (
            "responses",
            "/max_output_tokens",
            "max_output_tokens: 50000 > 8192",
        ),
        (
            "anthropic",
            "/max_tokens",
            "max_tokens: 50000 > 8192, which is the maximum allowed number of output tokens",
        ),
        (
            "gemini",
            "/generationConfig/maxOutputTokens",
            "maxOutputTokens value of 50000 but the supported range is from 1 (inclusive) to 8193 (exclusive)",
        ),
    ] {
        let (server, provider) = refusing(name, 400, json!({"error": {"message": message}})).await;
        let (deltas, end) = play(&*provider, full()).await;
        assert!(end.is_ok(), "{name}: {end:?}");
        assert_eq!(notices(&deltas).len(), 1);
        let sent: Vec<_> = server
            .received()
            .iter()
            .map(|r| r.body.pointer(pointer).cloned())
            .collect();
        assert_eq!(sent, [Some(json!(50_000)), Some(json!(8192))], "{name}");
    }
}

#[tokio::test]
async fn endless_refusals_end_with_an_error() {
    for name in ["openai", "responses", "anthropic", "gemini", "ollama"] {
        let everything = "unsupported: temperature top_p 'stop' stop_sequences 'seed' stream_options include_usage \
            parallel_tool_calls disable_parallel_tool_use 'max_tokens' 'max_completion_tokens' 'max_output_tokens' \
            prompt_cache_key reasoning_effort reasoning.effort thinking effort encrypted_content response_format \
            text.format output_config responsejsonschema 'format' think value cache_control image parametersjsonschema";
        let refusal = Reply::json(400, json!({"error": {"message": everything}}).to_string());
        let server = Server::start(vec![refusal; 40]).await;
        let (provider, _) = wire(name, &server);
        let error = play(&*provider, thinking()).await.1.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::InvalidRequest);
        let count = server.received().len();
        assert!((2..20).contains(&count), "{name}: {count}");
        // The last request is minimal, and refused like the others.
        assert!(
            server.received()[count - 1].body.get("temperature").is_none(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn model_without_tools_is_an_error_of_its_own_kind() {
    for (name, status, message) in [
        (
            "ollama",
            400,
            "registry.ollama.ai/library/gemma:2b does not support tools",
        ),
        (
            "openai",
            400,
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
        ),
        (
            "gemini",
            400,
            "Function calling is not enabled for models/gemma-3-1b-it",
        ),
    ] {
        let (server, provider) = refusing(name, status, json!({"error": {"message": message}})).await;
        let error = play(&*provider, full()).await.1.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::ToolsUnsupported, "{message}");
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn base_url_works_with_and_without_version() {
    for (name, with, path) in [
        ("openai", "/v1", "/v1/chat/completions"),
        ("responses", "/v1", "/v1/responses"),
        ("anthropic", "/v1", "/v1/messages"),
        (
            "gemini",
            "/v1beta",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
        ),
        ("ollama", "/v1", "/api/chat"),
    ] {
        for base in ["", "/", with] {
            let probe = Server::start([]).await;
            let (_, answer) = wire(name, &probe);
            let server = Server::start([answer]).await;
            let at = || connection("m", server.url(base));
            let provider: Arc<dyn Provider> = match name {
                "openai" => Arc::new(OpenAi::new(at()).unwrap()),
                "responses" => Arc::new(OpenAiResponses::new(at()).unwrap()),
                "anthropic" => Arc::new(Anthropic::new(at()).unwrap()),
                "gemini" => Arc::new(Gemini::new(at()).unwrap()),
                _ => Arc::new(Ollama::new(at()).unwrap()),
            };
            assert!(play(&*provider, full()).await.1.is_ok());
            assert_eq!(
                server.received()[0].line,
                format!("POST {path} HTTP/1.1"),
                "{name} {base}"
            );
        }
    }
}

#[tokio::test]
async fn other_form_of_the_base_url_is_tried_once() {
    let probe = Server::start([]).await;
    let (_, answer) = wire("openai", &probe);
    let missing = || Reply::json(404, r#"{"detail":"Not Found"}"#);
    let server = Server::start([missing(), answer.clone(), answer.clone()]).await;
    let provider = OpenAi::new(connection("m", server.url("/proxy"))).unwrap();
    for _ in 0..2 {
        assert!(play(&provider, full()).await.1.is_ok());
    }
    let lines: Vec<String> = server.received().iter().map(|r| r.line.clone()).collect();
    let at = |path: &str| format!("POST {path}/chat/completions HTTP/1.1");
    assert_eq!(lines, [at("/proxy"), at("/proxy/v1"), at("/proxy/v1")]);

    // A server without the version in its paths.
    let server = Server::start([missing(), answer]).await;
    let provider = OpenAi::new(connection("m", server.url("/v1"))).unwrap();
    assert!(play(&provider, full()).await.1.is_ok());
    assert_eq!(server.received()[1].line, at(""));

    let server = Server::start([missing(), missing(), missing()]).await;
    let provider = OpenAi::new(connection("m", server.url("/proxy"))).unwrap();
    assert!(play(&provider, full()).await.1.is_err());
    assert_eq!(server.received().len(), 2);

    let unknown = Reply::json(404, r#"{"error":{"message":"The model `m` does not exist"}}"#);
    let server = Server::start([unknown.clone(), unknown]).await;
    let provider = OpenAi::new(connection("m", server.url("/proxy"))).unwrap();
    assert!(play(&provider, full()).await.1.is_err());
    assert_eq!(server.received().len(), 1);
}
