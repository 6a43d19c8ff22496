//! Checks of the headers of a request: whether they tell the same as its body.

use hyper::HeaderMap;
use serde_json::{Map, Value};
use toolcell_http::only;

use crate::message::{Incoming, Request, RpcError, excerpt};
use crate::param_headers::{self, ParamHeader};
use crate::server::connection::PROTOCOL_VERSION;
use crate::version::Version;

/// Version of the protocol of a request.
pub(crate) const VERSION: &str = "mcp-protocol-version";
/// Identifier of a session.
pub(crate) const SESSION: &str = "mcp-session-id";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Version in the `_meta` of a request.
pub(crate) fn version_in(params: &Map<String, Value>) -> Option<&str> {
    params.get("_meta")?.get(PROTOCOL_VERSION)?.as_str()
}

/// Checks that the version in the header is one that is spoken. What is no message has its own error, which says more.
///
/// # Errors
/// Fails for any other version.
pub(crate) fn check_known(stated: Option<&str>, message: &Incoming) -> Result<(), RpcError> {
    match stated.filter(|name| Version::named(name).is_none()) {
        Some(name) if !matches!(message, Incoming::Invalid(..)) => {
            Err(RpcError::unsupported_version(name, &Version::stateless_names()))
        }
        _ => Ok(()),
    }
}

/// Checks that the headers of a request without a session tell the same as its body: a proxy may have decided by them.
/// `schema` is that of the tool's arguments.
///
/// # Errors
/// The header that differs, or is missing.
pub(crate) fn check<'a>(
    headers: &HeaderMap,
    request: &Request,
    schema: impl FnOnce(&str) -> Option<&'a Value>,
) -> Result<(), RpcError> {
    let params = &request.params;
    if let Some(version) = version_in(params) {
        same(headers, VERSION, version)?;
    }
    same(headers, METHOD, &request.method)?;
    let name = named(request);
    if let Some(name) = name {
        same(headers, NAME, name)?;
    }
    if request.method == "tools/call"
        && let Some(schema) = name.and_then(schema)
    {
        check_arguments(headers, schema, params.get("arguments"))?;
    }
    Ok(())
}

/// Checks the headers of a message in a session, whose version has none: those that are there tell the same as the body.
///
/// # Errors
/// The header that differs.
pub(crate) fn check_in_session(headers: &HeaderMap, message: &Incoming) -> Result<(), RpcError> {
    let (method, name) = match message {
        Incoming::Request(request) => (request.method.as_str(), named(request)),
        Incoming::Notification { method, .. } => (method.as_str(), None),
        _ => ("", None),
    };
    for (header, expected) in [(METHOD, method), (NAME, name.unwrap_or_default())] {
        if headers.contains_key(header) {
            same(headers, header, expected)?;
        }
    }
    Ok(())
}

/// Subject of a request, as the header `Mcp-Name` has it.
fn named(request: &Request) -> Option<&str> {
    let key = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return None,
    };
    request.params.get(key).and_then(Value::as_str)
}

/// Checks the arguments that the schema places in headers.
fn check_arguments(headers: &HeaderMap, schema: &Value, arguments: Option<&Value>) -> Result<(), RpcError> {
    // A client does not call a tool whose schema is wrong in this respect.
    for param in ParamHeader::all(schema).unwrap_or_default() {
        let text = arguments
            .and_then(Value::as_object)
            .and_then(|arguments| param.text(arguments));
        let header = &param.name;
        match text {
            Some(text) => same(headers, header.as_str(), &text)?,
            None if headers.contains_key(header) => {
                let error = format!("the header `{header}` is for an argument that the body does not have");
                return Err(RpcError::header_mismatch(error));
            }
            None => {}
        }
    }
    Ok(())
}

fn same(headers: &HeaderMap, name: &str, expected: &str) -> Result<(), RpcError> {
    let Some(value) = only(headers, name) else {
        let error = format!("the header `{name}` is missing, or occurs more than once");
        return Err(RpcError::header_mismatch(error));
    };
    if param_headers::is_same(value, expected) {
        return Ok(());
    }
    let shown = excerpt(value);
    Err(RpcError::header_mismatch(format!(
        "the header `{name}` is `{shown}`, and the body differs"
    )))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::try_from(*name).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn mismatch(pairs: &[(&str, &str)], params: Value) -> bool {
        let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
        let request = Request {
            id: crate::message::RequestId::Number(1),
            method: "tools/call".into(),
            params: params.as_object().unwrap().clone(),
        };
        match check(&headers(pairs), &request, |_| Some(&schema)) {
            Ok(()) => false,
            Err(error) => {
                assert_eq!((error.code, error.status), (-32020, 400));
                true
            }
        }
    }

    #[test]
    fn headers_tell_the_same_as_the_body() {
        let params = || json!({"name": "t", "_meta": { PROTOCOL_VERSION: "2026-07-28" }});
        let version = (VERSION, "2026-07-28");
        assert!(!mismatch(
            &[version, (METHOD, "tools/call"), (NAME, "t")],
            params()
        ));
        // `=?base64?dA==?=` is `t`.
        assert!(!mismatch(
            &[version, (METHOD, "tools/call"), (NAME, "=?base64?dA==?=")],
            params()
        ));
        for wrong in [
            &[(METHOD, "tools/call"), (NAME, "t")][..],
            &[(VERSION, "2025-11-25"), (METHOD, "tools/call"), (NAME, "t")],
            &[version, (NAME, "t")],
            &[version, (METHOD, "TOOLS/CALL"), (NAME, "t")],
            &[version, (METHOD, "tools/call")],
            &[version, (METHOD, "tools/call"), (NAME, "u")],
            &[version, (METHOD, "tools/call"), (NAME, "=?base64?dA?=")],
            &[version, (METHOD, "tools/call"), (NAME, "t"), (NAME, "t")],
        ] {
            assert!(mismatch(wrong, params()), "{wrong:?}");
        }
    }

    #[test]
    fn arguments_in_headers_tell_the_same_as_the_body() {
        let base = [(METHOD, "tools/call"), (NAME, "t")];
        let with = |value: &'static str| [base[0], base[1], ("mcp-param-region", value)];
        let params = |region: Value| json!({"name": "t", "arguments": {"region": region}});
        assert!(!mismatch(&with("eu"), params(json!("eu"))));
        assert!(!mismatch(&with("=?base64?ZXU=?="), params(json!("eu"))));
        assert!(!mismatch(&base, params(Value::Null)));
        assert!(!mismatch(&base, json!({"name": "t"})));
        assert!(mismatch(&base, params(json!("eu"))));
        assert!(mismatch(&with("us"), params(json!("eu"))));
        assert!(mismatch(&with("=?base64?ZXU?="), params(json!("eu"))));
        assert!(mismatch(&with("eu"), json!({"name": "t"})));
    }
}
