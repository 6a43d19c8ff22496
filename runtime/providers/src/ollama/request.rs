//! Body of a chat request.

use serde_json::{Map, Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Content, Message, Part, ToolSpec};

use super::WIRE;
use crate::sanitize::PastArguments;
use crate::{fallback_text, history, opaque, sanitize, schema};

/// Builds the body of a request. Deterministic: equal requests give equal bytes.
pub(super) fn body(request: &Request, model: &str, context: u64, keep_alive: Option<&str>) -> Value {
    let mut body = json!({
        "model": model,
        "messages": messages(request),
        "stream": true,
        // A conversation that is too long is an error, not cut silently. Servers before 0.12.6 ignore both.
        "truncate": false,
        "shift": false,
    });
    // The API has no tool choice: if calls are not allowed, no tools are sent.
    let tools: Vec<Value> = match &request.tool_choice {
        ToolChoice::None => Vec::new(),
        ToolChoice::Tool(name) => request
            .tools
            .iter()
            .filter(|t| t.name == *name)
            .map(tool)
            .collect(),
        ToolChoice::Auto | ToolChoice::Required => request.tools.iter().map(tool).collect(),
    };
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    let mut options = Map::new();
    options.insert("num_ctx".into(), context.into());
    if let Some(limit) = request.max_output_tokens {
        options.insert("num_predict".into(), limit.into());
    }
    if let Some(temperature) = request.temperature {
        options.insert("temperature".into(), temperature.into());
    }
    if let Some(top_p) = request.top_p {
        options.insert("top_p".into(), top_p.into());
    }
    if !request.stop.is_empty() {
        options.insert("stop".into(), json!(request.stop));
    }
    if let Some(seed) = request.seed {
        options.insert("seed".into(), seed.into());
    }
    body["options"] = options.into();
    if let Some(effort) = request.reasoning_effort.as_deref() {
        body["think"] = match effort {
            "none" | "off" | "false" => false.into(),
            "true" | "on" => true.into(),
            level => level.into(),
        };
    }
    if let Some(wanted) = &request.response_schema {
        body["format"] = wanted.as_value().clone();
    }
    if let Some(keep_alive) = keep_alive {
        body["keep_alive"] = json!(keep_alive);
    }
    body
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": schema::ollama(tool.input.as_value()),
        },
    })
}

fn messages(request: &Request) -> Vec<Value> {
    let mut messages = Vec::new();
    if !request.instructions.is_empty() {
        messages.push(json!({"role": "system", "content": request.instructions}));
    }
    let mut past = PastArguments::new();
    for message in history::normalise(&request.messages) {
        messages.push(match &*message {
            Message::User { content } => text_message("user", content),
            Message::Assistant { parts } => assistant(parts, &mut past),
            Message::Tool {
                call_id,
                name,
                content,
                ..
            } => {
                let mut message = text_message("tool", content);
                message["tool_name"] = sanitize::name(name).into();
                message["tool_call_id"] = json!(call_id);
                message
            }
        });
    }
    messages
}

/// Message with text and pictures.
fn text_message(role: &str, content: &[Content]) -> Value {
    let mut lines = Vec::new();
    let mut pictures = Vec::new();
    for part in content {
        match part {
            Content::Text { .. } if history::is_blank_part(part) => {}
            Content::Text { text } => lines.push(text.clone()),
            Content::Link(link) => lines.push(fallback_text::link(link)),
            Content::Blob(blob) if fallback_text::is_picture(&blob.media_type) => {
                pictures.push(fallback_text::base64(&blob.data));
            }
            Content::Blob(blob) => lines.push(fallback_text::blob(blob)),
        }
    }
    let mut message = json!({"role": role, "content": lines.join("\n")});
    if !pictures.is_empty() {
        message["images"] = pictures.into();
    }
    message
}

fn assistant(parts: &[Part], past: &mut PastArguments) -> Value {
    let mut text = String::new();
    let mut thinking = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::Text { text: more, .. } => text.push_str(more),
            Part::File { blob, .. } => text.push_str(&fallback_text::made(blob)),
            Part::Reasoning { text: more, opaque } => {
                if opaque::for_wire(WIRE, opaque).is_some() {
                    thinking.push_str(more);
                }
            }
            // Arguments are an object in this API, not a string.
            Part::Call(call) => calls.push(json!({
                "id": call.id,
                "function": {
                    "index": calls.len(),
                    "name": sanitize::name(&call.name),
                    "arguments": past.object_of(&call.arguments),
                },
            })),
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    // Reasoning is expected only with calls.
    if !thinking.is_empty() && !calls.is_empty() {
        message["thinking"] = thinking.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}
