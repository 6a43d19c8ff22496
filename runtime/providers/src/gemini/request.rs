//! Body of a `generateContent` request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolcell_core::provider::{Request, ToolChoice};
use toolcell_core::{Blob, Content, Message, Part, ToolSpec};

use super::WIRE;
use crate::http::{Dialect, Feature};
use crate::sanitize::PastArguments;
use crate::{fallback_text, history, opaque, sanitize, schema};

/// Placeholder for the signature of a call by another model, which the API accepts for any call.
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Builds the body of a request. Deterministic: equal requests give equal bytes.
pub(super) fn body(request: &Request, model: &str, dialect: Dialect) -> Value {
    let mut body = json!({"contents": contents(request, takes_files_in_results(model))});
    if !request.instructions.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": request.instructions}]});
    }
    // The API refuses an empty list of declarations.
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request.tools.iter().map(|t| declaration(t, dialect)).collect();
        body["tools"] = json!([{"functionDeclarations": declarations}]);
        let config = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(json!({"mode": "NONE"})),
            ToolChoice::Required => Some(json!({"mode": "ANY"})),
            ToolChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
        };
        if let Some(config) = config {
            body["toolConfig"] = json!({"functionCallingConfig": config});
        }
    }
    let mut generation = Map::new();
    if let Some(limit) = dialect.output_limit(request.max_output_tokens) {
        generation.insert("maxOutputTokens".into(), limit.into());
    }
    if let Some(temperature) = request.temperature {
        generation.insert("temperature".into(), temperature.into());
    }
    if let Some(top_p) = request.top_p {
        generation.insert("topP".into(), top_p.into());
    }
    if !request.stop.is_empty() {
        generation.insert("stopSequences".into(), json!(request.stop));
    }
    if let Some(seed) = request.seed {
        generation.insert("seed".into(), seed.into());
    }
    if let Some(effort) = request.reasoning_effort.as_deref() {
        let config = match effort.parse::<i64>() {
            Ok(budget) => json!({"includeThoughts": true, "thinkingBudget": budget}),
            Err(_) if effort == "none" => json!({"thinkingBudget": 0}),
            Err(_) => json!({"includeThoughts": true, "thinkingLevel": effort.to_uppercase()}),
        };
        generation.insert("thinkingConfig".into(), config);
    }
    if let Some(wanted) = &request.response_schema {
        generation.insert("responseMimeType".into(), "application/json".into());
        let schema = schema::plain_root(wanted.as_value());
        generation.insert("responseJsonSchema".into(), schema);
    }
    if !generation.is_empty() {
        body["generationConfig"] = generation.into();
    }
    body
}

/// False for models before the third generation, which refuse files in a function response.
fn takes_files_in_results(model: &str) -> bool {
    let version = model
        .strip_prefix("gemini-")
        .and_then(|rest| rest.split(['.', '-']).next())
        .and_then(|number| number.parse::<u32>().ok());
    version.is_some_and(|version| version >= 3)
}

fn declaration(tool: &ToolSpec, dialect: Dialect) -> Value {
    let mut declaration = json!({"name": tool.name, "description": tool.description});
    if dialect.takes(Feature::JsonSchemas) {
        declaration["parametersJsonSchema"] = schema::plain_root(tool.input.as_value());
    } else if let Some(parameters) = schema::gemini(tool.input.as_value()) {
        declaration["parameters"] = parameters;
    }
    declaration
}

fn contents(request: &Request, files_in_results: bool) -> Vec<Value> {
    let mut contents: Vec<Value> = Vec::new();
    // The API's own identifiers, by ours.
    let mut given: BTreeMap<&str, &Value> = BTreeMap::new();
    let messages = history::normalise(&request.messages);
    let mut in_results = false;
    let mut past = PastArguments::new();
    for message in &messages {
        let is_result = matches!(**message, Message::Tool { .. });
        let (role, parts) = match &**message {
            Message::User { content } => {
                let parts = content.iter().filter(|content| !history::is_blank_part(content));
                ("user", parts.map(part).collect())
            }
            Message::Assistant { parts } => {
                for call in message.calls() {
                    if let Some(id) = opaque::for_wire(WIRE, &call.opaque).and_then(|kept| kept.get("id")) {
                        given.insert(&call.id, id);
                    }
                }
                ("model", model(parts, &mut past))
            }
            Message::Tool {
                call_id,
                name,
                content,
                is_error,
            } => {
                let id = given.get(call_id.as_str()).copied();
                ("user", result(name, id, content, *is_error, files_in_results))
            }
        };
        let joins = in_results && is_result;
        // A message of the user behind results is part of their turn: roles alternate.
        let follows = in_results && role == "user" && !is_result;
        in_results = is_result;
        // All results of a step are one turn.
        match contents.last_mut().and_then(|last| last["parts"].as_array_mut()) {
            Some(last) if joins => {
                // Responses come first, followed by the files of all of them.
                let responses = last
                    .iter()
                    .take_while(|p| p.get("functionResponse").is_some())
                    .count();
                let mut parts = parts.into_iter();
                last.splice(responses..responses, parts.next());
                last.extend(parts);
            }
            Some(last) if follows => last.extend(parts),
            _ => contents.push(json!({"role": role, "parts": parts})),
        }
    }
    contents
}

fn text(text: &str) -> Value {
    json!({"text": text})
}

fn part(content: &Content) -> Value {
    match content {
        Content::Text { text: t } => text(t),
        Content::Link(link) => text(&fallback_text::link(link)),
        Content::Blob(blob) => file(blob).unwrap_or_else(|| text(&fallback_text::blob(blob))),
    }
}

/// True for pictures, sound, video, PDF and text; the API refuses other types.
pub(super) fn takes(media_type: &str) -> bool {
    let kind = media_type.split_once('/').map_or("", |(kind, _)| kind);
    matches!(kind, "image" | "audio" | "video" | "text") || media_type == "application/pdf"
}

/// Converts a file that the API takes.
fn file(blob: &Blob) -> Option<Value> {
    takes(&blob.media_type).then(
        || json!({"inlineData": {"mimeType": blob.media_type, "data": fallback_text::base64(&blob.data)}}),
    )
}

fn model(parts: &[Part], past: &mut PastArguments) -> Vec<Value> {
    let mut out = Vec::new();
    let mut is_first_call = true;
    for part in parts {
        match part {
            // A signature may belong to an empty text if it was the last event of a stream.
            Part::Text { text: t, opaque } => match signature(opaque) {
                Some(signature) => out.push(json!({"text": t, "thoughtSignature": signature})),
                None if t.trim().is_empty() => {}
                None => out.push(text(t)),
            },
            // Reasoning is not sent back. Earlier sessions stored the signature of a text here.
            Part::Reasoning { opaque, .. } => {
                if let Some(signature) = signature(opaque) {
                    out.push(json!({"text": "", "thoughtSignature": signature}));
                }
            }
            Part::File { blob, opaque } => {
                let mut part = file(blob).unwrap_or_else(|| text(&fallback_text::made(blob)));
                if let Some(signature) = signature(opaque) {
                    part["thoughtSignature"] = signature.clone();
                }
                out.push(part);
            }
            Part::Call(call) => {
                let kept = opaque::for_wire(WIRE, &call.opaque);
                let mut function = json!({
                    "name": sanitize::name(&call.name),
                    "args": past.object_of(&call.arguments),
                });
                if let Some(id) = kept.and_then(|kept| kept.get("id")) {
                    function["id"] = id.clone();
                }
                let mut part = json!({"functionCall": function});
                match kept {
                    Some(kept) => {
                        if let Some(signature) = kept.get("thoughtSignature") {
                            part["thoughtSignature"] = signature.clone();
                        }
                    }
                    None if is_first_call => part["thoughtSignature"] = NO_SIGNATURE.into(),
                    None => {}
                }
                is_first_call = false;
                out.push(part);
            }
        }
    }
    out
}

fn signature(opaque: &Value) -> Option<&Value> {
    opaque::for_wire(WIRE, opaque)?.get("thoughtSignature")
}

fn result(
    name: &str,
    id: Option<&Value>,
    content: &[Content],
    is_error: bool,
    files_in_results: bool,
) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut files = Vec::new();
    for part in content {
        match part {
            Content::Text { text } => lines.push(text.clone()),
            Content::Link(link) => lines.push(fallback_text::link(link)),
            Content::Blob(blob) => match file(blob) {
                Some(file) => {
                    lines.push(format!("[{}, shown beside this result]", blob.media_type));
                    files.push(file);
                }
                None => lines.push(fallback_text::blob(blob)),
            },
        }
    }
    // The response must be an object. Text in it is never parsed as a schema, unlike objects with `$ref`.
    let field = if is_error { "error" } else { "output" };
    let mut response = json!({
        "name": sanitize::name(name),
        "response": {field: lines.join("\n")},
    });
    if let Some(id) = id {
        response["id"] = id.clone();
    }
    if files_in_results && !files.is_empty() {
        response["parts"] = std::mem::take(&mut files).into();
    }
    let mut parts = vec![json!({"functionResponse": response})];
    parts.extend(files);
    parts
}
