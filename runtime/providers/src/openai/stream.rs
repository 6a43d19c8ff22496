//! Decoder of a streamed Chat Completions answer, from OpenAI and compatible servers.

use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::{Completion, ProviderErrorKind, StopReason, Usage};

use super::WIRE;
use crate::framing::{self, Event};
use crate::http::{Decoder, DecoderState, FailedAttempt, error_in_stream, malformed};
use crate::opaque;
use crate::response_builder::{ResponseBuilder, size};

/// Decoder of the chunks of one answer.
pub(crate) struct ChatDecoder {
    provider: String,
    calls: Vec<Seen>,
    /// Field in which reasoning was received.
    reasoning_field: Option<&'static str>,
    reasoning_details: Vec<Value>,
    refused: bool,
    finish: Option<String>,
    usage: Option<Usage>,
    any_choice: bool,
}

/// Identification of a call in the stream, to assign its deltas.
struct Seen {
    index: Option<u64>,
    id: Option<String>,
    position: usize,
}

impl ChatDecoder {
    pub(crate) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            calls: Vec::new(),
            reasoning_field: None,
            reasoning_details: Vec::new(),
            refused: false,
            finish: None,
            usage: None,
            any_choice: false,
        }
    }

    fn choice(&mut self, choice: &Value, answer: &mut ResponseBuilder) {
        self.any_choice = true;
        // `message` is used by answers that are not streamed.
        let delta = choice.get("delta").or_else(|| choice.get("message"));
        if let Some(delta) = delta {
            self.delta(delta, answer);
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
    }

    fn delta(&mut self, delta: &Value, answer: &mut ResponseBuilder) {
        for field in ["reasoning_content", "reasoning"] {
            if let Some(text) = delta.get(field).and_then(Value::as_str)
                && !text.is_empty()
            {
                // Some servers send the same text in both fields.
                if *self.reasoning_field.get_or_insert(field) == field {
                    answer.reasoning(text);
                }
            }
        }
        let details = delta.get("reasoning_details").and_then(Value::as_array);
        let has_data = |detail: &&Value| detail.as_object().is_some_and(|detail| !detail.is_empty());
        for detail in details.into_iter().flatten().filter(has_data) {
            if answer.keeps(size(detail)) {
                join_detail(&mut self.reasoning_details, detail);
            }
        }
        match delta.get("content") {
            Some(Value::String(text)) => answer.text(text),
            // Mistral's servers send a list of parts.
            Some(Value::Array(parts)) => {
                for text in parts.iter().filter_map(|p| p.get("text")?.as_str()) {
                    answer.text(text);
                }
            }
            _ => {}
        }
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str) {
            self.refused = true;
            answer.text(refusal);
        }
        if let Some(calls) = delta.get("tool_calls").and_then(Value::as_array) {
            for call in calls {
                self.call(call, answer);
            }
        }
    }

    /// Stores opaque data for the reasoning: the field in which it was received, and the details unchanged.
    fn keep_reasoning(&mut self, answer: &mut ResponseBuilder) {
        if self.reasoning_field.is_none() && self.reasoning_details.is_empty() {
            return;
        }
        let mut kept = serde_json::Map::new();
        if let Some(field) = self.reasoning_field {
            kept.insert("field".into(), field.into());
        }
        let each = opaque::of(WIRE, kept.clone().into());
        if !self.reasoning_details.is_empty() {
            kept.insert(
                "details".into(),
                std::mem::take(&mut self.reasoning_details).into(),
            );
        }
        answer.all_reasoning_opaque(opaque::of(WIRE, kept.into()), &each);
    }

    fn call(&mut self, call: &Value, answer: &mut ResponseBuilder) {
        let function = call.get("function").unwrap_or(call);
        let index = call.get("index").and_then(Value::as_u64);
        let id = text_of(call.get("id"));
        let name = text_of(function.get("name"));
        let position = match self.find(index, id, name) {
            Some(position) => {
                if let Some(more) = name {
                    answer.name(position, more);
                }
                position
            }
            None => {
                let Some(position) = answer.call(id, name.unwrap_or_default()) else {
                    return;
                };
                answer.keeps(id.map_or(0, str::len));
                self.calls.push(Seen {
                    index,
                    id: id.map(str::to_owned),
                    position,
                });
                position
            }
        };
        match function.get("arguments") {
            Some(Value::String(fragment)) => answer.arguments(position, fragment),
            Some(object @ Value::Object(_)) => answer.arguments(position, &object.to_string()),
            _ => {}
        }
    }

    /// Index of the call to which a delta belongs; `None` for a new one.
    fn find(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let same_id = |seen: &&Seen| id.is_some() && seen.id.as_deref() == id;
        let seen = match index {
            // Some servers send index 0 for every call and distinguish calls by identifier only.
            Some(_) => self
                .calls
                .iter()
                .rev()
                .find(|seen| seen.index == index && (id.is_none() || seen.id.is_none() || same_id(seen))),
            None if id.is_some() => self.calls.iter().find(same_id),
            // Without both, a delta with a name starts a call, and one without continues the last call.
            None if name.is_some() => None,
            None => self.calls.last(),
        };
        seen.map(|seen| seen.position)
    }
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt> {
        let data = event.data.trim();
        if data == "[DONE]" {
            return if self.any_choice {
                Ok(DecoderState::Done)
            } else {
                Err(malformed(
                    &self.provider,
                    "the answer ended without any content",
                    data,
                ))
            };
        }
        if data.is_empty() {
            return Ok(DecoderState::Open);
        }
        let chunk: Value = framing::parse(data).map_err(|e| {
            malformed(
                &self.provider,
                format_args!("a chunk is not valid JSON ({e})"),
                data,
            )
        })?;
        let is_error = chunk.get("error").is_some_and(|e| !e.is_null())
            || event.name == "error"
            || chunk.get("object").and_then(Value::as_str) == Some("error");
        if is_error {
            return Err(error_in_stream(&self.provider, &chunk));
        }
        match chunk.get("choices").and_then(Value::as_array) {
            Some(choices) => {
                // Only one answer is requested; a second one must not be mixed into it.
                let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
                if let Some(choice) = choices.iter().find(first) {
                    self.choice(choice, answer);
                }
            }
            None if chunk.get("usage").is_some() || chunk.get("object").is_some() => {}
            None => return Err(malformed(&self.provider, "a chunk has no `choices`", data)),
        }
        if let Some(counted) = chunk.get("usage").filter(|u| u.is_object()) {
            self.usage = Some(usage(counted));
        }
        if self.finish.as_deref() == Some("error") {
            return Err(error_in_stream(&self.provider, &chunk));
        }
        Ok(match self.finish {
            Some(_) => DecoderState::Settled,
            None => DecoderState::Open,
        })
    }

    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, FailedAttempt> {
        for position in 0..answer.calls_len() {
            if answer.call_at(position).is_some_and(|call| call.name.is_empty()) {
                return Err(FailedAttempt::fatal(ProviderError::new(
                    &self.provider,
                    ProviderErrorKind::Protocol,
                    "a call has no name",
                )));
            }
        }
        self.keep_reasoning(answer);
        let stop = match self.finish.as_deref() {
            _ if self.refused => StopReason::Refused,
            None | Some("stop" | "tool_calls" | "function_call" | "eos" | "") => StopReason::Complete,
            Some("length" | "max_tokens") => StopReason::MaxTokens,
            Some(reason @ "content_filter") => {
                answer.refused(reason);
                StopReason::Refused
            }
            Some(other) => StopReason::Other(other.to_owned()),
        };
        Ok(answer.complete(stop, self.usage))
    }
}

fn text_of(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Joins deltas of one detail, which have the same index and type.
fn join_detail(details: &mut Vec<Value>, piece: &Value) {
    let same = |name: &str, other: &Value| other.get(name) == piece.get(name);
    if let Some(last) = details.last_mut()
        && last.get("index").is_some()
        && same("index", last)
        && same("type", last)
        && let (Some(last), Some(piece)) = (last.as_object_mut(), piece.as_object())
    {
        for (name, value) in piece {
            match (last.get_mut(name), value) {
                (Some(Value::String(before)), Value::String(more))
                    if matches!(name.as_str(), "text" | "summary" | "data") =>
                {
                    before.push_str(more);
                }
                (Some(_), Value::Null) => {}
                _ => {
                    last.insert(name.clone(), value.clone());
                }
            }
        }
    } else {
        details.push(piece.clone());
    }
}

fn usage(value: &Value) -> Usage {
    let count = |path: &str| framing::count(value, path).unwrap_or(0);
    Usage {
        input: count("/prompt_tokens"),
        cache_read: count("/prompt_tokens_details/cached_tokens").max(count("/prompt_cache_hit_tokens")),
        cache_write: count("/prompt_tokens_details/cache_write_tokens"),
        output: count("/completion_tokens"),
        reasoning: count("/completion_tokens_details/reasoning_tokens"),
        ..Usage::default()
    }
}
