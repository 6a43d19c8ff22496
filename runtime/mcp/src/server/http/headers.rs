//! Checks of the headers of a request: where it was sent, from which page, and whether they tell the same as its body.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Map, Value};

use crate::message::{Incoming, Request, RpcError, excerpt};
use crate::param_headers::{self, ParamHeader};
use crate::server::connection::PROTOCOL_VERSION;
use crate::server::http::Reached;

/// Version of the protocol of a request.
pub(crate) const VERSION: &str = "mcp-protocol-version";
/// Identifier of a session.
pub(crate) const SESSION: &str = "mcp-session-id";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Returns the only value of a header; `None` if it is absent, occurs twice, or is not visible ASCII.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// True if a request was sent to this server, and not by a page of another: the name of another server that leads to this
/// address would give its pages access (DNS rebinding).
pub(crate) fn is_for(headers: &HeaderMap, address: SocketAddr, reached: &Reached) -> bool {
    let Some(host) = only(headers, HOST.as_str()) else {
        return false;
    };
    is_own(host, address, reached)
        && (!headers.contains_key(ORIGIN)
            || only(headers, ORIGIN.as_str()).is_some_and(|origin| is_own_origin(origin, address, reached)))
}

fn is_own(host: &str, address: SocketAddr, reached: &Reached) -> bool {
    if reached.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)) {
        return true;
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port.parse().ok()),
        _ => (host, Some(80)),
    };
    if port != Some(address.port()) {
        return false;
    }
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match literal.unwrap_or(name).parse::<IpAddr>() {
        Ok(ip) => ip == address.ip().to_canonical() || ip == address.ip(),
        Err(_) => address.ip().to_canonical().is_loopback() && name.eq_ignore_ascii_case("localhost"),
    }
}

fn is_own_origin(origin: &str, address: SocketAddr, reached: &Reached) -> bool {
    if reached.origins.iter().any(|own| own.eq_ignore_ascii_case(origin)) {
        return true;
    }
    let host = origin.split_once("://").filter(|(scheme, _)| *scheme == "http");
    host.is_some_and(|(_, host)| is_own(host, address, reached))
}

/// True if the body is JSON by its type. A page of another origin cannot send it without asking first.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    only(headers, CONTENT_TYPE.as_str()).is_some_and(|value| {
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    })
}

/// Types of answers that a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

pub(crate) fn takes(headers: &HeaderMap) -> Takes {
    let mut types = headers.get_all(ACCEPT).iter().peekable();
    if types.peek().is_none() {
        return Takes {
            json: true,
            events: false,
        };
    }
    let all: Vec<String> = types
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|range| {
            range
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase()
        })
        .collect();
    let has = |names: [&str; 3]| all.iter().any(|range| names.contains(&range.as_str()));
    Takes {
        json: has(["application/json", "application/*", "*/*"]),
        events: has(["text/event-stream", "text/*", "*/*"]),
    }
}

/// Version in the `_meta` of a request.
pub(crate) fn version_in(params: &Map<String, Value>) -> Option<&str> {
    params.get("_meta")?.get(PROTOCOL_VERSION)?.as_str()
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

    #[test]
    fn only_own_hosts_are_accepted() {
        let reached = Reached {
            hosts: vec!["tools.example".into()],
            ..Reached::default()
        };
        let v4 = "127.0.0.1:8080".parse().unwrap();
        let v6 = "[::1]:8080".parse().unwrap();
        let public = "192.0.2.1:80".parse().unwrap();
        for (address, host, is_own) in [
            (v4, "127.0.0.1:8080", true),
            (v4, "localhost:8080", true),
            (v4, "localhost:+8080", false),
            (v4, "localhost:", false),
            (v4, "LOCALHOST:8080", true),
            (v4, "tools.example", true),
            (v4, "tools.example:8080", false),
            (v4, "127.0.0.1", false),
            (v4, "127.0.0.1:80", false),
            (v4, "127.0.0.2:8080", false),
            (v4, "localhost.evil.example:8080", false),
            (v4, "evil.example:8080", false),
            (v4, "localhost:8080@evil.example", false),
            (v4, "", false),
            (v6, "[::1]:8080", true),
            (v6, "[::1]", false),
            (v6, "localhost:8080", true),
            (public, "192.0.2.1", true),
            (public, "192.0.2.1:80", true),
            (public, "localhost", false),
        ] {
            let headers = headers(&[("host", host)]);
            assert_eq!(is_for(&headers, address, &reached), is_own, "{address} {host}");
        }
        let two = headers(&[("host", "localhost:8080"), ("host", "evil.example")]);
        assert!(!is_for(&two, v4, &reached) && !is_for(&HeaderMap::new(), v4, &reached));
    }

    #[test]
    fn only_pages_of_own_origins_are_accepted() {
        let reached = Reached {
            origins: vec!["https://app.example".into()],
            ..Reached::default()
        };
        let address = "127.0.0.1:8080".parse().unwrap();
        for (origin, is_own) in [
            ("http://localhost:8080", true),
            ("http://127.0.0.1:8080", true),
            ("https://app.example", true),
            ("http://app.example", false),
            ("https://app.example.evil", false),
            ("http://localhost:3000", false),
            ("https://localhost:8080", false),
            ("null", false),
            ("", false),
        ] {
            let headers = headers(&[("host", "localhost:8080"), ("origin", origin)]);
            assert_eq!(is_for(&headers, address, &reached), is_own, "{origin}");
        }
        let two = [
            ("host", "localhost:8080"),
            ("origin", "http://localhost:8080"),
            ("origin", "https://evil.example"),
        ];
        assert!(!is_for(&headers(&two), address, &reached));
    }

    #[test]
    fn types_are_those_that_the_client_lists() {
        for (accept, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream;q=0.9, application/json", true, true),
            ("*/*", true, true),
            ("application/json", true, false),
            ("text/event-stream", false, true),
            ("text/html", false, false),
        ] {
            assert_eq!(
                takes(&headers(&[("accept", accept)])),
                Takes { json, events },
                "{accept}"
            );
        }
        assert!(takes(&HeaderMap::new()).json);
        assert!(is_json(&headers(&[(
            "content-type",
            "Application/JSON; charset=utf-8"
        )])));
        assert!(!is_json(&headers(&[("content-type", "text/plain")])));
        assert!(!is_json(&HeaderMap::new()));
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
