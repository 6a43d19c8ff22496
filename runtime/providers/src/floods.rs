//! Floods: each string member of each event of each protocol, repeated with a megabyte in it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolcell_core::Part;
use toolcell_core::provider::{ProviderErrorKind, Request};

use crate::anthropic::MessagesDecoder;
use crate::framing::Event;
use crate::gemini::GeminiDecoder;
use crate::http::Decoder;
use crate::ollama::OllamaDecoder;
use crate::openai::ChatDecoder;
use crate::response_builder::{MAX_ANSWER_BYTES, MAX_CALLS, ResponseBuilder, size};
use crate::responses::ResponsesDecoder;

/// Size of each string of a flood, in bytes.
const FLOOD: usize = 1 << 20;

/// Rounds of a flood: also of a file, whose data are shorter than their text.
const ROUNDS: usize = 3 * MAX_ANSWER_BYTES / FLOOD / 2;

/// Number that is replaced by that of the round.
const ROUND: u64 = 77;

/// JSON pointers of the strings in a value, except for those that tell its kind.
fn strings(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) if at.ends_with("/type") || at.ends_with("/role") => {}
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            (0..)
                .zip(items)
                .for_each(|(i, item): (usize, _)| strings(item, &format!("{at}/{i}"), found));
        }
        Value::Object(map) => {
            map.iter()
                .for_each(|(name, item)| strings(item, &format!("{at}/{name}"), found));
        }
        _ => {}
    }
}

/// Gives each round its own indices and texts, except for those that tell the kind of something.
fn in_round(value: &mut Value, round: usize) {
    match value {
        Value::Number(number) if number.as_u64() == Some(ROUND) => *value = round.into(),
        Value::String(text) => *text = text.replace('#', &format!("{round:08}")),
        Value::Array(items) => items.iter_mut().for_each(|item| in_round(item, round)),
        Value::Object(map) => map.values_mut().for_each(|item| in_round(item, round)),
        _ => {}
    }
}

/// Memory of the strings of a part.
fn memory(part: &Part) -> usize {
    match part {
        Part::Text { text, opaque } | Part::Reasoning { text, opaque } => text.len() + size(opaque),
        Part::File { blob, opaque } => blob.data.len() + size(opaque),
        Part::Call(call) => call.id.len() + call.name.len() + call.arguments.len() + size(&call.opaque),
    }
}

/// True if the limit ended the answer; otherwise nothing of the flood may be in it.
fn is_limited(mut decoder: Box<dyn Decoder>, events: &[Value], flooded: usize, pointer: &str) -> bool {
    let mut answer = ResponseBuilder::to(&Request::default(), "p");
    for round in 0..ROUNDS {
        for (index, event) in events.iter().enumerate() {
            let mut event = event.clone();
            in_round(&mut event, round);
            if index == flooded
                && let Some(text) = event.pointer_mut(pointer)
            {
                *text = format!("{round:08}{}", "x".repeat(FLOOD)).into();
            }
            let event = Event {
                name: String::new(),
                data: event.to_string(),
            };
            if decoder.event(event, &mut answer).is_err() {
                return false;
            }
            answer.take_deltas();
            if let Err(failure) = answer.check_size() {
                assert_eq!(failure.error.kind, ProviderErrorKind::Protocol);
                return true;
            }
        }
    }
    let parts = decoder
        .finish(&mut answer)
        .map(|end| end.parts)
        .unwrap_or_default();
    let kept: usize = parts.iter().map(memory).sum();
    assert!(kept < FLOOD, "{kept} bytes of {pointer} in event {flooded}");
    false
}

/// Floods each string; returns those without a limit, as `event/pointer`.
fn without_limit(events: &[Value], decoder: impl Fn() -> Box<dyn Decoder>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        let mut pointers = Vec::new();
        strings(event, "", &mut pointers);
        for pointer in pointers {
            if !is_limited(decoder(), events, index, &pointer) {
                found.insert(format!("{index}{pointer}"));
            }
        }
    }
    found
}

#[test]
fn every_string_of_chat_completions_counts() {
    let events = [
        json!({"id": "a", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {
            "role": "assistant", "content": "a", "refusal": "a", "reasoning_content": "a",
            "reasoning_details": [{"type": "reasoning.text", "id": "a", "text": "a", "signature": "a", "index": ROUND}]}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "a"}], "tool_calls": [
            {"index": ROUND, "id": "call_#", "type": "function", "function": {"name": "f"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": ROUND, "id": "call_#", "function": {"name": "g", "arguments": "{"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": ROUND, "function": {"arguments": "}"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    ];
    let dropped = ["0/id", "0/model", "0/object", "4/choices/0/finish_reason"];
    assert_eq!(
        without_limit(&events, || Box::new(ChatDecoder::new("p"))),
        dropped.map(str::to_owned).into()
    );
}

#[test]
fn every_string_of_responses_counts() {
    let item = |kind: &str, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": ROUND, "item": item});
    let delta = |kind: &str| json!({"type": format!("response.{kind}.delta"), "output_index": ROUND, "item_id": "of_gateway_#", "delta": "a"});
    let call = |arguments: &str| json!({"type": "function_call", "id": "fc_#", "call_id": "call_#", "name": "f", "arguments": arguments});
    let events = [
        item("added", call("")),
        delta("function_call_arguments"),
        item("done", call("{}")),
        delta("output_text"),
        delta("refusal"),
        delta("reasoning_summary_text"),
        delta("reasoning_text"),
        item(
            "done",
            json!({"type": "reasoning", "id": "rs_#", "encrypted_content": "a",
            "summary": [{"type": "summary_text", "text": "a"}]}),
        ),
        item(
            "done",
            json!({"type": "message", "id": "msg_#", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "a"}]}),
        ),
    ];
    let dropped = [
        "0/item/arguments",
        "1/item_id",
        "2/item/call_id",
        "2/item/name",
        "3/item_id",
        "4/item_id",
        "5/item_id",
        "6/item_id",
    ];
    assert_eq!(
        without_limit(&events, || Box::new(ResponsesDecoder::new("p"))),
        dropped.map(str::to_owned).into()
    );
}

#[test]
fn every_string_of_messages_counts() {
    let start = |block: Value| json!({"type": "content_block_start", "index": ROUND, "content_block": block});
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": ROUND, "delta": delta});
    let stop = || json!({"type": "content_block_stop", "index": ROUND});
    let events = [
        json!({"type": "message_start", "message": {"id": "a", "role": "assistant", "model": "m"}}),
        start(json!({"type": "thinking", "thinking": "a", "signature": "a"})),
        delta(json!({"type": "thinking_delta", "thinking": "a"})),
        delta(json!({"type": "signature_delta", "signature": "a"})),
        stop(),
        start(json!({"type": "redacted_thinking", "data": "a"})),
        stop(),
        start(json!({"type": "text", "text": "a"})),
        delta(json!({"type": "text_delta", "text": "a"})),
        start(json!({"type": "tool_use", "id": "call_#", "name": "f", "input": {}})),
        delta(json!({"type": "input_json_delta", "partial_json": "{}"})),
        stop(),
        start(json!({"type": "tool_use", "id": "dall_#", "name": "f", "input": {"a": "a"}})),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": "a"}}),
    ];
    let dropped = [
        "0/message/id",
        "0/message/model",
        "13/delta/stop_reason",
        "13/delta/stop_sequence",
    ];
    assert_eq!(
        without_limit(&events, || Box::new(MessagesDecoder::new("p"))),
        dropped.map(str::to_owned).into()
    );
}

#[test]
fn every_string_of_gemini_counts() {
    let events = [
        json!({"responseId": "a", "modelVersion": "m", "candidates": [{"content": {"role": "model", "parts": [
            {"text": "a", "thoughtSignature": "a"},
            {"text": "a", "thought": true, "thoughtSignature": "a"},
            {"functionCall": {"id": "call_#", "name": "f", "args": {"a": "a"}}, "thoughtSignature": "a"},
            {"inlineData": {"mimeType": "image/png", "data": "aaaa"}, "thoughtSignature": "a"}]}}]}),
        json!({"candidates": [{"finishReason": "STOP"}], "promptFeedback": {"blockReason": "a"}}),
    ];
    let dropped = [
        "0/candidates/0/content/parts/1/thoughtSignature",
        "0/candidates/0/content/parts/3/inlineData/mimeType",
        "0/modelVersion",
        "0/responseId",
        "1/candidates/0/finishReason",
        "1/promptFeedback/blockReason",
    ];
    assert_eq!(
        without_limit(&events, || Box::new(GeminiDecoder::new("p"))),
        dropped.map(str::to_owned).into()
    );
}

#[test]
fn every_string_of_ollama_counts() {
    let events = [
        json!({"model": "m", "created_at": "a", "message": {"role": "assistant", "content": "a", "thinking": "a",
        "tool_calls": [{"id": "call_#", "function": {"name": "f", "arguments": {"a": "a"}}},
            {"function": {"name": "f", "arguments": "{}"}}]}, "done_reason": "a", "done": false}),
    ];
    let dropped = ["0/created_at", "0/done_reason", "0/model"];
    assert_eq!(
        without_limit(&events, || Box::new(OllamaDecoder::new("p"))),
        dropped.map(str::to_owned).into()
    );
}

#[test]
fn calls_of_one_event_end_at_their_limit() {
    let call = json!({"functionCall": {"name": "f", "args": {"n": 0.5}}});
    let gemini = json!({"candidates": [{"content": {"parts": vec![call; 20_000]}}]});
    let call = json!({"function": {"name": "f", "arguments": {"n": 0.5}}});
    let ollama = json!({"message": {"tool_calls": vec![call; 20_000]}});
    let decoders: [(Value, Box<dyn Decoder>); 2] = [
        (gemini, Box::new(GeminiDecoder::new("p"))),
        (ollama, Box::new(OllamaDecoder::new("p"))),
    ];
    for (event, mut decoder) in decoders {
        let mut answer = ResponseBuilder::to(&Request::default(), "p");
        let event = Event {
            name: String::new(),
            data: event.to_string(),
        };
        assert!(decoder.event(event, &mut answer).is_ok());
        assert!(answer.check_size().is_err());
        assert_eq!(answer.calls_len(), MAX_CALLS);
    }
}
