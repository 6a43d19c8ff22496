//! Body of a Chat Completions request.

use serde_json::{Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};

use super::{ToolSchemas, WIRE, answer_schema};
use crate::{fallback_text, opaque, sanitize};

/// Maximum length of a call identifier, in bytes. Some servers produce longer ones than others accept.
const MAX_ID_BYTES: usize = 40;

/// Optional fields that a server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect(u8);

impl Dialect {
    /// `stream_options`, which requests the usage.
    const STREAM_OPTIONS: Self = Self(1);
    /// The field `parallel_tool_calls`.
    const PARALLEL_CALLS: Self = Self(2);
    /// `max_completion_tokens` instead of the older `max_tokens`.
    const COMPLETION_TOKENS: Self = Self(4);
    /// The field `prompt_cache_key`.
    const CACHE_KEY: Self = Self(8);
    /// The field `reasoning_effort`.
    const EFFORT: Self = Self(16);
    /// `temperature`, which reasoning models refuse.
    const TEMPERATURE: Self = Self(32);

    pub(super) fn of_server(is_openai: bool) -> Self {
        let common = Self::STREAM_OPTIONS.0 | Self::PARALLEL_CALLS.0 | Self::EFFORT.0 | Self::TEMPERATURE.0;
        let own = Self::COMPLETION_TOKENS.0 | Self::CACHE_KEY.0;
        Self(if is_openai { common | own } else { common })
    }

    fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }

    /// The dialect without the field named in an error; `None` if the error names no field of `body`.
    pub(super) fn without_what(self, refusal: &str, body: &Value) -> Option<Self> {
        for (name, what) in [
            ("stream_options", Self::STREAM_OPTIONS),
            ("parallel_tool_calls", Self::PARALLEL_CALLS),
            ("max_completion_tokens", Self::COMPLETION_TOKENS),
            ("prompt_cache_key", Self::CACHE_KEY),
            ("reasoning_effort", Self::EFFORT),
            ("temperature", Self::TEMPERATURE),
        ] {
            if self.has(what) && refusal.contains(name) && body.get(name).is_some() {
                return Some(Self(self.0 & !what.0));
            }
        }
        // "Use `max_completion_tokens` instead": the only field that a server may require.
        (!self.has(Self::COMPLETION_TOKENS)
            && refusal.contains("max_tokens")
            && refusal.contains("max_completion_tokens"))
        .then_some(Self(self.0 | Self::COMPLETION_TOKENS.0))
    }
}

/// Builds the body of a request. Deterministic: equal requests give equal bytes.
pub(super) fn body(request: &Request, model: &str, dialect: Dialect, schemas: ToolSchemas) -> Value {
    let mut body = json!({
        "model": model,
        "messages": messages(request),
        "stream": true,
    });
    if dialect.has(Dialect::STREAM_OPTIONS) {
        body["stream_options"] = json!({"include_usage": true});
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(|t| tool(t, schemas)).collect();
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = "none".into(),
            ToolChoice::Required => body["tool_choice"] = "required".into(),
            ToolChoice::Tool(name) => {
                body["tool_choice"] = json!({"type": "function", "function": {"name": name}});
            }
        }
        if let Some(parallel) = request.parallel_calls
            && dialect.has(Dialect::PARALLEL_CALLS)
        {
            body["parallel_tool_calls"] = parallel.into();
        }
    }
    if let Some(limit) = request.max_output_tokens {
        let field = if dialect.has(Dialect::COMPLETION_TOKENS) {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        body[field] = limit.into();
    }
    if let Some(temperature) = request.temperature
        && dialect.has(Dialect::TEMPERATURE)
    {
        body["temperature"] = temperature.into();
    }
    if let Some(effort) = &request.reasoning_effort
        && dialect.has(Dialect::EFFORT)
    {
        body["reasoning_effort"] = json!(effort);
    }
    if let Some(wanted) = &request.response_schema {
        let (schema, strict) = answer_schema(wanted.as_value());
        let mut format = json!({"name": "answer", "schema": schema});
        if strict {
            format["strict"] = true.into();
        }
        body["response_format"] = json!({"type": "json_schema", "json_schema": format});
    }
    if let Some(session) = &request.session
        && dialect.has(Dialect::CACHE_KEY)
    {
        body["prompt_cache_key"] = json!(session);
    }
    body
}

fn tool(tool: &ToolSpec, schemas: ToolSchemas) -> Value {
    let (parameters, strict) = schemas.of(tool);
    let mut function = json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
    });
    // Servers refuse unknown fields.
    if strict {
        function["strict"] = true.into();
    }
    json!({"type": "function", "function": function})
}

fn messages(request: &Request) -> Vec<Value> {
    let mut messages = Vec::new();
    if !request.instructions.is_empty() {
        messages.push(json!({"role": "system", "content": request.instructions}));
    }
    // Pictures of results follow after all results of the step: no message may come between those.
    let mut pictures = Vec::new();
    for message in &request.messages {
        if !matches!(**message, Message::Tool { .. }) {
            push_pictures(&mut messages, &mut pictures);
        }
        match &**message {
            Message::User { content } => messages.push(json!({"role": "user", "content": user(content)})),
            Message::Assistant { parts } => messages.push(assistant(parts)),
            Message::Tool {
                call_id,
                name,
                content,
                is_error: _,
            } => messages.push(json!({
                "role": "tool",
                "tool_call_id": sanitize::id(call_id, MAX_ID_BYTES),
                "content": result(content, name, &mut pictures),
            })),
        }
    }
    push_pictures(&mut messages, &mut pictures);
    messages
}

/// Content of a user message: a string if it is a single text, because minimal servers accept nothing else.
fn user(content: &[Content]) -> Value {
    if let [Content::Text { text }] = content {
        return json!(text);
    }
    content.iter().map(user_part).collect()
}

fn user_part(content: &Content) -> Value {
    let text = |text: String| json!({"type": "text", "text": text});
    match content {
        Content::Text { text: t } => text(t.clone()),
        Content::Link(link) => text(fallback_text::link(link)),
        Content::Blob(blob) if fallback_text::is_picture(&blob.media_type) => {
            json!({"type": "image_url", "image_url": {"url": fallback_text::data_url(blob)}})
        }
        Content::Blob(blob) => match blob.media_type.as_str() {
            "application/pdf" => json!({
                "type": "file",
                "file": {"filename": "document.pdf", "file_data": fallback_text::data_url(blob)},
            }),
            "audio/wav" | "audio/mpeg" => json!({
                "type": "input_audio",
                "input_audio": {
                    "data": fallback_text::base64(&blob.data),
                    "format": if blob.media_type == "audio/wav" { "wav" } else { "mp3" },
                },
            }),
            _ => text(fallback_text::blob(blob)),
        },
    }
}

fn assistant(parts: &[Part]) -> Value {
    let mut text = String::new();
    let mut calls = Vec::new();
    let mut message = json!({"role": "assistant", "content": null});
    for part in parts {
        match part {
            Part::Text { text: more, .. } => text.push_str(more),
            Part::Call(call) => calls.push(json!({
                "id": sanitize::id(&call.id, MAX_ID_BYTES),
                "type": "function",
                "function": {"name": sanitize::name(&call.name), "arguments": sanitize::arguments_text(&call.arguments)},
            })),
            Part::Reasoning { .. } => {}
        }
    }
    // Models that reason between calls perform worse, and some servers return an error, without the reasoning of
    // messages with calls; reasoning of plain answers is never needed.
    for part in parts {
        if let Part::Reasoning { text, opaque } = part
            && let Some(given) = opaque::for_wire(WIRE, opaque)
        {
            if let Some(details) = given.get("details") {
                message["reasoning_details"] = details.clone();
            }
            if let Some(field) = given.get("field").and_then(Value::as_str)
                && !calls.is_empty()
            {
                let before = message[field].as_str().unwrap_or_default();
                message[field] = format!("{before}{text}").into();
            }
        }
    }
    if !text.is_empty() || calls.is_empty() {
        message["content"] = text.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Converts a result to text, the only content that the API allows; pictures follow in a user message.
fn result(content: &[Content], name: &str, pictures: &mut Vec<Value>) -> String {
    let mut lines = Vec::new();
    for part in content {
        match part {
            Content::Text { text } => lines.push(text.clone()),
            Content::Link(link) => lines.push(fallback_text::link(link)),
            Content::Blob(blob) if fallback_text::is_picture(&blob.media_type) => {
                lines.push(format!("[{}, shown in the next message]", blob.media_type));
                pictures.push(json!({"type": "text", "text": format!("Picture from the result of `{}`:", sanitize::name(name))}));
                pictures.push(user_part(part));
            }
            Content::Blob(blob) => lines.push(fallback_text::blob(blob)),
        }
    }
    lines.join("\n")
}

fn push_pictures(messages: &mut Vec<Value>, pictures: &mut Vec<Value>) {
    if !pictures.is_empty() {
        messages.push(json!({"role": "user", "content": std::mem::take(pictures)}));
    }
}
