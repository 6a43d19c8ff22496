//! Body of a Responses request.

use serde_json::{Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};

use super::WIRE;
use crate::http::{Dialect, Feature};
use crate::openai::ToolSchemas;
use crate::{fallback_text, history, opaque, sanitize};

/// Maximum length of a call identifier, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Builds the body of a request. Deterministic: equal requests give equal bytes.
pub(super) fn body(request: &Request, model: &str, dialect: Dialect, schemas: ToolSchemas) -> Value {
    let with_reasoning = dialect.takes(Feature::PastReasoning);
    let schemas = match dialect.takes(Feature::Strict) {
        true => schemas,
        false => ToolSchemas::Loose,
    };
    let mut body = json!({
        "model": model,
        "input": input(request, with_reasoning),
        "stream": true,
        "store": false,
        "include": ["reasoning.encrypted_content"],
    });
    if !request.instructions.is_empty() {
        body["instructions"] = json!(request.instructions);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(|t| tool(t, schemas)).collect();
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body["tool_choice"] = "none".into(),
            ToolChoice::Required => body["tool_choice"] = "required".into(),
            ToolChoice::Tool(name) => body["tool_choice"] = json!({"type": "function", "name": name}),
        }
        if let Some(parallel) = request.parallel_calls {
            body["parallel_tool_calls"] = parallel.into();
        }
    }
    if let Some(limit) = dialect.output_limit(request.max_output_tokens) {
        body["max_output_tokens"] = limit.into();
    }
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.into();
    }
    if let Some(top_p) = request.top_p {
        body["top_p"] = top_p.into();
    }
    if let Some(effort) = &request.reasoning_effort {
        body["reasoning"] = json!({"effort": effort, "summary": "auto"});
    }
    if let Some(wanted) = &request.response_schema {
        let (schema, strict) = crate::openai::answer_schema(wanted.as_value());
        body["text"] = json!({
            "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": strict},
        });
    }
    if let Some(session) = &request.session {
        body["prompt_cache_key"] = json!(session);
    }
    body
}

fn tool(tool: &ToolSpec, schemas: ToolSchemas) -> Value {
    let (parameters, strict) = schemas.of(tool);
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": strict,
    })
}

fn input(request: &Request, with_reasoning: bool) -> Vec<Value> {
    let mut items = Vec::new();
    for message in history::normalise(&request.messages) {
        match &*message {
            Message::User { content } => {
                let content = match &content[..] {
                    [Content::Text { text }] => json!(text),
                    several => (several.iter())
                        .filter(|content| !history::is_blank_part(content))
                        .map(part)
                        .collect(),
                };
                items.push(json!({"role": "user", "content": content}));
            }
            Message::Assistant { parts } => assistant(parts, with_reasoning, &mut items),
            Message::Tool { call_id, content, .. } => items.push(json!({
                "type": "function_call_output",
                "call_id": sanitize::id(call_id, MAX_ID_BYTES),
                "output": output(content),
            })),
        }
    }
    items
}

fn part(content: &Content) -> Value {
    let text = |text: String| json!({"type": "input_text", "text": text});
    match content {
        Content::Text { text: t } => text(t.clone()),
        Content::Link(link) => text(fallback_text::link(link)),
        Content::Blob(blob) if fallback_text::is_picture(&blob.media_type) => {
            json!({"type": "input_image", "detail": "auto", "image_url": fallback_text::data_url(blob)})
        }
        Content::Blob(blob) if blob.media_type == "application/pdf" => {
            json!({"type": "input_file", "filename": "document.pdf", "file_data": fallback_text::data_url(blob)})
        }
        Content::Blob(blob) => text(fallback_text::blob(blob)),
    }
}

fn assistant(parts: &[Part], with_reasoning: bool, items: &mut Vec<Value>) {
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Text { text, .. } if text.trim().is_empty() => {}
            Part::Text { text, opaque } => {
                let mut item = json!({"role": "assistant", "content": text});
                if let Some(phase) = opaque::for_wire(WIRE, opaque).and_then(|kept| kept.get("phase")) {
                    item["phase"] = phase.clone();
                }
                items.push(item);
            }
            Part::File { blob, .. } => {
                items.push(json!({"role": "assistant", "content": fallback_text::made(blob)}));
            }
            Part::Call(call) => items.push(json!({
                "type": "function_call",
                "call_id": sanitize::id(&call.id, MAX_ID_BYTES),
                "name": sanitize::name(&call.name),
                "arguments": sanitize::arguments_text(&call.arguments),
            })),
            Part::Reasoning { opaque, .. } => {
                // The API refuses reasoning whose next item is missing, such as a truncated call.
                let followed = parts[at + 1..].iter().any(|p| match p {
                    Part::Text { text, .. } => !text.trim().is_empty(),
                    Part::Call(_) | Part::File { .. } => true,
                    Part::Reasoning { .. } => false,
                });
                if let Some(item) = opaque::for_wire(WIRE, opaque)
                    && followed
                    && with_reasoning
                {
                    items.push(item.clone());
                }
            }
        }
    }
}

/// Converts a result: a string if it consists of text only.
fn output(content: &[Content]) -> Value {
    let texts: Option<Vec<String>> = content
        .iter()
        .filter(|part| !history::is_blank_part(part))
        .map(|part| match part {
            Content::Text { text } => Some(text.clone()),
            Content::Link(link) => Some(fallback_text::link(link)),
            Content::Blob(_) => None,
        })
        .collect();
    match texts {
        Some(texts) => json!(texts.join("\n")),
        None => (content.iter())
            .filter(|content| !history::is_blank_part(content))
            .map(part)
            .collect(),
    }
}
