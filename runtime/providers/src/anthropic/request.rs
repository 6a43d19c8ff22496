//! Body of a Messages request.

use serde_json::{Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Blob, Content, Message, Part, ToolSpec};

use super::{CacheTime, WIRE};
use crate::http::{Dialect, Feature};
use crate::sanitize::PastArguments;
use crate::{fallback_text, history, opaque, sanitize, schema};

/// Maximum length of a call identifier, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Builds the body of a request. Deterministic: equal requests give equal bytes.
pub(super) fn body(
    request: &Request,
    model: &str,
    dialect: Dialect,
    default_limit: u64,
    cache: Option<CacheTime>,
) -> Value {
    let limit = dialect.output_limit(request.max_output_tokens.or(Some(default_limit)));
    let mut body = json!({
        "model": model,
        "max_tokens": limit,
        "messages": messages(request, dialect.takes(Feature::PastReasoning)),
        "stream": true,
    });
    if !request.instructions.is_empty() {
        body["system"] = json!([{"type": "text", "text": request.instructions}]);
    }
    let mut forced = false;
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
        let kind = match &request.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required => "any",
            ToolChoice::Tool(_) => "tool",
        };
        let mut choice = json!({"type": kind});
        if let ToolChoice::Tool(name) = &request.tool_choice {
            choice["name"] = json!(name);
        }
        if let Some(parallel) = request.parallel_calls
            && kind != "none"
        {
            choice["disable_parallel_tool_use"] = (!parallel).into();
        }
        if choice != json!({"type": "auto"}) {
            body["tool_choice"] = choice;
        }
        forced = matches!(kind, "any" | "tool");
    }
    // The API refuses thinking together with a forced call, and sampling parameters together with thinking.
    let thinks = !forced && think(request, &mut body);
    if let Some(temperature) = request.temperature
        && !thinks
    {
        body["temperature"] = temperature.into();
    }
    if let Some(top_p) = request.top_p
        && !thinks
    {
        body["top_p"] = top_p.into();
    }
    if !request.stop.is_empty() {
        body["stop_sequences"] = json!(request.stop);
    }
    if let Some(wanted) = &request.response_schema {
        body["output_config"]["format"] = json!({
            "type": "json_schema",
            "schema": schema::closed(wanted.as_value()),
        });
    }
    if let Some(time) = cache {
        mark(&mut body, time);
    }
    body
}

/// Sets thinking: `low` to `max` let the model decide, a number is a token budget, `none` disables it.
fn think(request: &Request, body: &mut Value) -> bool {
    let Some(effort) = request.reasoning_effort.as_deref() else {
        return false;
    };
    if let Ok(budget) = effort.parse::<u64>() {
        // The minimum budget of the API; the answer needs tokens besides it.
        let budget = budget.max(1024);
        let limit = body["max_tokens"].as_u64().unwrap_or_default();
        body["max_tokens"] = limit.max(budget.saturating_add(1024)).into();
        body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
        return true;
    }
    if matches!(effort, "none" | "off" | "disabled") {
        body["thinking"] = json!({"type": "disabled"});
        return false;
    }
    body["thinking"] = json!({"type": "adaptive"});
    body["output_config"] = json!({"effort": effort});
    true
}

/// Sets cache breakpoints at the end of the tools, of the system prompt and of the conversation; four are allowed.
fn mark(body: &mut Value, time: CacheTime) {
    let control = match time {
        CacheTime::FiveMinutes => json!({"type": "ephemeral"}),
        CacheTime::OneHour => json!({"type": "ephemeral", "ttl": "1h"}),
    };
    for name in ["tools", "system"] {
        if let Some(end) = body
            .get_mut(name)
            .and_then(Value::as_array_mut)
            .and_then(|list| list.last_mut())
        {
            end["cache_control"] = control.clone();
        }
    }
    let end = body["messages"]
        .as_array_mut()
        .and_then(|messages| messages.last_mut())
        .and_then(|message| message["content"].as_array_mut())
        .and_then(|content| content.last_mut());
    if let Some(end) = end {
        end["cache_control"] = control;
    }
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "input_schema": schema::plain_root(tool.input.as_value()),
    })
}

/// Converts messages to alternating roles. Results come first in the message after their calls.
fn messages(request: &Request, with_reasoning: bool) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let mut past = PastArguments::new();
    for message in history::normalise(&request.messages) {
        let (role, blocks) = match &*message {
            Message::User { content } => ("user", content.iter().filter_map(block).collect()),
            Message::Assistant { parts } => ("assistant", assistant(parts, with_reasoning, &mut past)),
            Message::Tool {
                call_id,
                content,
                is_error,
                ..
            } => ("user", vec![result(call_id, content, *is_error)]),
        };
        // Results, and a message of the user behind them.
        match messages.last_mut().filter(|last| last["role"] == role) {
            Some(last) => {
                if let Some(content) = last["content"].as_array_mut() {
                    content.extend(blocks);
                }
            }
            None => messages.push(json!({"role": role, "content": blocks})),
        }
    }
    messages
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Content block; `None` for an empty text, which the API refuses.
fn block(content: &Content) -> Option<Value> {
    match content {
        Content::Text { text: t } => (!t.trim().is_empty()).then(|| text(t)),
        Content::Link(link) => Some(text(&fallback_text::link(link))),
        Content::Blob(blob) => Some(file(blob).unwrap_or_else(|| text(&fallback_text::blob(blob)))),
    }
}

fn file(blob: &Blob) -> Option<Value> {
    let kind = if fallback_text::is_picture(&blob.media_type) {
        "image"
    } else if blob.media_type == "application/pdf" {
        "document"
    } else {
        return None;
    };
    Some(json!({
        "type": kind,
        "source": {"type": "base64", "media_type": blob.media_type, "data": fallback_text::base64(&blob.data)},
    }))
}

/// Blocks of an answer. The API refuses reasoning as the last block.
fn assistant(parts: &[Part], with_reasoning: bool, past: &mut PastArguments) -> Vec<Value> {
    let is_last = |part: &Part| match part {
        Part::Text { text, .. } => !text.trim().is_empty(),
        Part::Call(_) | Part::File { .. } => true,
        Part::Reasoning { .. } => false,
    };
    let end = parts.iter().rposition(is_last).map_or(0, |last| last + 1);
    parts[..end]
        .iter()
        .filter_map(|part| match part {
            Part::Text { text: t, .. } => (!t.trim().is_empty()).then(|| text(t)),
            Part::File { blob, .. } => Some(text(&fallback_text::made(blob))),
            // Only reasoning that this API signed; that of other models is invalid.
            Part::Reasoning { opaque, .. } => {
                opaque::for_wire(WIRE, opaque).filter(|_| with_reasoning).cloned()
            }
            Part::Call(call) => Some(json!({
                "type": "tool_use",
                "id": sanitize::id(&call.id, MAX_ID_BYTES),
                "name": sanitize::name(&call.name),
                "input": past.object_of(&call.arguments),
            })),
        })
        .collect()
}

fn result(call_id: &str, content: &[Content], is_error: bool) -> Value {
    let blocks: Vec<Value> = content
        .iter()
        .filter_map(|part| match part {
            // The result of a failed call may contain text only.
            Content::Blob(blob) if is_error => Some(text(&fallback_text::blob(blob))),
            other => block(other),
        })
        .collect();
    let mut result = json!({
        "type": "tool_result",
        "tool_use_id": sanitize::id(call_id, MAX_ID_BYTES),
        "content": blocks,
    });
    if is_error {
        result["is_error"] = true.into();
    }
    result
}
