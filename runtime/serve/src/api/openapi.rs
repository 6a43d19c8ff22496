//! OpenAPI document of the routes.

use serde_json::{Map, Value, json};

use super::routes::{COMMON, Kind, OF_BODY, ROUTES, Route};
use super::{MAX_MARKDOWN_TEXTS, questions, scratch, turns};
use crate::v1::MAX_TOOLS;

fn reference(schema: &str) -> Value {
    json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}})
}

/// Returns the OpenAPI document of the routes.
pub(crate) fn document() -> String {
    let mut paths = Map::new();
    for route in ROUTES {
        let entry = paths.entry(route.path).or_insert_with(|| json!({}));
        entry[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Toolcell", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "MIT OR Apache-2.0"}},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "page": {"type": "apiKey", "in": "cookie", "name": "toolcell_PORT"},
            },
            "schemas": schemas(),
        },
    })
    .to_string()
}

fn operation(route: &Route) -> Value {
    let of_path = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = of_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let of_query = route
        .query
        .iter()
        .map(|param| json!({"name": param.name, "in": "query", "schema": schema_of(&param.kind)}));
    let is_v1 = route.path.starts_with("/v1");
    let mut responses = Map::new();
    let (status, schema) = route.success;
    let success = match (route.path, schema) {
        (_, "") if status == 204 => json!({"description": "Success"}),
        (_, "") => json!({"description": "Success", "content": {"application/jsonl": {}}}),
        ("/api/sessions/{id}/events" | "/v1/chat/completions" | "/v1/responses", schema) => {
            json!({"description": "Success", "content": {"application/json": reference(schema), "text/event-stream": {}}})
        }
        (_, schema) => json!({"description": "Success", "content": {"application/json": reference(schema)}}),
    };
    responses.insert(status.to_string(), success);
    let of_body: &[u16] = if route.body.is_empty() { &[] } else { &OF_BODY };
    let of_session: &[u16] = if route.path.contains("{id}") { &[404] } else { &[] };
    let statuses = COMMON.iter().chain(of_body).chain(of_session).chain(route.errors);
    for status in statuses {
        let schema = if is_v1 { "OpenAiError" } else { "Error" };
        let error = json!({"description": "Error", "content": {"application/json": reference(schema)}});
        responses.insert(status.to_string(), error);
    }
    let security = match is_v1 {
        true => json!([{"token": []}]),
        false => json!([{"token": []}, {"page": []}]),
    };
    let mut operation = json!({
        "summary": route.summary,
        "parameters": of_path.chain(of_query).collect::<Vec<_>>(),
        "security": security,
        "responses": responses,
    });
    if !route.body.is_empty() {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": reference(route.body)}});
    }
    operation
}

fn schema_of(kind: &Kind) -> Value {
    match kind {
        Kind::Text(usize::MAX) => text(),
        Kind::Text(most) => json!({"type": "string", "maxLength": most}),
        Kind::Number(u64::MAX) => number(),
        Kind::Number(most) => json!({"type": "integer", "minimum": 0, "maximum": most}),
    }
}

/// Number of a body that may be absent.
fn optional_number(least: u64) -> Value {
    json!({"type": ["integer", "null"], "minimum": least})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn number() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn list(of: &Value) -> Value {
    json!({"type": "array", "items": of})
}

fn at_most(most: usize, of: &Value) -> Value {
    json!({"type": "array", "items": of, "maxItems": most})
}

fn one(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// Body of a request, whose unknown members are refused.
fn body(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

/// Body of an answer, all of whose members but the optional ones are there.
fn answer(properties: &Value, optional: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    let mut all = properties.as_object().cloned().unwrap_or_default();
    all.extend(optional.as_object().cloned().unwrap_or_default());
    json!({"type": "object", "required": required, "properties": all, "additionalProperties": false})
}

fn schemas() -> Value {
    let mut all = schemas_of_sessions();
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), schemas_of_scratch()) {
        all.extend(more);
    }
    all
}

fn schemas_of_scratch() -> Value {
    let none = json!({});
    let skipped = list(&answer(&json!({"path": text(), "reason": text()}), &none));
    let changed = answer(
        &json!({"path": text(), "change": {"enum": ["added", "changed", "deleted"]}, "conflict": {"type": "boolean"}}),
        &json!({"diff": text(), "about": text()}),
    );
    json!({
        "Scratches": answer(&json!({"scratch": list(&answer(&json!({"name": text(), "directory": text(), "files": number()}), &none))}), &none),
        "Scratch": answer(&json!({"name": text(), "directory": text(), "files": list(&changed), "more": number(), "skipped": skipped}), &none),
        "ScratchFiles": body(&[], &json!({"files": {"type": ["array", "null"], "items": text(), "maxItems": scratch::MAX_FILES}})),
        "ScratchDone": answer(&json!({"files": number(), "skipped": skipped}), &none),
    })
}

fn schemas_of_sessions() -> Value {
    let none = json!({});
    let usage = json!({"input": number(), "cache_read": number(), "cache_write": number(), "output": number(), "reasoning": number()});
    let words = list(
        &json!({"type": "object", "minProperties": 1, "maxProperties": 1, "properties": {"own": text(), "quoted": text()}, "additionalProperties": false}),
    );
    let session = json!({
        "id": text(), "created_ms": number(), "used_ms": number(), "events": number(), "messages": number(), "bytes": number(), "usage": one("Tokens"),
        "state": {"enum": ["new", "idle", "asked", "running", "waiting", "open", "client", "elsewhere", "failed"]},
    });
    let of_session = json!({
        "title": text(), "name": text(), "agent": text(), "parent": text(), "cost_micros": number(),
        "matches": list(&answer(&json!({"role": text(), "text": text()}), &none)),
    });
    let mut details = of_session.clone();
    let flag = json!({"type": "boolean"});
    let row = answer(
        &none,
        &json!({"limit": number(), "used": number(), "estimated": flag, "unpriced": flag}),
    );
    details["budget"] = answer(
        &json!({"tokens": row, "calls": row, "wall_ms": row, "cost_micros": row}),
        &none,
    );
    details["plan"] = json!({});
    let mut session_and_questions = session.clone();
    session_and_questions["questions"] = list(&one("Question"));
    let event = answer(
        &json!({"seq": number(), "event": {"type": "object", "required": ["type"]}}),
        &json!({"at_ms": number()}),
    );
    let object = json!({"type": "object"});
    let choice = answer(&json!({"id": text(), "label": text(), "covers": words}), &none);
    let fact = answer(&json!({"text": words, "is_warning": {"type": "boolean"}}), &none);
    let agent = answer(
        &json!({"id": text(), "description": text(), "provider": text(), "model": text(), "is_stand_in": {"type": "boolean"}}),
        &none,
    );
    let day = answer(
        &json!({"day": text(), "turns": number(), "failed_turns": number(), "usage": one("Tokens"), "calls": number(), "failed_calls": number(), "denials": number()}),
        &json!({"agent": text(), "cost_micros": number(), "p50_us": number(), "p95_us": number()}),
    );
    let receipt = answer(
        &json!({"seq": number(), "call": text(), "tool": text()}),
        &json!({"at_ms": number(), "error": text(), "receipt": object}),
    );
    let component = answer(
        &json!({
            "name": text(), "kind": {"enum": ["tool", "hook", "server"]}, "is_locked": {"type": "boolean"}, "is_in_cell": {"type": "boolean"},
            "access": list(&words), "tools": list(&answer(&json!({"name": text(), "description": text(), "schema": {}}), &none)),
        }),
        &json!({"agents": list(&text()), "digest": text(), "limits": list(&text()), "receipts": list(&receipt)}),
    );
    let new_response = json!({"type": "object", "required": ["model", "input"], "properties": {"model": text(), "input": {"type": ["string", "array"]}, "stream": {"type": ["boolean", "null"]}, "store": {"type": ["boolean", "null"]}, "previous_response_id": {"type": ["string", "null"]}, "instructions": {"type": ["string", "null"]}, "metadata": {"type": ["object", "null"]}, "tools": {"type": ["array", "null"], "maxItems": MAX_TOOLS}}});
    let response = json!({"type": "object", "required": ["id", "object", "status", "output", "usage"], "properties": {"id": text(), "object": {"const": "response"}, "status": text(), "output": list(&object), "previous_response_id": {"type": ["string", "null"]}, "instructions": {"type": ["string", "null"]}, "metadata": &object}});
    json!({
        "Error": answer(&json!({"error": answer(&json!({"code": text(), "message": text()}), &json!({"hints": list(&text())}))}), &none),
        "OpenAiError": answer(&json!({"error": answer(&json!({"code": text(), "message": text(), "type": text(), "param": {}}), &none)}), &none),
        "Nothing": body(&[], &none),
        "Tokens": answer(&usage, &json!({"estimated": {"type": "boolean"}, "unpriced": {"type": "boolean"}})),
        "Session": answer(&session, &of_session),
        "SessionDetails": answer(&session_and_questions, &details),
        "Sessions": answer(&json!({"sessions": list(&one("Session"))}), &json!({"next": text()})),
        "NewSession": body(&[], &json!({"agent": {"type": ["string", "null"]}})),
        "Name": body(&["name"], &json!({"name": {"type": ["string", "null"]}})),
        "Fork": body(&[], &json!({"events": optional_number(0), "before_turn": optional_number(1)})),
        "Events": answer(&json!({"events": list(&event), "events_total": number()}), &none),
        "Receipts": answer(&json!({"receipts": list(&receipt)}), &none),
        "Question": answer(
            &json!({
                "id": text(), "session": text(), "call": text(), "cause": {"enum": ["rule", "flow", "rule_and_flow"]}, "tool": text(),
                "component": {"type": ["string", "null"]}, "title": words, "subject": text(), "length": number(), "digest": text(),
                "facts": list(&fact), "choices": list(&choice), "asked_ms": number(),
            }),
            &none,
        ),
        "Questions": answer(&json!({"questions": list(&one("Question"))}), &none),
        "Answer": body(&["choice"], &json!({"choice": text(), "words": {"type": ["string", "null"], "maxLength": questions::MAX_WORDS}})),
        "Turn": body(&["text"], &json!({
            "text": {"type": "string", "pattern": "\\S", "maxLength": turns::MAX_TEXT},
            "attachments": at_most(turns::MAX_ATTACHMENTS, &body(&["name", "data"], &json!({"name": text(), "media_type": {"type": ["string", "null"]}, "data": {"type": "string", "contentEncoding": "base64"}}))),
        })),
        "Started": answer(&json!({"session": one("Session")}), &none),
        "Undone": answer(&json!({"removed": number()}), &none),
        "Info": answer(
            &json!({
                "version": text(), "user": text(), "agents": list(&agent), "examples": list(&text()),
                "limits": answer(&json!({"message_bytes": number(), "attachment_bytes": number(), "attachments": number()}), &none),
            }),
            &none,
        ),
        "Tools": answer(&json!({"components": list(&component), "combinations": list(&list(&text())), "guard": {"enum": ["ask", "refuse", "off"]}}), &none),
        "Usage": answer(&json!({"days": list(&day)}), &none),
        "Markdown": body(&["texts"], &json!({"texts": at_most(MAX_MARKDOWN_TEXTS, &text())})),
        "Rendered": answer(&json!({"rendered": list(&list(&json!({"type": "array"})))}), &none),
        "Model": answer(&json!({"id": text(), "object": {"const": "model"}, "created": number(), "owned_by": text()}), &none),
        "Models": answer(&json!({"object": {"const": "list"}, "data": list(&one("Model"))}), &none),
        // Unknown members are ignored: clients of OpenAI send settings of the model.
        "ChatCompletion": {"type": "object", "required": ["model", "messages"], "properties": {"model": text(), "messages": list(&object), "stream": {"type": ["boolean", "null"]}, "n": {"enum": [1, null]}, "tools": {"type": ["array", "null"], "maxItems": MAX_TOOLS}}},
        "ChatAnswer": answer(&json!({"id": text(), "object": {"const": "chat.completion"}, "created": number(), "model": text(), "choices": list(&object), "usage": object}), &none),
        "NewResponse": new_response,
        "Response": response,
    })
}
