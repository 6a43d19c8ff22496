//! Plain endpoints, for clients that know nothing of JSON-RPC: `POST /tools/list` and `POST /tools/call`.
//!
//! The body of a request is the `params` of the method, the body of an answer its result, or `{"error": {…}}` with a status of
//! HTTP that says the same. Between the two, a request is one like all others: the same tokens, limits, tools and rules.

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use toolcell_core::json::kind_of;

use super::answer::{self, Answer};
use crate::message::{self, Incoming, PLAIN_ID, Request, RpcError};

/// Reads the body of a request.
pub(super) type Read = fn(&[u8]) -> Incoming;

/// Returns the reader for a path; `None` for a path that is none of these endpoints.
pub(super) fn of_path(path: &str) -> Option<Read> {
    match path {
        "/tools/list" => Some(list),
        "/tools/call" => Some(call),
        _ => None,
    }
}

fn list(body: &[u8]) -> Incoming {
    request("tools/list", body, &["cursor"])
}

fn call(body: &[u8]) -> Incoming {
    request("tools/call", body, &["name", "arguments"])
}

/// Makes a request of a body. Members that are not known are left out: they could mean something inside of the protocol.
fn request(method: &str, body: &[u8], known: &[&str]) -> Incoming {
    let invalid = |error| Incoming::Invalid(Some(PLAIN_ID), error);
    let mut params = match body.trim_ascii() {
        b"" => Map::new(),
        body => match message::parse_value(body) {
            Ok(Value::Object(params)) => params,
            Ok(other) => {
                let error = format!("the body is a JSON object, not {}", kind_of(&other));
                return invalid(RpcError::invalid_request(error));
            }
            Err(error) => return invalid(error),
        },
    };
    params.retain(|name, _| known.contains(&name.as_str()));
    Incoming::Request(Request {
        id: PLAIN_ID,
        method: method.to_owned(),
        params,
    })
}

/// Takes the envelope of JSON-RPC from an answer.
pub(super) fn without_envelope(response: Response<Answer>) -> Response<Answer> {
    let (mut head, body) = response.into_parts();
    if head.headers.contains_key(ALLOW) {
        head.headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    let Answer::Whole(mut parts) = body else {
        return Response::from_parts(head, body);
    };
    if let Some(result) = message::plain_result(&parts.rest) {
        parts.rest = parts.rest.slice(result);
        return Response::from_parts(head, Answer::Whole(parts));
    }
    let refusal = serde_json::from_slice::<Value>(&parts.rest).unwrap_or_default();
    let error = match refusal.get("error") {
        Some(error) => error.clone(),
        // A call that was given up has no answer.
        None => json!({ "code": -32000, "message": "the request was cancelled" }),
    };
    head.status = match (head.status, error["code"].as_i64()) {
        (StatusCode::OK, Some(-32602)) => StatusCode::BAD_REQUEST,
        (StatusCode::OK, Some(-32000)) => StatusCode::TOO_MANY_REQUESTS,
        (StatusCode::OK, _) => StatusCode::INTERNAL_SERVER_ERROR,
        (StatusCode::ACCEPTED, _) => StatusCode::SERVICE_UNAVAILABLE,
        (status, _) => status,
    };
    let plain = json!({ "error": error });
    let mut refused = answer::message(head.status, plain.to_string().into_bytes());
    for (name, value) in &head.headers {
        refused.headers_mut().insert(name, value.clone());
    }
    refused
}
