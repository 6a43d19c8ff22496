//! Routes of the API, and the OpenAPI document of them.

use serde_json::{Map, Value, json};

/// Route of the API.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Path, with `{id}` and the like for one part of it.
    pub(crate) path: &'static str,
    summary: &'static str,
    /// Schema of the body; empty for none.
    body: &'static str,
    /// Status of a success, and the schema of its body; empty for one that is not JSON.
    success: (u16, &'static str),
    /// Statuses of errors, beside those of every route.
    errors: &'static [u16],
    /// Parameters of the query: names, types, and their maximum.
    query: &'static [(&'static str, &'static str)],
}

/// Statuses of errors of every route: no token, another host, too many requests, a failure, and the end of the server.
const COMMON: [u16; 5] = [401, 403, 429, 500, 503];

/// Statuses of errors of a route with a body: wrong, too large, not JSON.
const OF_BODY: [u16; 3] = [400, 413, 415];

const fn get(path: &'static str, summary: &'static str, schema: &'static str) -> Route {
    Route {
        method: "GET",
        path,
        summary,
        body: "",
        success: (200, schema),
        errors: &[],
        query: &[],
    }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: &'static str,
    success: (u16, &'static str),
    errors: &'static [u16],
) -> Route {
    Route {
        method: "POST",
        path,
        summary,
        body,
        success,
        errors,
        query: &[],
    }
}

impl Route {
    const fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    const fn errors(mut self, errors: &'static [u16]) -> Self {
        self.errors = errors;
        self
    }
}

/// All routes.
pub(crate) const ROUTES: &[Route] = &[
    get("/api/info", "Version, agents and limits of the server", "Info"),
    get("/api/questions", "Open questions of all sessions", "Questions"),
    get("/api/tools", "Access and tools of each component", "Tools"),
    get("/api/usage", "Turns, tokens, costs and calls by day", "Usage")
        .query(&[("days", "integer")])
        .errors(&[400]),
    post(
        "/api/markdown",
        "Markdown as trees of known elements",
        "Markdown",
        (200, "Rendered"),
        &[],
    ),
    get("/api/sessions", "Sessions, most recently used first", "Sessions")
        .query(&[("q", "string"), ("limit", "integer"), ("cursor", "string")])
        .errors(&[400]),
    post(
        "/api/sessions",
        "Creates a session",
        "NewSession",
        (201, "Session"),
        &[404],
    ),
    get(
        "/api/sessions/{id}",
        "A session, with its budget, plan and questions",
        "SessionDetails",
    ),
    Route {
        method: "PATCH",
        path: "/api/sessions/{id}",
        summary: "Names a session",
        body: "Name",
        success: (200, "Session"),
        errors: &[409],
        query: &[],
    },
    Route {
        method: "DELETE",
        path: "/api/sessions/{id}",
        summary: "Deletes a session",
        body: "",
        success: (204, ""),
        errors: &[409],
        query: &[],
    },
    post(
        "/api/sessions/{id}/fork",
        "Creates a session from the beginning of another one",
        "Fork",
        (201, "Session"),
        &[],
    ),
    get(
        "/api/sessions/{id}/export",
        "The events of a session as JSON lines",
        "",
    ),
    get(
        "/api/sessions/{id}/events",
        "Events of a session, as a page or as a stream",
        "Events",
    )
    .query(&[("after", "integer"), ("limit", "integer")])
    .errors(&[400]),
    get(
        "/api/sessions/{id}/receipts",
        "Calls of a session with their receipts",
        "Receipts",
    ),
    get(
        "/api/sessions/{id}/questions",
        "Open questions of a session",
        "Questions",
    ),
    post(
        "/api/sessions/{id}/questions/{question}",
        "Answers a question",
        "Answer",
        (200, "Nothing"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/turns",
        "Starts a turn with a message",
        "Turn",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/resume",
        "Continues an open turn",
        "Nothing",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/abandon",
        "Ends an open turn",
        "Nothing",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/cancel",
        "Cancels the running turn",
        "Nothing",
        (202, "Nothing"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/compact",
        "Summarises the older part of the conversation",
        "Nothing",
        (202, "Started"),
        &[409],
    ),
    post(
        "/api/sessions/{id}/undo",
        "Removes the last turn from the conversation",
        "Nothing",
        (200, "Undone"),
        &[409],
    ),
    get("/api/scratch", "Scratch directories", "Scratches"),
    get("/api/scratch/{name}", "Changes in a scratch directory", "Scratch").errors(&[400, 404, 409]),
    post(
        "/api/scratch/{name}/commit",
        "Commits changes in a scratch directory",
        "ScratchFiles",
        (200, "ScratchDone"),
        &[404, 409],
    ),
    post(
        "/api/scratch/{name}/discard",
        "Discards changes in a scratch directory",
        "ScratchFiles",
        (200, "ScratchDone"),
        &[404, 409],
    ),
    get("/v1/models", "Agents as models of OpenAI clients", "Models"),
    post(
        "/v1/chat/completions",
        "Chat Completions of OpenAI clients",
        "ChatCompletion",
        (200, "ChatAnswer"),
        &[404, 502],
    ),
    post(
        "/v1/responses",
        "Responses of OpenAI clients",
        "NewResponse",
        (200, "Response"),
        &[404, 502],
    ),
    get("/v1/responses/{id}", "A stored response", "Response"),
];

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
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind}}));
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

fn text() -> Value {
    json!({"type": "string"})
}

fn number() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn list(of: &Value) -> Value {
    json!({"type": "array", "items": of})
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
        "ScratchFiles": body(&[], &json!({"files": {"type": ["array", "null"], "items": text(), "maxItems": 10000}})),
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
        "state": {"enum": ["new", "idle", "running", "waiting", "open", "elsewhere", "failed"]},
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
        "Fork": body(&[], &json!({"events": {"type": ["integer", "null"], "minimum": 0}, "before_turn": {"type": ["integer", "null"], "minimum": 0}})),
        "Events": answer(&json!({"events": list(&event), "events_total": number()}), &none),
        "Receipts": answer(&json!({"receipts": list(&receipt)}), &none),
        "Question": answer(
            &json!({
                "id": text(), "session": text(), "call": text(), "cause": {"enum": ["rule", "flow", "rule_and_flow", "client"]}, "tool": text(),
                "component": {"type": ["string", "null"]}, "title": words, "subject": text(), "length": number(), "digest": text(),
                "facts": list(&fact), "choices": list(&choice), "asked_ms": number(),
            }),
            &none,
        ),
        "Questions": answer(&json!({"questions": list(&one("Question"))}), &none),
        "Answer": body(&["choice"], &json!({"choice": text(), "words": {"type": ["string", "null"], "maxLength": 4000}})),
        "Turn": body(&["text"], &json!({
            "text": {"type": "string", "minLength": 1},
            "attachments": list(&body(&["name", "data"], &json!({"name": text(), "media_type": {"type": ["string", "null"]}, "data": {"type": "string", "contentEncoding": "base64"}}))),
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
        "Markdown": body(&["texts"], &json!({"texts": list(&text())})),
        "Rendered": answer(&json!({"rendered": list(&list(&json!({"type": "array"})))}), &none),
        "Models": answer(&json!({"object": {"const": "list"}, "data": list(&answer(&json!({"id": text(), "object": {"const": "model"}, "created": number(), "owned_by": text()}), &none))}), &none),
        // Unknown members are ignored: clients of OpenAI send settings of the model.
        "ChatCompletion": {"type": "object", "required": ["model", "messages"], "properties": {"model": text(), "messages": list(&object), "stream": {"type": ["boolean", "null"]}, "tools": {"type": ["array", "null"]}}},
        "ChatAnswer": answer(&json!({"id": text(), "object": {"const": "chat.completion"}, "created": number(), "model": text(), "choices": list(&object), "usage": object}), &none),
        "NewResponse": {"type": "object", "required": ["model", "input"], "properties": {"model": text(), "input": {"type": ["string", "array"]}, "stream": {"type": ["boolean", "null"]}, "store": {"type": ["boolean", "null"]}, "previous_response_id": {"type": ["string", "null"]}}},
        "Response": {"type": "object", "required": ["id", "object", "status", "output", "usage"], "properties": {"id": text(), "object": {"const": "response"}, "status": text(), "output": list(&object)}},
    })
}
