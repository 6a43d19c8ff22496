//! Decoder of a streamed Messages answer.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolcell_core::provider::{Completion, StopReason, Usage};

use super::WIRE;
use crate::framing::{self, Event};
use crate::http::{Decoder, DecoderState, FailedAttempt, error_in_stream, malformed};
use crate::opaque;
use crate::response_builder::ResponseBuilder;

/// Decoder of the events of one answer.
pub(crate) struct MessagesDecoder {
    provider: String,
    blocks: BTreeMap<u64, Block>,
    stop: Option<String>,
    usage: Option<Usage>,
}

/// Content block in progress.
enum Block {
    Text,
    Thinking { text: String, signature: String },
    Call(usize),
    Other,
}

impl MessagesDecoder {
    pub(crate) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            blocks: BTreeMap::new(),
            stop: None,
            usage: None,
        }
    }

    fn start(&mut self, index: u64, block: &Value, answer: &mut ResponseBuilder) {
        answer.close();
        let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let begun = match field("type") {
            "text" => {
                answer.text(field("text"));
                Block::Text
            }
            "thinking" => {
                answer.reasoning(field("thinking"));
                answer.keeps(field("signature").len());
                Block::Thinking {
                    text: field("thinking").into(),
                    signature: field("signature").into(),
                }
            }
            "redacted_thinking" => {
                answer.reasoning_opaque(opaque::of(WIRE, block.clone()));
                Block::Other
            }
            "tool_use" => {
                let Some(position) = answer.call(Some(field("id")), field("name")) else {
                    return;
                };
                // Some compatible servers send the whole input here.
                if let Some(input) = block.get("input").and_then(Value::as_object)
                    && !input.is_empty()
                {
                    answer.arguments(position, &Value::Object(input.clone()).to_string());
                }
                Block::Call(position)
            }
            _ => Block::Other,
        };
        self.blocks.insert(index, begun);
    }

    fn delta(&mut self, index: u64, delta: &Value, answer: &mut ResponseBuilder) {
        let field = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        match (field("type"), self.blocks.get_mut(&index)) {
            ("text_delta", _) => answer.text(field("text")),
            ("thinking_delta", Some(Block::Thinking { text, .. })) => {
                text.push_str(field("thinking"));
                answer.reasoning(field("thinking"));
            }
            ("signature_delta", Some(Block::Thinking { signature, .. }))
                if answer.keeps(field("signature").len()) =>
            {
                signature.push_str(field("signature"));
            }
            ("input_json_delta", Some(Block::Call(position))) => {
                answer.arguments(*position, field("partial_json"));
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u64, answer: &mut ResponseBuilder) {
        if let Some(Block::Thinking { text, signature }) = self.blocks.remove(&index)
            && !signature.is_empty()
        {
            let block = json!({"type": "thinking", "thinking": text, "signature": signature});
            answer.reasoning_opaque(opaque::of(WIRE, block));
        }
        answer.close();
    }

    /// Counts are cumulative; omitted ones keep their value.
    fn count(&mut self, counted: &Value) {
        let mut usage = self.usage.unwrap_or_default();
        let field = |pointer: &str| framing::count(counted, pointer);
        let fresh = usage
            .input
            .saturating_sub(usage.cache_read)
            .saturating_sub(usage.cache_write);
        usage.cache_read = field("/cache_read_input_tokens").unwrap_or(usage.cache_read);
        usage.cache_write = field("/cache_creation_input_tokens").unwrap_or(usage.cache_write);
        usage.input = field("/input_tokens")
            .unwrap_or(fresh)
            .saturating_add(usage.cache_read)
            .saturating_add(usage.cache_write);
        usage.output = field("/output_tokens").unwrap_or(usage.output);
        usage.reasoning = field("/output_tokens_details/thinking_tokens").unwrap_or(usage.reasoning);
        self.usage = Some(usage);
    }

    /// Handles an answer that is not streamed.
    fn whole(&mut self, message: &Value, answer: &mut ResponseBuilder) {
        let blocks = message.get("content").and_then(Value::as_array);
        for (index, block) in (0..).zip(blocks.into_iter().flatten()) {
            self.start(index, block, answer);
            self.stop(index, answer);
        }
        self.stop = message
            .get("stop_reason")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if let Some(usage) = message.get("usage") {
            self.count(usage);
        }
    }
}

impl Decoder for MessagesDecoder {
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt> {
        let data: Value = framing::parse(&event.data).map_err(|e| {
            malformed(
                &self.provider,
                format_args!("an event is not valid JSON ({e})"),
                &event.data,
            )
        })?;
        let index = data.get("index").and_then(Value::as_u64).unwrap_or(0);
        match data.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                if let Some(usage) = data.pointer("/message/usage") {
                    self.count(usage);
                }
            }
            Some("content_block_start") => {
                if let Some(block) = data.get("content_block") {
                    self.start(index, block, answer);
                }
            }
            Some("content_block_delta") => {
                if let Some(delta) = data.get("delta") {
                    self.delta(index, delta, answer);
                }
            }
            Some("content_block_stop") => self.stop(index, answer),
            Some("message_delta") => {
                if let Some(reason) = data.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.stop = Some(reason.to_owned());
                }
                if let Some(usage) = data.get("usage") {
                    self.count(usage);
                }
            }
            Some("message_stop") => return Ok(DecoderState::Done),
            Some("message") => {
                self.whole(&data, answer);
                return Ok(DecoderState::Done);
            }
            Some("error") => return Err(error_in_stream(&self.provider, &data)),
            None if data.get("error").is_some() || event.name == "error" => {
                return Err(error_in_stream(&self.provider, &data));
            }
            // `ping`, and events of later API versions.
            Some(_) => {}
            None => return Err(malformed(&self.provider, "an event has no `type`", &event.data)),
        }
        Ok(match self.stop {
            Some(_) => DecoderState::Settled,
            None => DecoderState::Open,
        })
    }

    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, FailedAttempt> {
        let stop = match self.stop.as_deref() {
            None | Some("end_turn" | "tool_use" | "stop_sequence") => StopReason::Complete,
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
            Some(reason @ "refusal") => {
                answer.refused(reason);
                StopReason::Refused
            }
            Some("pause_turn") => StopReason::Paused,
            Some(other) => StopReason::Other(other.to_owned()),
        };
        Ok(answer.complete(stop, self.usage))
    }
}
