//! Searches all output of providers for a planted key.

use serde_json::json;
use toolcell_core::Provider;
use toolcell_core::provider::Delta;
use toolcell_providers::{Connection, HttpOptions, anthropic, gemini, ollama, openai, responses};

use crate::conversation::*;
use crate::loopback::{Reply, Server};

const KEY: &str = "sk-planted-0123456789";
const HEADER: &str = "planted-header-value";

fn options() -> HttpOptions {
    let mut options = http();
    options.retry.retries = 1;
    options.headers.push(("x-gateway".into(), HEADER.into()));
    options
}

/// Every HTTP provider, with the `Debug` output of its settings.
fn providers(url: &str) -> Vec<(Box<dyn Provider>, String)> {
    macro_rules! provider {
        ($provider:path) => {{
            let mut connection = Connection::new("m").with_base_url(url).with_key(KEY);
            connection.http = options();
            let shown = format!("{connection:?}");
            let provider = $provider(connection).unwrap();
            let shown = format!("{shown}{provider:?}");
            (Box::new(provider) as Box<dyn Provider>, shown)
        }};
    }
    vec![
        provider!(openai::OpenAi::new),
        provider!(responses::OpenAiResponses::new),
        provider!(anthropic::Anthropic::new),
        provider!(gemini::Gemini::new),
        provider!(ollama::Ollama::new),
    ]
}

#[tokio::test]
async fn keys_are_in_no_error_delta_or_debug_output() {
    let text = format!("you sent {KEY} and {HEADER}");
    let error = json!({"type": "error", "error": {"type": "e", "message": text}}).to_string();
    let replies = [
        Reply::json(401, error.clone()),
        Reply::new(500, "text/html", format!("<h1>{text}</h1>")),
        Reply::new(200, "text/html", text.clone()),
        Reply::events(&[&error]),
        Reply::new(200, "application/x-ndjson", format!("{error}\n")),
        Reply::json(
            400,
            json!({"error": {"message": format!("{}{KEY}", "x".repeat(485))}}).to_string(),
        ),
        Reply::sse(format!("data: {text}\n\n")),
        Reply::sse(format!("data: {{\"{text}\":1}}\n\n")),
    ];
    for reply in replies {
        for number in 0..5 {
            let server = Server::start([reply.clone(), reply.clone()]).await;
            let (provider, shown) = providers(&server.url("")).swap_remove(number);
            let (deltas, end) = play(&*provider, hello()).await;
            let error = end.unwrap_err();
            let everything = format!("{shown} {deltas:?} {error:?} {error} {}", json!(error));
            assert!(!everything.contains("planted"), "{everything}");
            let sent = server.received()[0]
                .headers
                .iter()
                .filter(|(_, v)| v.contains("planted"))
                .count();
            assert_eq!(sent, 2, "the server received both");
        }
    }
}

/// One answer per protocol, with `text` in its reasoning, its text, and the name, arguments and opaque parts of a call.
fn answers(text: &str) -> Vec<Vec<serde_json::Value>> {
    let arguments = json!({ "q": text }).to_string();
    let half = text.len() / 2;
    let (a, b) = text.split_at(half);
    let (c, d) = arguments.split_at(arguments.len() / 2);
    let chat = |delta: serde_json::Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let block = |index: u32, kind: &str, delta: serde_json::Value| json!({"type": kind, "index": index, "content_block": delta, "delta": delta});
    let item =
        |kind: &str, index: u32, delta: &str| json!({"type": kind, "output_index": index, "delta": delta});
    let part = |part: serde_json::Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    vec![
        vec![
            chat(json!({"reasoning_content": a})),
            chat(json!({"reasoning_content": b, "reasoning_details": [{"type": "t", "text": text}]})),
            chat(json!({"content": a})),
            chat(json!({ "content": b })),
            chat(
                json!({"tool_calls": [{"index": 0, "id": format!("call_{text}"), "function": {"name": text, "arguments": c}}]}),
            ),
            chat(json!({"tool_calls": [{"index": 0, "function": {"arguments": d}}]})),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": text}]}),
        ],
        vec![
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning"}}),
            item("response.reasoning_summary_text.delta", 0, a),
            item("response.reasoning_summary_text.delta", 0, b),
            json!({"type": "response.output_item.done", "output_index": 0,
                "item": {"type": "reasoning", "id": text, "summary": [{"text": text}]}}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}}),
            item("response.output_text.delta", 1, a),
            item("response.output_text.delta", 1, b),
            json!({"type": "response.output_item.added", "output_index": 2,
                "item": {"type": "function_call", "call_id": text, "name": text}}),
            item("response.function_call_arguments.delta", 2, c),
            json!({"type": "response.output_item.done", "output_index": 2,
                "item": {"type": "function_call", "arguments": arguments}}),
            json!({"type": "response.completed", "response": {"status": "incomplete", "incomplete_details": {"reason": text}}}),
        ],
        vec![
            block(
                0,
                "content_block_start",
                json!({"type": "thinking", "thinking": ""}),
            ),
            block(
                0,
                "content_block_delta",
                json!({"type": "thinking_delta", "thinking": a}),
            ),
            block(
                0,
                "content_block_delta",
                json!({"type": "thinking_delta", "thinking": b}),
            ),
            block(
                0,
                "content_block_delta",
                json!({"type": "signature_delta", "signature": text}),
            ),
            block(0, "content_block_stop", json!({})),
            block(1, "content_block_start", json!({"type": "text", "text": a})),
            block(1, "content_block_delta", json!({"type": "text_delta", "text": b})),
            block(1, "content_block_stop", json!({})),
            block(
                2,
                "content_block_start",
                json!({"type": "tool_use", "id": text, "name": text}),
            ),
            block(
                2,
                "content_block_delta",
                json!({"type": "input_json_delta", "partial_json": c}),
            ),
            block(
                2,
                "content_block_delta",
                json!({"type": "input_json_delta", "partial_json": d}),
            ),
            block(2, "content_block_stop", json!({})),
            json!({"type": "message_delta", "delta": {"stop_reason": text}}),
            json!({"type": "message_stop"}),
        ],
        vec![
            part(json!({"text": a, "thought": true})),
            part(json!({"text": b, "thought": true})),
            part(json!({ "text": a })),
            part(json!({ "text": b })),
            part(json!({"text": "signed", "thoughtSignature": text})),
            part(json!({"functionCall": {"id": text, "name": text, "args": {"q": text, text: 1}}})),
            json!({"candidates": [{"finishReason": text}]}),
        ],
        vec![
            json!({"message": {"thinking": a}}),
            json!({"message": {"thinking": b}}),
            json!({"message": {"content": a}}),
            json!({"message": {"content": b}}),
            json!({"message": {"tool_calls": [{"id": text, "function": {"name": text, "arguments": {"q": text}}}]}}),
            json!({"message": {"content": ""}, "done": true, "done_reason": text}),
        ],
    ]
}

#[tokio::test]
async fn key_repeated_by_an_answer_is_redacted() {
    let spaced = KEY.chars().map(String::from).collect::<Vec<_>>().join(" ");
    let in_hex: String = KEY.bytes().map(|b| format!("{b:02x}")).collect();
    for (shown, secret) in [
        (KEY.to_owned(), "planted"),
        (HEADER.to_owned(), "planted"),
        (spaced.clone(), spaced.as_str()),
        (in_hex.clone(), in_hex.as_str()),
    ] {
        for (number, answer) in answers(&shown).into_iter().enumerate() {
            let lines: Vec<String> = answer.iter().map(ToString::to_string).collect();
            let reply = match number {
                4 => Reply::new(200, "application/x-ndjson", lines.join("\n")),
                _ => Reply::events(&lines.iter().map(String::as_str).collect::<Vec<_>>()),
            };
            let server = Server::start([reply]).await;
            let (provider, _) = providers(&server.url("")).swap_remove(number);
            let (deltas, end) = play(&*provider, hello()).await;
            let end = end.unwrap();
            let everything = format!("{deltas:?} {end:?}");
            assert!(!everything.contains(secret), "{number}: {everything}");
            // Joined, as a reader joins the deltas.
            let joined =
                |pick: fn(&Delta) -> Option<&str>| deltas.iter().filter_map(pick).collect::<String>();
            for (kind, text) in [
                (
                    "text",
                    joined(|d| match d {
                        Delta::Text(text) => Some(text),
                        _ => None,
                    }),
                ),
                (
                    "reasoning",
                    joined(|d| match d {
                        Delta::Reasoning(text) => Some(text),
                        _ => None,
                    }),
                ),
                (
                    "arguments",
                    joined(|d| match d {
                        Delta::CallArguments { fragment, .. } => Some(fragment),
                        _ => None,
                    }),
                ),
            ] {
                assert!(!text.contains(secret), "{number} {kind}: {text}");
                assert!(text.contains("[redacted:key]"), "{number} {kind}: {text}");
            }
            assert_eq!(
                end.parts.len(),
                if number == 3 { 4 } else { 3 },
                "{number}: {everything}"
            );
        }
    }
}

#[tokio::test]
async fn short_key_is_not_redacted_from_answers() {
    let answer =
        r#"{"choices":[{"index":0,"delta":{"content":"ollama and ollama12"},"finish_reason":"stop"}]}"#;
    for (key, shown) in [
        ("ollama1", "ollama and ollama12"),
        ("ollama12", "ollama and [redacted:key]"),
    ] {
        let server = Server::start([Reply::events(&[answer])]).await;
        let connection = Connection::new("m").with_base_url(server.url("")).with_key(key);
        let (_, end) = play(&openai::OpenAi::new(connection).unwrap(), hello()).await;
        assert_eq!(end.unwrap().parts, [text(shown)]);
    }
}
