//! Decoder of a streamed Responses answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};
use toolcell_core::provider::{Completion, StopReason, Usage};

use super::WIRE;
use crate::framing::{self, Event};
use crate::http::{Decoder, DecoderState, FailedAttempt, error_in_stream, malformed};
use crate::opaque;
use crate::response_builder::ResponseBuilder;

/// Decoder of the events of one answer.
pub(crate) struct ResponsesDecoder {
    provider: String,
    /// Output items, by index.
    items: BTreeMap<u64, Item>,
    /// Index of the latest item with each identifier.
    ids: HashMap<String, u64>,
    /// Indices at which an item is sent again that is done.
    repeats: BTreeSet<u64>,
    refused: bool,
    stop: StopReason,
    usage: Option<Usage>,
}

/// Output item. Some servers repeat an item, at the same or another index, with its deltas or without.
struct Item {
    id: Option<String>,
    call: Option<usize>,
    /// True if text of the item was received.
    seen: bool,
    is_done: bool,
}

impl ResponsesDecoder {
    pub(crate) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            items: BTreeMap::new(),
            ids: HashMap::new(),
            repeats: BTreeSet::new(),
            refused: false,
            stop: StopReason::Complete,
            usage: None,
        }
    }

    fn added(&mut self, index: u64, item: &Value, answer: &mut ResponseBuilder) {
        let field = |name: &str| {
            item.get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        if let Some(known) = self.known(index, field("id")) {
            if self.is_done(known) && self.repeats.insert(index) {
                answer.keeps(size_of::<Item>());
            }
            return;
        }
        self.repeats.remove(&index);
        answer.close();
        let call = (field("type") == Some("function_call"))
            .then(|| answer.call(field("call_id"), field("name").unwrap_or_default()))
            .flatten();
        let id = field("id").map(str::to_owned);
        if !answer.keeps(size_of::<Item>() + id.as_ref().map_or(0, |id| 2 * id.len())) {
            return;
        }
        if let Some(id) = &id {
            self.ids.insert(id.clone(), index);
        }
        self.items.insert(
            index,
            Item {
                id,
                call,
                seen: false,
                is_done: false,
            },
        );
    }

    /// Index of the item with this identifier, or without one, of the item at this index.
    fn known(&self, index: u64, id: Option<&str>) -> Option<u64> {
        let by_id = id.and_then(|id| {
            let at = *self.ids.get(id)?;
            // Another item may have taken its place.
            let item = self.items.get(&at)?;
            (item.id.as_deref() == Some(id)).then_some(at)
        });
        by_id.or_else(|| {
            let item = self.items.get(&index)?;
            (id.is_none() || item.id.is_none()).then_some(index)
        })
    }

    fn is_done(&self, index: u64) -> bool {
        self.items.get(&index).is_some_and(|item| item.is_done)
    }

    /// Index of the item to which a delta belongs; `None` if the item is done, and its deltas are repeated.
    fn target(&self, index: u64, data: &Value) -> Option<u64> {
        let id = data.get("item_id").and_then(Value::as_str);
        match id.and_then(|id| self.known(index, Some(id))) {
            Some(known) => (!self.is_done(known)).then_some(known),
            // Some gateways change identifiers from event to event.
            None => (!self.repeats.contains(&index)).then_some(index),
        }
    }

    /// Notes that the text of an item is streamed. Some gateways do not announce the item.
    fn see(&mut self, index: u64, answer: &mut ResponseBuilder) {
        match self.items.get_mut(&index) {
            Some(item) => item.seen = true,
            None if answer.keeps(size_of::<Item>()) => {
                let item = Item {
                    id: None,
                    call: None,
                    seen: true,
                    is_done: false,
                };
                self.items.insert(index, item);
            }
            None => {}
        }
    }

    /// Handles a complete item. The item of the start event may lack any field.
    fn done(&mut self, index: u64, item: &Value, answer: &mut ResponseBuilder) {
        let id = item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        if self.known(index, id).is_none() {
            self.added(index, item, answer);
        }
        self.repeats.remove(&index);
        let index = self.known(index, id).unwrap_or(index);
        let Some(begun) = self.items.get_mut(&index) else {
            return;
        };
        if std::mem::replace(&mut begun.is_done, true) {
            return;
        }
        match item.get("type").and_then(Value::as_str) {
            Some("function_call") => {
                let arguments = item.get("arguments").and_then(Value::as_str).unwrap_or_default();
                if let Some(position) = begun.call {
                    answer.whole_arguments(position, arguments);
                }
            }
            Some("reasoning") => {
                let mut kept = Map::new();
                for name in ["type", "id", "summary", "encrypted_content"] {
                    if let Some(value) = item.get(name) {
                        kept.insert(name.into(), value.clone());
                    }
                }
                kept.entry("summary").or_insert_with(|| json!([]));
                answer.reasoning_opaque(opaque::of(WIRE, kept.into()));
            }
            Some("message") => {
                let texts = item.get("content").filter(|_| !begun.seen);
                for part in texts.and_then(Value::as_array).into_iter().flatten() {
                    let text = part.get("text").or_else(|| part.get("refusal"));
                    self.refused |= part.get("refusal").is_some();
                    answer.text(text.and_then(Value::as_str).unwrap_or_default());
                }
                // Commentary or answer; models perform worse without it in the history.
                if let Some(phase) = item.get("phase").filter(|phase| phase.is_string()) {
                    let kept = Map::from_iter([("phase".to_owned(), phase.clone())]);
                    answer.text_opaque(opaque::of(WIRE, kept.into()));
                }
            }
            _ => {}
        }
        answer.close();
    }

    fn ended(&mut self, response: &Value) -> Result<DecoderState, FailedAttempt> {
        let status = response.get("status").and_then(Value::as_str);
        let reason = response
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str);
        self.stop = match (status, reason) {
            (Some("failed" | "cancelled"), _) => return Err(error_in_stream(&self.provider, response)),
            (Some("incomplete"), Some("max_output_tokens")) => StopReason::MaxTokens,
            (Some("incomplete"), Some("content_filter")) => StopReason::Refused,
            (Some("incomplete"), other) => StopReason::Other(other.unwrap_or("incomplete").to_owned()),
            _ if self.refused => StopReason::Refused,
            _ => StopReason::Complete,
        };
        if let Some(counted) = response.get("usage").filter(|u| u.is_object()) {
            let count = |path: &str| framing::count(counted, path).unwrap_or(0);
            self.usage = Some(Usage {
                input: count("/input_tokens"),
                cache_read: count("/input_tokens_details/cached_tokens"),
                cache_write: count("/input_tokens_details/cache_write_tokens"),
                output: count("/output_tokens"),
                reasoning: count("/output_tokens_details/reasoning_tokens"),
                ..Usage::default()
            });
        }
        Ok(DecoderState::Done)
    }
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt> {
        if event.data.trim() == "[DONE]" {
            // Not part of this API; a complete answer has ended before.
            return Ok(DecoderState::Open);
        }
        let data: Value = framing::parse(&event.data).map_err(|e| {
            malformed(
                &self.provider,
                format_args!("an event is not valid JSON ({e})"),
                &event.data,
            )
        })?;
        let index = data.get("output_index").and_then(Value::as_u64).unwrap_or(0);
        let delta = data.get("delta").and_then(Value::as_str).unwrap_or_default();
        let kind = data.get("type").and_then(Value::as_str);
        let target = self.target(index, &data);
        let is_part =
            |kind: &str| kind.ends_with(".delta") || kind == "response.reasoning_summary_part.added";
        if target.is_none() && kind.is_some_and(is_part) {
            return Ok(DecoderState::Open);
        }
        let target = target.unwrap_or(index);
        match kind {
            Some("response.output_item.added") => {
                if let Some(item) = data.get("item") {
                    self.added(index, item, answer);
                }
            }
            Some("response.output_text.delta" | "response.refusal.delta") => {
                self.refused |= kind == Some("response.refusal.delta");
                self.see(target, answer);
                answer.text(delta);
            }
            Some("response.reasoning_summary_text.delta" | "response.reasoning_text.delta") => {
                answer.reasoning(delta);
            }
            Some("response.reasoning_summary_part.added") => {
                if data.get("summary_index").and_then(Value::as_u64).unwrap_or(0) > 0 {
                    answer.reasoning("\n\n");
                }
            }
            Some("response.function_call_arguments.delta") => {
                let item = self.items.get(&target).filter(|item| !item.is_done);
                if let Some(position) = item.and_then(|item| item.call) {
                    answer.arguments(position, delta);
                }
            }
            Some("response.output_item.done") => {
                if let Some(item) = data.get("item") {
                    self.done(index, item, answer);
                }
            }
            Some("response.completed" | "response.incomplete" | "response.failed" | "response.cancelled") => {
                return self.ended(data.get("response").unwrap_or(&data));
            }
            Some("error") => return Err(error_in_stream(&self.provider, &data)),
            // Progress events, and events of later API versions.
            Some(_) => {}
            // An answer that is not streamed.
            None if data.get("output").is_some_and(Value::is_array) => {
                let items = data.get("output").and_then(Value::as_array);
                for (index, item) in (0..).zip(items.into_iter().flatten()) {
                    self.done(index, item, answer);
                }
                return self.ended(&data);
            }
            None if data.get("error").is_some() => return Err(error_in_stream(&self.provider, &data)),
            None => return Err(malformed(&self.provider, "an event has no `type`", &event.data)),
        }
        Ok(DecoderState::Open)
    }

    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, FailedAttempt> {
        Ok(answer.complete(self.stop.clone(), self.usage))
    }
}
