//! Decoder of a streamed `generateContent` answer: complete response objects in sequence, without an end marker.

use serde_json::{Map, Value};
use toolcell_core::provider::{Completion, StopReason, Usage};

use super::WIRE;
use crate::arguments;
use crate::framing::Event;
use crate::http::{Decoder, DecoderState, FailedAttempt, error_in_stream, malformed};
use crate::opaque;
use crate::response_builder::ResponseBuilder;

/// Decoder of the response objects of one answer.
pub(crate) struct GeminiDecoder {
    provider: String,
    finish: Option<String>,
    usage: Option<Usage>,
}

impl GeminiDecoder {
    pub(crate) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            finish: None,
            usage: None,
        }
    }

    fn response(&mut self, data: &Value, text: &str, answer: &mut ResponseBuilder) {
        if let Some(candidate) = data.pointer("/candidates/0") {
            for part in candidate
                .pointer("/content/parts")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                part_of(part, text, answer);
            }
            if let Some(reason) = candidate.get("finishReason").and_then(Value::as_str) {
                self.finish = Some(reason.to_owned());
            }
        }
        if let Some(reason) = data
            .pointer("/promptFeedback/blockReason")
            .and_then(Value::as_str)
        {
            self.finish = Some(format!("PROMPT_{reason}"));
        }
        if let Some(counted) = data.get("usageMetadata") {
            let count = |name: &str| counted.get(name).and_then(Value::as_u64).unwrap_or(0);
            let thoughts = count("thoughtsTokenCount");
            self.usage = Some(Usage {
                input: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
                cache_read: count("cachedContentTokenCount"),
                cache_write: 0,
                // The candidates' count does not include reasoning.
                output: count("candidatesTokenCount").saturating_add(thoughts),
                reasoning: thoughts,
            });
        }
    }
}

fn part_of(part: &Value, text: &str, answer: &mut ResponseBuilder) {
    let signature = part.get("thoughtSignature");
    if let Some(call) = part.get("functionCall") {
        let field = |name: &str| call.get(name).and_then(Value::as_str);
        let position = answer.call(field("id"), field("name").unwrap_or_default());
        let arguments = match call.get("args") {
            Some(object @ Value::Object(_)) => arguments::written(object, text),
            _ => "{}".into(),
        };
        answer.arguments(position, &arguments);
        let mut kept = Map::new();
        if let Some(signature) = signature {
            kept.insert("thoughtSignature".into(), signature.clone());
        }
        if let Some(id) = field("id").filter(|id| !id.is_empty()) {
            kept.insert("id".into(), id.into());
        }
        // Also if empty: it marks the call as this API's own.
        if let Some(call) = answer.call_at(position) {
            call.opaque = opaque::of(WIRE, kept.into());
        }
        return;
    }
    let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
    let signature = signature.filter(|_| !is_thought);
    if signature.is_some() {
        // A part with a signature is sent back unchanged and is not merged with others.
        answer.close();
    }
    match part.get("text").and_then(Value::as_str) {
        Some(text) if is_thought => answer.reasoning(text),
        Some(text) => answer.text(text),
        None => {
            if let Some(kind) = part.pointer("/inlineData/mimeType").and_then(Value::as_str) {
                answer.text(&format!(
                    "[the model answered with {kind}, which is not supported]"
                ));
            }
        }
    }
    if let Some(signature) = signature {
        let kept = Map::from_iter([("thoughtSignature".to_owned(), signature.clone())]);
        answer.text_opaque(opaque::of(WIRE, kept.into()));
    }
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt> {
        let data: Value = serde_json::from_str(&event.data).map_err(|e| {
            malformed(
                &self.provider,
                format_args!("a response is not valid JSON ({e})"),
                &event.data,
            )
        })?;
        // Without `alt=sse`, or through some proxies, the responses arrive as one list.
        let responses = match &data {
            Value::Array(responses) => responses.as_slice(),
            one => std::slice::from_ref(one),
        };
        for response in responses {
            if response.get("error").is_some() {
                return Err(error_in_stream(&self.provider, response));
            }
            let known = [
                "candidates",
                "usageMetadata",
                "promptFeedback",
                "modelVersion",
                "responseId",
            ];
            if !known.iter().any(|name| response.get(name).is_some()) {
                return Err(malformed(
                    &self.provider,
                    "a response has no `candidates`",
                    &event.data,
                ));
            }
            self.response(response, &event.data, answer);
        }
        Ok(match self.finish {
            Some(_) => DecoderState::Settled,
            None => DecoderState::Open,
        })
    }

    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, FailedAttempt> {
        let stop = match self.finish.as_deref() {
            None | Some("STOP") => StopReason::Complete,
            Some("MAX_TOKENS") => StopReason::MaxTokens,
            Some(
                "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY"
                | "LANGUAGE",
            ) => StopReason::Refused,
            Some(other) if other.starts_with("PROMPT_") => StopReason::Refused,
            // `MALFORMED_FUNCTION_CALL` and similar: the model failed to write a valid call.
            Some(other) => StopReason::Other(other.to_owned()),
        };
        Ok(answer.complete(stop, self.usage))
    }
}
