//! Messages of JSON-RPC 2.0: parsed from one line, and written to one.

use std::fmt::Display;
use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolcell_core::json::{MAX_ARGUMENT_DEPTH, kind_of, parse_nested};

/// Maximum nesting of a message: arguments inside `params` of a request inside a batch.
const MAX_DEPTH: usize = MAX_ARGUMENT_DEPTH + 3;

/// Identifier of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(crate) enum RequestId {
    Number(i64),
    Text(String),
}

impl RequestId {
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) => Some(Self::Text(text.clone())),
            _ => None,
        }
    }
}

/// A request, which gets exactly one response unless it is cancelled.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

/// A message of the client.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// Response to a request of this server, with its result, which is null for an error; `None` if it cannot be attributed.
    Response(Option<(RequestId, Value)>),
    /// Not a message of JSON-RPC. The identifier is known if only the rest is wrong.
    Invalid(Option<RequestId>, RpcError),
    /// Messages in an array.
    Batch(Vec<Value>),
}

impl Incoming {
    /// Identifier of a request.
    pub(crate) fn id(&self) -> Option<&RequestId> {
        match self {
            Self::Request(request) => Some(&request.id),
            Self::Invalid(id, _) => id.as_ref(),
            _ => None,
        }
    }
}

/// Error of the protocol.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct RpcError {
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
    /// Status of a response over HTTP.
    pub(crate) status: u16,
}

impl RpcError {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            status: 200,
        }
    }

    fn refused(self) -> Self {
        Self { status: 400, ..self }
    }

    /// The line is not JSON.
    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(-32700, message).refused()
    }

    /// The JSON is not a message, or the message is not allowed at this time.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, message).refused()
    }

    /// The server or this version of the protocol has no such method.
    pub(crate) fn unknown_method(method: &str) -> Self {
        Self {
            status: 404,
            ..Self::new(-32601, format!("there is no method `{}`", excerpt(method)))
        }
    }

    /// The parameters do not fit the method.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// The envelope of the request lacks what its version requires.
    pub(crate) fn invalid_meta(message: impl Into<String>) -> Self {
        Self::invalid_params(message).refused()
    }

    /// A header of the request over HTTP differs from its body.
    pub(crate) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(-32020, message).refused()
    }

    /// The server failed.
    pub(crate) fn internal() -> Self {
        Self::new(-32603, "the tool could not be run because of an internal error")
    }

    /// The call of a method other than `tools/call` failed, in the words for a model.
    pub(crate) fn failed(message: String) -> Self {
        Self::new(-32603, message)
    }

    /// Too many requests at a time; an error of this server's own (JSON-RPC reserves -32099 to -32000 for servers).
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(-32000, message)
    }

    /// The request states an unsupported version.
    pub(crate) fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        Self {
            data: Some(json!({ "supported": supported, "requested": excerpt(requested) })),
            ..Self::new(-32022, "unsupported protocol version").refused()
        }
    }
}

/// Prefix of a text of the client, short enough to be repeated in an error.
pub(crate) fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(100)]
}

/// Returns a name of others for use between backticks, which it cannot end.
pub(crate) fn between_backticks(name: &str) -> String {
    name.replace('`', "\\u{60}")
}

/// Identifier of a request that came without one, because it came without JSON-RPC.
pub(crate) const PLAIN_ID: RequestId = RequestId::Number(0);

/// Beginning of a response with [`PLAIN_ID`].
const PLAIN_RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":0,"result":"#;

/// Returns the place of the result in a response with [`PLAIN_ID`]; `None` for any other message.
pub(crate) fn plain_result(response: &[u8]) -> Option<Range<usize>> {
    let is_one = response.starts_with(PLAIN_RESPONSE) && response.ends_with(b"}");
    is_one.then(|| PLAIN_RESPONSE.len()..response.len() - 1)
}

/// Parses a JSON value with the limits of a message.
pub(crate) fn parse_value(text: &[u8]) -> Result<Value, RpcError> {
    let text = std::str::from_utf8(text).map_err(|_| RpcError::parse("the body is not UTF-8"))?;
    parse_nested(text, MAX_DEPTH).map_err(|error| RpcError::parse(error.to_string()))
}

/// Parses a line.
pub(crate) fn parse(line: &[u8]) -> Incoming {
    let Ok(text) = std::str::from_utf8(line) else {
        return Incoming::Invalid(None, RpcError::parse("the message is not UTF-8"));
    };
    match parse_nested(text, MAX_DEPTH) {
        Ok(Value::Array(items)) => Incoming::Batch(items),
        Ok(value) => of_value(value),
        Err(error) => {
            // A client waits for the answer to a request, also to one with a duplicate name or an inexact number in it.
            #[derive(Deserialize)]
            struct WithId {
                id: Value,
            }
            match serde_json::from_str::<serde::de::IgnoredAny>(text) {
                Err(_) => Incoming::Invalid(None, RpcError::parse(error.to_string())),
                Ok(_) => {
                    let id = serde_json::from_str::<WithId>(text).ok();
                    let id = id.and_then(|with| RequestId::of(&with.id));
                    Incoming::Invalid(id, RpcError::invalid_request(error.to_string()))
                }
            }
        }
    }
}

/// Interprets a JSON value as a message.
pub(crate) fn of_value(value: Value) -> Incoming {
    let invalid = |id, message: String| Incoming::Invalid(id, RpcError::invalid_request(message));
    let mut object = match value {
        Value::Object(object) => object,
        other => {
            return invalid(
                None,
                format!("a message is a JSON object, not {}", kind_of(&other)),
            );
        }
    };
    let id = match object.get("id") {
        None => None,
        Some(id) => match RequestId::of(id) {
            Some(id) => Some(id),
            // The answer to a message whose identifier could not be read has none either.
            None if is_response(&object) => return Incoming::Response(None),
            None => return invalid(None, "`id` is a string or an integer".into()),
        },
    };
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return invalid(id, "`jsonrpc` is \"2.0\"".into());
    }
    let method = match object.remove("method") {
        Some(Value::String(method)) => method,
        Some(other) => return invalid(id, format!("`method` is a string, not {}", kind_of(&other))),
        None if is_response(&object) => {
            let result = object.remove("result").unwrap_or(Value::Null);
            return Incoming::Response(id.map(|id| (id, result)));
        }
        None => return invalid(id, "a message has a `method`, a `result` or an `error`".into()),
    };
    let params = match object.remove("params") {
        // Some clients write what they leave out.
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(other) => {
            let error = format!("`params` is an object, not {}", kind_of(&other));
            return match id {
                Some(id) => Incoming::Invalid(Some(id), RpcError::invalid_params(error)),
                None => Incoming::Response(None),
            };
        }
    };
    match id {
        Some(id) => Incoming::Request(Request { id, method, params }),
        None => Incoming::Notification { method, params },
    }
}

fn is_response(object: &Map<String, Value>) -> bool {
    !object.contains_key("method") && (object.contains_key("result") || object.contains_key("error"))
}

/// Returns a response.
pub(crate) fn response(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    let mut message = Vec::new();
    write_response(&mut message, id, result).expect("writing to a vector never fails");
    message
}

/// Writes a response.
///
/// # Errors
/// Fails if the output does.
pub(crate) fn write_response(
    output: impl io::Write,
    id: &RequestId,
    result: &impl Serialize,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct Response<'a, R> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        result: &'a R,
    }
    let response = Response {
        jsonrpc: "2.0",
        id,
        result,
    };
    Ok(serde_json::to_writer(output, &response)?)
}

/// Writes a response whose result is an object with members, and before them one whose value is JSON already.
///
/// # Errors
/// Fails if the output does.
pub(crate) fn write_response_with(
    mut output: impl io::Write,
    id: &RequestId,
    (name, value): (&str, &impl Display),
    others: &impl Serialize,
) -> io::Result<()> {
    output.write_all(br#"{"jsonrpc":"2.0","id":"#)?;
    serde_json::to_writer(&mut output, id)?;
    write!(output, r#","result":{{"{name}":{value},"#)?;
    let is_opened = true;
    serde_json::to_writer(
        Members {
            output: &mut output,
            is_opened,
        },
        others,
    )?;
    output.write_all(b"}")
}

/// Writes an object without its first byte, into one that is open.
struct Members<W> {
    output: W,
    /// True until the first byte comes.
    is_opened: bool,
}

impl<W: io::Write> io::Write for Members<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_opened && !bytes.is_empty() {
            self.is_opened = false;
            return Ok(1);
        }
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Writes an error. One without an identifier answers a message whose identifier could not be read.
pub(crate) fn error(id: Option<&RequestId>, error: &RpcError) -> Vec<u8> {
    let mut inner = json!({ "code": error.code, "message": error.message });
    if let Some(data) = &error.data {
        inner["data"] = data.clone();
    }
    line(&json!({ "jsonrpc": "2.0", "id": id, "error": inner }))
}

/// Writes a request of this server.
pub(crate) fn request(id: &RequestId, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// Writes a notification.
pub(crate) fn notification(method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

/// Serializes to one line without its end: JSON escapes line ends inside strings.
fn line(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("values with names of type string are serialized without an error")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &[u8]) -> (Option<RequestId>, i32) {
        match parse(line) {
            Incoming::Invalid(id, error) => (id, error.code),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_has_string_or_integer_id() {
        for (id, expected) in [
            ("1", RequestId::Number(1)),
            ("-9007199254740993", RequestId::Number(-9_007_199_254_740_993)),
            (r#""a\u0062""#, RequestId::Text("ab".into())),
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            match parse(line.as_bytes()) {
                Incoming::Request(request) => assert_eq!(request.id, expected),
                other => panic!("{other:?}"),
            }
        }
        for id in ["null", "1.5", "[]", "{}", "true", "18446744073709551615"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert_eq!(code(line.as_bytes()), (None, -32600), "{id}");
        }
    }

    #[test]
    fn null_in_the_place_of_parameters_is_none() {
        match parse(br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#) {
            Incoming::Request(request) => assert!(request.params.is_empty()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn malformed_text_is_a_parse_error() {
        for line in [
            &b"{"[..],
            b"x",
            b"{}{}",
            b"\"\xff\"",
            b"{\"jsonrpc\":\"2.0\"",
            b"{a:1}",
        ] {
            assert_eq!(code(line), (None, -32700), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn json_that_is_no_message_is_an_invalid_request() {
        let one = Some(RequestId::Number(1));
        for (line, id, expected) in [
            ("1", None, -32600),
            ("null", None, -32600),
            ("{}", None, -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, one.clone(), -32600),
            (r#"{"id":1,"method":"ping"}"#, one.clone(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, one.clone(), -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, one.clone(), -32600),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                one.clone(),
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":2}}"#,
                one.clone(),
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e400}}"#,
                one.clone(),
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":18446744073709551616}}"#,
                one,
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, None, -32600),
        ] {
            assert_eq!(code(line.as_bytes()), (id, expected), "{line}");
        }
    }

    #[test]
    fn depth_of_a_message_is_limited() {
        let nested = |depth: usize| {
            let value = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{value}}}}}"#)
        };
        assert!(matches!(
            parse(nested(MAX_DEPTH - 2).as_bytes()),
            Incoming::Request(_)
        ));
        assert_eq!(
            code(nested(MAX_DEPTH - 1).as_bytes()),
            (Some(RequestId::Number(1)), -32600)
        );
    }

    #[test]
    fn responses_of_the_client_are_no_requests() {
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
                Some((RequestId::Number(1), json!({}))),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#,
                Some((RequestId::Number(1), Value::Null)),
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#,
                None,
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Incoming::Response(expected), "{line}");
        }
    }

    #[test]
    fn messages_are_written_on_one_line() {
        let text = "a\nb\r\u{2028}\"}\n{\"jsonrpc\":\"2.0\"}";
        for line in [
            response(&RequestId::Text(text.into()), &text),
            error(None, &RpcError::parse(text)),
            notification("m", &text.into()),
        ] {
            assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
            assert!(serde_json::from_slice::<Value>(&line).is_ok());
        }
    }
}
