//! Decoder of a streamed chat answer: one JSON object per line, the last one with `done`.

use serde_json::{Value, json};
use toolcell_core::provider::{Completion, StopReason, Usage};

use super::WIRE;
use crate::arguments::Source;
use crate::framing::{self, Event};
use crate::http::{Decoder, DecoderState, FailedAttempt, error_in_stream, malformed};
use crate::opaque;
use crate::response_builder::ResponseBuilder;

/// Decoder of the lines of one answer.
pub(crate) struct OllamaDecoder {
    provider: String,
    stop: Option<String>,
    usage: Option<Usage>,
}

impl OllamaDecoder {
    pub(crate) fn new(provider: &str) -> Self {
        Self {
            provider: provider.into(),
            stop: None,
            usage: None,
        }
    }
}

fn message(message: &Value, source: &Source<'_>, answer: &mut ResponseBuilder) {
    let field = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let thinking = field("thinking");
    if !thinking.is_empty() {
        answer.reasoning(thinking);
        answer.reasoning_opaque(opaque::of(WIRE, json!({})));
    }
    answer.text(field("content"));
    for call in message
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let function = call.get("function").unwrap_or(call);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(position) = answer.call(call.get("id").and_then(Value::as_str), name) else {
            return;
        };
        let arguments = match function.get("arguments") {
            Some(Value::String(arguments)) => arguments.clone(),
            Some(Value::Null) | None => "{}".into(),
            Some(object) => source.written(object),
        };
        answer.arguments(position, &arguments);
    }
}

impl Decoder for OllamaDecoder {
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt> {
        let data: Value = framing::parse(&event.data).map_err(|e| {
            malformed(
                &self.provider,
                format_args!("a line is not valid JSON ({e})"),
                &event.data,
            )
        })?;
        if data.get("error").is_some() {
            return Err(error_in_stream(&self.provider, &data));
        }
        match data.get("message") {
            Some(value) => message(value, &Source::new(&event.data), answer),
            None if data.get("done").is_some() => {}
            None => return Err(malformed(&self.provider, "a line has no `message`", &event.data)),
        }
        if data.get("done").and_then(Value::as_bool) != Some(true) {
            return Ok(DecoderState::Open);
        }
        self.stop = data.get("done_reason").and_then(Value::as_str).map(str::to_owned);
        let count = |name: &str| framing::count(&data, name);
        if count("/prompt_eval_count").is_some() || count("/eval_count").is_some() {
            self.usage = Some(Usage {
                input: count("/prompt_eval_count").unwrap_or(0),
                output: count("/eval_count").unwrap_or(0),
                ..Usage::default()
            });
        }
        Ok(DecoderState::Done)
    }

    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, FailedAttempt> {
        let stop = match self.stop.as_deref() {
            None | Some("stop") => StopReason::Complete,
            Some("length") => StopReason::MaxTokens,
            Some(other) => StopReason::Other(other.to_owned()),
        };
        Ok(answer.complete(stop, self.usage))
    }
}
