//! Property tests: no response of a server makes a decoder panic.

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcell_core::provider::Request;

use crate::anthropic::MessagesDecoder;
use crate::framing::Event;
use crate::gemini::GeminiDecoder;
use crate::http::Decoder;
use crate::ollama::OllamaDecoder;
use crate::openai::ChatDecoder;
use crate::response_builder::ResponseBuilder;
use crate::responses::ResponsesDecoder;

/// Keywords of the protocols.
pub(crate) const WORDS: &[&str] = &[
    "type",
    "index",
    "delta",
    "message",
    "content",
    "content_block",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_start",
    "message_delta",
    "message_stop",
    "text",
    "text_delta",
    "thinking",
    "tool_use",
    "input_json_delta",
    "partial_json",
    "id",
    "name",
    "input",
    "usage",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "choices",
    "tool_calls",
    "function",
    "arguments",
    "finish_reason",
    "stop",
    "length",
    "reasoning",
    "reasoning_details",
    "error",
    "code",
    "response.output_item.added",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.completed",
    "response",
    "output_index",
    "item",
    "function_call",
    "call_id",
    "output",
    "status",
    "incomplete",
    "candidates",
    "parts",
    "functionCall",
    "args",
    "thoughtSignature",
    "finishReason",
    "STOP",
    "usageMetadata",
    "thoughtsTokenCount",
    "candidatesTokenCount",
    "done",
    "done_reason",
    "prompt_eval_count",
    "stop_reason",
    "max_tokens",
    "signature",
    "[DONE]",
    "",
];

fn values() -> impl Strategy<Value = Value> {
    let word = proptest::sample::select(WORDS);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        prop_oneof![Just(0u64), Just(1), Just(u64::MAX)].prop_map(Value::from),
        Just(Value::Null),
        Just(json!(true)),
        Just(json!(-1)),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map(word.clone(), inner, 0..6).prop_map(|map| map
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

fn read(mut decoder: impl Decoder, events: &[String]) {
    let mut answer = ResponseBuilder::to(&Request::default(), "p");
    for data in events {
        let event = Event {
            name: String::new(),
            data: data.clone(),
        };
        let _ = decoder.event(event, &mut answer);
        let _ = answer.take_deltas();
    }
    let _ = decoder.finish(&mut answer);
}

#[test]
fn empty_provider_data_is_no_progress() {
    let chat = |detail: Value| json!({"choices": [{"index": 0, "delta": {"reasoning_details": detail}}]});
    let gemini =
        |signature: Value| json!({"candidates": [{"content": {"parts": [{"thoughtSignature": signature}]}}]});
    for (data, is_progress) in [
        (chat(json!([{}, null, [], 0])), false),
        (chat(json!([{"text": "a"}])), true),
        (gemini(json!("")), false),
        (gemini(json!(null)), false),
        (gemini(json!("a")), true),
    ] {
        let mut answer = ResponseBuilder::to(&Request::default(), "p");
        let mut decoder: Box<dyn Decoder> = match data.get("choices") {
            Some(_) => Box::new(ChatDecoder::new("p")),
            None => Box::new(GeminiDecoder::new("p")),
        };
        let event = Event {
            name: String::new(),
            data: data.to_string(),
        };
        assert!(decoder.event(event, &mut answer).is_ok(), "{data}");
        assert_eq!(answer.progress() > 0, is_progress, "{data}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn no_event_panics_a_decoder(events in proptest::collection::vec(values(), 0..6)) {
        let events: Vec<String> = events.iter().map(Value::to_string).collect();
        read(ChatDecoder::new("p"), &events);
        read(ResponsesDecoder::new("p"), &events);
        read(MessagesDecoder::new("p"), &events);
        read(GeminiDecoder::new("p"), &events);
        read(OllamaDecoder::new("p"), &events);
    }

    #[test]
    fn no_text_in_place_of_an_event_panics_a_decoder(events in proptest::collection::vec(".{0,20}", 0..4)) {
        read(ChatDecoder::new("p"), &events);
        read(ResponsesDecoder::new("p"), &events);
        read(MessagesDecoder::new("p"), &events);
        read(GeminiDecoder::new("p"), &events);
        read(OllamaDecoder::new("p"), &events);
    }
}
