//! Decoder of a streamed `generateContent` answer: complete response objects in sequence, without an end marker.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use toolcell_core::Blob;
use toolcell_core::provider::{Completion, StopReason, Usage};

use super::WIRE;
use crate::arguments::Source;
use crate::framing::{self, Event};
use crate::http::{Decoder, DecoderState, FailedAttempt, error_in_stream, malformed};
use crate::opaque;
use crate::response_builder::ResponseBuilder;

/// Decoder of the response objects of one answer.
pub(crate) struct GeminiDecoder {
    provider: String,
    finish: Option<String>,
    counts: Counts,
}

/// Latest token counts. They are cumulative, and an event may lack some of them.
#[derive(Debug, Default)]
struct Counts {
    prompt: Option<u64>,
    tool_prompt: Option<u64>,
    cached: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
}

impl Counts {
    fn add(&mut self, counted: &Value) {
        for (count, name) in [
            (&mut self.prompt, "/promptTokenCount"),
            (&mut self.tool_prompt, "/toolUsePromptTokenCount"),
            (&mut self.cached, "/cachedContentTokenCount"),
            (&mut self.candidates, "/candidatesTokenCount"),
            (&mut self.thoughts, "/thoughtsTokenCount"),
        ] {
            *count = framing::count(counted, name).or(*count);
        }
    }

    fn usage(&self) -> Option<Usage> {
        self.prompt.or(self.candidates).or(self.thoughts)?;
        let thoughts = self.thoughts.unwrap_or(0);
        Some(Usage {
            input: self
                .prompt
                .unwrap_or(0)
                .saturating_add(self.tool_prompt.unwrap_or(0)),
            cache_read: self.cached.unwrap_or(0),
            cache_write: 0,
            // The candidates' count does not include reasoning.
            output: self.candidates.unwrap_or(0).saturating_add(thoughts),
            reasoning: thoughts,
            ..Usage::default()
        })
    }
}

impl GeminiDecoder {
    pub(crate) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            finish: None,
            counts: Counts::default(),
        }
    }

    fn response(&mut self, data: &Value, source: &Source<'_>, answer: &mut ResponseBuilder) {
        if let Some(candidate) = data.pointer("/candidates/0") {
            for part in candidate
                .pointer("/content/parts")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                part_of(part, source, answer);
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
            self.counts.add(counted);
        }
    }
}

fn part_of(part: &Value, source: &Source<'_>, answer: &mut ResponseBuilder) {
    let signature = part.get("thoughtSignature");
    if let Some(call) = part.get("functionCall") {
        let field = |name: &str| call.get(name).and_then(Value::as_str);
        let Some(position) = answer.call(field("id"), field("name").unwrap_or_default()) else {
            return;
        };
        let arguments = match call.get("args") {
            Some(object @ Value::Object(_)) => source.written(object),
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
        answer.call_opaque(position, opaque::of(WIRE, kept.into()));
        return;
    }
    let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
    let is_empty = |signature: &Value| signature.is_null() || signature.as_str() == Some("");
    let signature = signature.filter(|signature| !is_thought && !is_empty(signature));
    if signature.is_some() {
        // A part with a signature is sent back unchanged and is not merged with others.
        answer.close();
    }
    match part.get("text").and_then(Value::as_str) {
        Some(text) if is_thought => answer.reasoning(text),
        Some(text) => answer.text(text),
        None => {
            if let Some(data) = part.get("inlineData").filter(|_| !is_thought) {
                let field = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
                let opaque = signature.map_or(Value::Null, signed);
                match STANDARD.decode(field("data")) {
                    Ok(bytes) => answer.file(
                        Blob {
                            media_type: field("mimeType").to_owned(),
                            data: bytes,
                        },
                        opaque,
                    ),
                    Err(_) => answer.text("[the model answered with a file that is not valid base64]"),
                }
                return;
            }
        }
    }
    if let Some(signature) = signature {
        answer.text_opaque(signed(signature));
    }
}

/// Data of a part with a signature, which is sent back with it.
fn signed(signature: &Value) -> Value {
    let kept = Map::from_iter([("thoughtSignature".to_owned(), signature.clone())]);
    opaque::of(WIRE, kept.into())
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt> {
        let data: Value = framing::parse(&event.data).map_err(|e| {
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
        let source = Source::new(&event.data);
        for response in responses {
            if response.get("error").is_some_and(|error| !error.is_null()) {
                return Err(error_in_stream(&self.provider, response));
            }
            let known = [
                "candidates",
                "usageMetadata",
                "promptFeedback",
                "modelVersion",
                "responseId",
            ];
            // Events of later API versions and of gateways are passed over.
            if known.iter().any(|name| response.get(name).is_some()) {
                self.response(response, &source, answer);
            }
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
                reason @ ("SAFETY"
                | "RECITATION"
                | "BLOCKLIST"
                | "PROHIBITED_CONTENT"
                | "SPII"
                | "IMAGE_SAFETY"
                | "IMAGE_PROHIBITED_CONTENT"
                | "IMAGE_RECITATION"
                | "LANGUAGE"),
            ) => {
                answer.refused(reason);
                StopReason::Refused
            }
            Some(other) if other.starts_with("PROMPT_") => {
                let reason = other.trim_start_matches("PROMPT_");
                answer.refused(&format!("the prompt was blocked, {reason}"));
                StopReason::Refused
            }
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS") => {
                StopReason::MalformedCall
            }
            Some(other) => StopReason::Other(other.to_owned()),
        };
        Ok(answer.complete(stop, self.counts.usage()))
    }
}
