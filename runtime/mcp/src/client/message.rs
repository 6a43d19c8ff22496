//! Messages of a server, parsed from one line.

use serde_json::{Map, Value, json};
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, memory_of_text, parse_nested};

use super::link::{MAX_MESSAGE_MEMORY, MAX_VALUES};
use crate::message::RequestId;

/// Maximum nesting of a message: a structured result of the depth of arguments, inside of the result of a response.
const MAX_DEPTH: usize = MAX_ARGUMENT_DEPTH + 3;

/// Maximum size of the identifier of a request of a server, in bytes. It is kept until the request is answered.
pub const MAX_REQUEST_ID: usize = 1 << 10;

/// A message of a server.
#[derive(Debug, PartialEq)]
pub(super) enum Received {
    /// Answer to a request of ours.
    Answer { id: i64, answer: Answer },
    /// A request of the server.
    Request {
        id: RequestId,
        method: String,
        params: Map<String, Value>,
    },
    /// A notification.
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// Anything else.
    Invalid,
}

/// Content of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Result(Value),
    Error {
        code: i64,
        message: String,
    },
    /// The answer cannot be read, for this reason.
    Invalid(String),
}

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Received {
    let Ok(text) = std::str::from_utf8(line) else {
        return Received::Invalid;
    };
    if let Some(reason) = too_much(text) {
        return unreadable(text, reason);
    }
    match parse_nested(text, MAX_DEPTH) {
        Ok(Value::Object(object)) => of_object(object),
        Ok(_) => Received::Invalid,
        Err(error) => unreadable(text, format!("is not accepted: {error}")),
    }
}

/// Parses a result that came without an envelope.
pub(super) fn parse_result(body: &[u8]) -> Answer {
    let Ok(text) = std::str::from_utf8(body) else {
        return Answer::Invalid("is not UTF-8".into());
    };
    if let Some(reason) = too_much(text) {
        return Answer::Invalid(reason);
    }
    match parse_nested(text, MAX_DEPTH) {
        Ok(result @ Value::Object(_)) => Answer::Result(result),
        Ok(_) => Answer::Invalid("is not a JSON object".into()),
        Err(error) => Answer::Invalid(format!("is not accepted: {error}")),
    }
}

/// Parses the error of JSON-RPC in the body of a refusal over HTTP. Its identifier can be missing.
pub(super) fn parse_refusal(body: &[u8]) -> Option<(i64, String)> {
    let text = std::str::from_utf8(body).ok()?;
    if too_much(text).is_some() {
        return None;
    }
    let value = parse_nested(text, MAX_DEPTH).ok()?;
    let error = value.get("error")?;
    let message = error["message"].as_str().unwrap_or("no message");
    Some((error["code"].as_i64()?, message.to_owned()))
}

/// Returns the reason for which a text is not parsed: the memory that it would take.
fn too_much(text: &str) -> Option<String> {
    if values(text) > MAX_VALUES {
        return Some(format!("has more than {MAX_VALUES} values"));
    }
    let memory = memory_of_text(text);
    (memory > MAX_MESSAGE_MEMORY).then(|| {
        format!("has so many values that they take {memory} bytes of memory, more than {MAX_MESSAGE_MEMORY}")
    })
}

/// Maximum number of values that a JSON text can have, without parsing it.
fn values(text: &str) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' | b':' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// An answer that cannot be read fails its own request, if it can be told which that is.
fn unreadable(text: &str, reason: String) -> Received {
    #[derive(serde::Deserialize)]
    struct WithId {
        id: i64,
        #[serde(default)]
        method: Option<serde::de::IgnoredAny>,
    }
    match serde_json::from_str::<WithId>(text) {
        Ok(WithId { id, method: None }) => Received::Answer {
            id,
            answer: Answer::Invalid(reason),
        },
        _ => Received::Invalid,
    }
}

fn of_object(mut object: Map<String, Value>) -> Received {
    let id = object.get("id").and_then(RequestId::of);
    let method = match object.remove("method") {
        Some(Value::String(method)) => Some(method),
        Some(_) => return Received::Invalid,
        None => None,
    };
    let mut params = || match object.remove("params") {
        Some(Value::Object(params)) => params,
        _ => Map::new(),
    };
    match (id, method) {
        (Some(RequestId::Text(id)), Some(_)) if id.len() > MAX_REQUEST_ID => Received::Invalid,
        (Some(id), Some(method)) => Received::Request {
            id,
            method,
            params: params(),
        },
        (None, Some(method)) => Received::Notification {
            method,
            params: params(),
        },
        (Some(RequestId::Number(id)), None) => Received::Answer {
            id,
            answer: answer(object),
        },
        (Some(RequestId::Text(_)) | None, None) => Received::Invalid,
    }
}

fn answer(mut object: Map<String, Value>) -> Answer {
    match (object.remove("result"), object.remove("error")) {
        (Some(result), None) => Answer::Result(result),
        (None, Some(error)) => Answer::Error {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or("no message").to_owned(),
        },
        _ => Answer::Invalid("has neither a result nor an error, or both".into()),
    }
}

/// Writes a request.
pub(super) fn request(id: i64, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// Writes a notification.
pub(super) fn notification(method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

/// Writes the response to a request of the server: an empty result, or the refusal of its method.
pub(super) fn response(id: &RequestId, method: &str) -> Vec<u8> {
    let id = serde_json::to_value(id).unwrap_or_default();
    line(&match method {
        "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
        _ => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "not supported by this client" } })
        }
    })
}

/// Writes the answer to a request of the server: a result, or an error.
pub(super) fn answer_to(id: &RequestId, answer: Result<Value, Value>) -> Vec<u8> {
    line(&match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    })
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Received {
        parse(line.as_bytes())
    }

    #[test]
    fn answers_requests_and_notifications_are_told_apart() {
        let answered = |answer| Received::Answer { id: 1, answer };
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#,
                answered(Answer::Result(json!({"a": 1}))),
            ),
            (
                r#"{"id":1,"error":{"code":-32601,"message":"no"}}"#,
                answered(Answer::Error {
                    code: -32601,
                    message: "no".into(),
                }),
            ),
            (
                r#"{"id":1,"error":1}"#,
                answered(Answer::Error {
                    code: 0,
                    message: "no message".into(),
                }),
            ),
            (
                r#"{"id":1}"#,
                answered(Answer::Invalid(
                    "has neither a result nor an error, or both".into(),
                )),
            ),
            (
                r#"{"id":"x","method":"ping"}"#,
                Received::Request {
                    id: RequestId::Text("x".into()),
                    method: "ping".into(),
                    params: Map::new(),
                },
            ),
            (
                r#"{"method":"n","params":[1]}"#,
                Received::Notification {
                    method: "n".into(),
                    params: Map::new(),
                },
            ),
            (r#"{"id":"1","result":{}}"#, Received::Invalid),
            (r#"{"id":1,"method":1}"#, Received::Invalid),
            (r#"[{"id":1,"result":{}}]"#, Received::Invalid),
            ("Listening on port 80", Received::Invalid),
            ("", Received::Invalid),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
        assert_eq!(parse(b"{\"id\":1,\"result\":\"\xff\"}"), Received::Invalid);
    }

    #[test]
    fn identifier_of_a_request_has_a_limited_size() {
        let of = |size: usize| parsed(&json!({"id": "x".repeat(size), "method": "ping"}).to_string());
        assert!(matches!(of(MAX_REQUEST_ID), Received::Request { .. }));
        assert_eq!(of(MAX_REQUEST_ID + 1), Received::Invalid);
    }

    #[test]
    fn unreadable_answer_fails_its_own_request() {
        for line in [
            r#"{"id":7,"result":{"a":1,"a":2}}"#,
            r#"{"id":7,"result":{"a":1e400}}"#,
            &format!(r#"{{"result":{}{},"id":7}}"#, "[".repeat(70), "]".repeat(70)),
        ] {
            match parsed(line) {
                Received::Answer {
                    id: 7,
                    answer: Answer::Invalid(reason),
                } => {
                    assert!(reason.starts_with("is not accepted: "), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn message_has_a_limited_number_of_values() {
        // Names count as values, and so does an empty list.
        let of = |values: usize| {
            let list = "0,".repeat(values - 6) + "0";
            parsed(&format!(r#"{{"id":7,"result":[{list}]}}"#))
        };
        assert!(matches!(
            of(MAX_VALUES),
            Received::Answer {
                id: 7,
                answer: Answer::Result(_)
            }
        ));
        let reason = format!("has more than {MAX_VALUES} values");
        let refused = Received::Answer {
            id: 7,
            answer: Answer::Invalid(reason),
        };
        assert!(of(MAX_VALUES + 1) == refused);
        // Inside of a text nothing is a value.
        let text = ",[{:".repeat(MAX_VALUES);
        let of_text = parsed(&format!(r#"{{"id":7,"result":"\"{text}"}}"#));
        assert!(matches!(
            of_text,
            Received::Answer {
                answer: Answer::Result(_),
                ..
            }
        ));
    }

    #[test]
    fn message_has_a_limited_amount_of_memory() {
        let of = |objects: usize| {
            let text = format!(r#"{{"id":7,"result":[{}0]}}"#, r#"{"":0},"#.repeat(objects));
            (memory_of_text(&text), parsed(&text))
        };
        let counts: Vec<usize> = (0..100_000).collect();
        let fits = counts.partition_point(|count| of(*count).0 <= MAX_MESSAGE_MEMORY) - 1;
        assert!(matches!(
            of(fits).1,
            Received::Answer {
                answer: Answer::Result(_),
                ..
            }
        ));
        let (memory, refused) = of(fits + 1);
        let reason = format!(
            "has so many values that they take {memory} bytes of memory, more than {MAX_MESSAGE_MEMORY}"
        );
        assert!(
            refused
                == Received::Answer {
                    id: 7,
                    answer: Answer::Invalid(reason)
                }
        );
    }

    #[test]
    fn requests_of_a_server_are_refused() {
        let answered = |method| {
            let line = response(&RequestId::Number(4), method);
            serde_json::from_slice::<Value>(&line).unwrap()
        };
        assert_eq!(answered("ping")["result"], json!({}));
        for method in ["sampling/createMessage", "elicitation/create", "roots/list", "x"] {
            let answer = answered(method);
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!(4), &json!(-32601))
            );
        }
    }
}
