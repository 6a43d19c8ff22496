//! Body of a Chat Completions request.

use serde_json::{Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};

use super::{ToolSchemas, WIRE, answer_schema};
use crate::http::{Dialect, Feature};
use crate::{fallback_text, history, opaque, sanitize};

/// Maximum length of a call identifier, in bytes. Some servers produce longer ones than others accept.
const MAX_ID_BYTES: usize = 40;

/// Builds the body of a request. Deterministic: equal requests give equal bytes.
pub(super) fn body(request: &Request, model: &str, dialect: Dialect, schemas: ToolSchemas) -> Value {
    let schemas = match dialect.takes(Feature::Strict) {
        true => schemas,
        false => ToolSchemas::Loose,
    };
    let mut body = json!({
        "model": model,
        "messages": messages(request),
        "stream": true,
    });
    body["stream_options"] = json!({"include_usage": true});
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
        if let Some(parallel) = request.parallel_calls {
            body["parallel_tool_calls"] = parallel.into();
        }
    }
    if let Some(limit) = dialect.output_limit(request.max_output_tokens) {
        body[limit_name(dialect)] = limit.into();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.into();
    }
    if let Some(top_p) = request.top_p {
        body["top_p"] = top_p.into();
    }
    if !request.stop.is_empty() {
        body["stop"] = json!(request.stop);
    }
    if let Some(seed) = request.seed {
        body["seed"] = seed.into();
    }
    if let Some(effort) = &request.reasoning_effort {
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
    // Compatible servers have no use for it.
    if let Some(session) = &request.session
        && dialect.is_own_service
    {
        body["prompt_cache_key"] = json!(session);
    }
    body
}

/// Name of the limit of an answer: the older one at compatible servers, unless the server refused it.
fn limit_name(dialect: Dialect) -> &'static str {
    let takes_newer = dialect.takes(Feature::CompletionTokens);
    match (takes_newer, dialect.takes(Feature::MaxTokens)) {
        (true, true) if !dialect.is_own_service => "max_tokens",
        (true, _) => "max_completion_tokens",
        (false, _) => "max_tokens",
    }
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
    for message in history::normalise(&request.messages) {
        match &*message {
            Message::User { content } => {
                let content = user(content, std::mem::take(&mut pictures));
                messages.push(json!({"role": "user", "content": content}));
            }
            Message::Assistant { parts } => {
                push_pictures(&mut messages, &mut pictures);
                messages.push(assistant(parts));
            }
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

/// Content of a user message: a string if it is only text, because minimal servers accept nothing else. `before` are the
/// pictures of the results before it.
fn user(content: &[Content], before: Vec<Value>) -> Value {
    let texts = content.iter().map(|part| match part {
        Content::Text { text } => Some(text.as_str()),
        _ => None,
    });
    if before.is_empty()
        && let Some(texts) = texts.collect::<Option<Vec<&str>>>()
    {
        return json!(texts.join("\n\n"));
    }
    let parts = content.iter().filter(|part| !history::is_blank_part(part));
    before.into_iter().chain(parts.map(user_part)).collect()
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
            Part::File { blob, .. } => text.push_str(&fallback_text::made(blob)),
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
    if !text.trim().is_empty() || calls.is_empty() {
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
