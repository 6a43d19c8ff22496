//! Answers that differ from the documentation of their service, as real servers and gateways send them.

use serde_json::json;
use toolcell_core::Provider;
use toolcell_core::provider::{Delta, ProviderErrorKind, StopReason, Usage};
use toolcell_providers::anthropic::Anthropic;
use toolcell_providers::gemini::Gemini;
use toolcell_providers::openai::OpenAi;
use toolcell_providers::responses::OpenAiResponses;

use crate::conversation::{call, connection, hello, play, text};
use crate::loopback::{Reply, Server};

fn gemini(server: &Server) -> Gemini {
    Gemini::new(connection("m", server.url(""))).unwrap()
}

fn responses(server: &Server) -> OpenAiResponses {
    OpenAiResponses::new(connection("m", server.url(""))).unwrap()
}

#[tokio::test]
async fn unknown_gemini_events_are_passed_over() {
    let server = Server::start([Reply::events(&[
        r#"{"serverStatus":"ok"}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#,
        "{}",
        r#"{"error":null,"later":{"version":2}}"#,
        r#"{"candidates":[{"finishReason":"STOP"}]}"#,
    ])])
    .await;
    assert_eq!(
        play(&gemini(&server), hello()).await.1.unwrap().parts,
        [text("a")]
    );

    // A stream of unknown events is not an answer.
    let server = Server::start(vec![Reply::events(&["{}"]); 3]).await;
    let error = play(&gemini(&server), hello()).await.1.unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Truncated);
}

#[tokio::test]
async fn gemini_counts_without_candidates_keep_earlier_ones() {
    let server = Server::start([Reply::events(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":5,"thoughtsTokenCount":2}}"#,
        r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}"#,
        r#"{"usageMetadata":{}}"#,
    ])])
    .await;
    let usage = play(&gemini(&server), hello()).await.1.unwrap().usage;
    let expected = Usage {
        input: 10,
        output: 7,
        reasoning: 2,
        ..Usage::default()
    };
    assert_eq!(usage, Some(expected));

    let server = Server::start([Reply::events(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"trafficType":"ON_DEMAND"}}"#,
    ])])
    .await;
    assert_eq!(play(&gemini(&server), hello()).await.1.unwrap().usage, None);
}

#[tokio::test]
async fn unreadable_call_of_gemini_has_its_own_stop_reason() {
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        let event = json!({"candidates": [{"finishReason": reason, "content": {}}]}).to_string();
        let server = Server::start([Reply::events(&[&event])]).await;
        let end = play(&gemini(&server), hello()).await.1.unwrap();
        assert_eq!((end.stop, end.parts.len()), (StopReason::MalformedCall, 0));
    }
}

#[tokio::test]
async fn repeated_item_of_responses_is_one_item() {
    let item = |id: &str| json!({"type": "function_call", "id": id, "call_id": format!("call_of_{id}"), "name": "weather", "arguments": "{}"});
    let event = |kind: &str, index: u64, item: serde_json::Value| {
        json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item})
            .to_string()
    };
    let said = json!({"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "a"}]});
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let events = [
        event("done", 0, thought.clone()),
        event("done", 0, thought.clone()),
        event("done", 1, said.clone()),
        event("done", 4, said),
        event("added", 2, item("fc_1")),
        event("done", 2, item("fc_1")),
        event("done", 2, item("fc_1")),
        event("added", 3, item("fc_1")),
        event("done", 3, item("fc_1")),
        // Another item at an index that is already used.
        event("done", 2, item("fc_2")),
        event("done", 5, thought),
        json!({"type": "response.completed", "response": {"status": "completed"}}).to_string(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let server = Server::start([Reply::events(&events)]).await;
    let parts = play(&responses(&server), hello()).await.1.unwrap().parts;
    assert_eq!(
        parts[1..],
        [
            text("a"),
            call("call_of_fc_1", "weather", "{}"),
            call("call_of_fc_2", "weather", "{}")
        ]
    );
    assert_eq!(parts.len(), 4, "{parts:?}");
}

#[tokio::test]
async fn deltas_of_a_repeated_item_are_left_out() {
    let message = |id: &str, text: &str| json!({"type": "message", "id": id, "content": [{"type": "output_text", "text": text}]});
    let call = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "call_of_fc_1", "name": "weather", "arguments": arguments});
    let thought =
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]});
    let item = |kind: &str, at: u64, item: &serde_json::Value| json!({"type": format!("response.output_item.{kind}"), "output_index": at, "item": item});
    // Whole items, with their deltas and with or without the identifier in these.
    let events = |at: u64, item_id: Option<&str>, item_done: &serde_json::Value, kind: &str, delta: &str| {
        let mut piece = json!({"type": format!("response.{kind}.delta"), "output_index": at, "delta": delta});
        if let Some(id) = item_id {
            piece["item_id"] = id.into();
        }
        let mut empty = item_done.clone();
        empty["content"] = json!([]);
        empty["arguments"] = json!("");
        [item("added", at, &empty), piece, item("done", at, item_done)]
    };
    let said = message("msg_1", "a");
    for identified in [true, false] {
        for other in [0, 10] {
            let id = |id| identified.then_some(id);
            let mut sent = Vec::new();
            for offset in [0, other, other + 10] {
                sent.extend(events(
                    offset,
                    id("rs_1"),
                    &thought,
                    "reasoning_summary_text",
                    "hm",
                ));
                sent.extend(events(offset + 1, id("msg_1"), &said, "output_text", "a"));
                let arguments = "function_call_arguments";
                sent.extend(events(offset + 2, id("fc_1"), &call("{}"), arguments, "{}"));
            }
            // Another item at an index of a repeated one.
            sent.extend(events(
                other + 11,
                id("msg_2"),
                &message("msg_2", "b"),
                "output_text",
                "b",
            ));
            sent.push(json!({"type": "response.completed", "response": {"status": "completed"}}));
            let sent: Vec<String> = sent.iter().map(ToString::to_string).collect();
            let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
            let server = Server::start([Reply::events(&sent)]).await;
            let (deltas, end) = play(&responses(&server), hello()).await;
            assert_eq!(
                end.unwrap().parts[1..],
                [text("a"), call_part(), text("b")],
                "{identified} {other}"
            );
            let shown: String = deltas
                .iter()
                .filter_map(|delta| match delta {
                    Delta::Text(text) | Delta::Reasoning(text) => Some(text.as_str()),
                    Delta::CallArguments { fragment, .. } => Some(fragment.as_str()),
                    _ => None,
                })
                .collect();
            assert_eq!(shown, "hma{}b");
        }
    }
}

fn call_part() -> toolcell_core::Part {
    call("call_of_fc_1", "weather", "{}")
}

#[tokio::test]
async fn errors_in_event_streams_are_read_on_every_protocol() {
    let body =
        "event: error\ndata: {\"error\":{\"message\":\"pay first\",\"code\":\"insufficient_quota\"}}\n\n";
    for status in [200, 429] {
        for name in ["openai", "responses", "anthropic", "gemini"] {
            let server = Server::start([Reply::new(status, "text/event-stream", body)]).await;
            let at = || connection("m", server.url(""));
            let provider: Box<dyn Provider> = match name {
                "openai" => Box::new(OpenAi::new(at()).unwrap()),
                "responses" => Box::new(responses(&server)),
                "anthropic" => Box::new(Anthropic::new(at()).unwrap()),
                _ => Box::new(gemini(&server)),
            };
            let error = play(&*provider, hello()).await.1.unwrap_err();
            assert_eq!(
                (error.kind, error.message.as_str()),
                (ProviderErrorKind::QuotaExceeded, "pay first"),
                "{name} {status}"
            );
            // Waiting does not help.
            assert_eq!(server.received().len(), 1, "{name} {status}");
        }
    }
}

#[tokio::test]
async fn error_object_in_a_chat_stream_is_an_error() {
    let error = r#"{"object":"error","message":"model is overloaded","code":400,"type":"BadRequestError"}"#;
    let server = Server::start([Reply::events(&[error])]).await;
    let provider = OpenAi::new(connection("m", server.url(""))).unwrap();
    let error = play(&provider, hello()).await.1.unwrap_err();
    assert_eq!(error.message, "model is overloaded");
}
