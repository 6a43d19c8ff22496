//! Checks of the headers of a request: where it was sent, from which page, and which types it has and takes.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST, ORIGIN};
use hyper::{HeaderMap, Uri};

/// Ways in which a server over HTTP is reached, beside its address and `localhost`.
#[derive(Debug, Clone, Default)]
pub struct Reached {
    /// Hosts, with the port if it is not the default of the scheme.
    pub hosts: Vec<String>,
    /// Origins of web pages, such as `https://example.com`.
    pub origins: Vec<String>,
}

/// Returns the only value of a header; `None` if it is absent, occurs twice, or is not visible ASCII.
pub fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(value)
}

/// True if a request was sent to this server, and not by a page of another: the name of another server that leads to this
/// address would give its pages access (DNS rebinding).
/// The authority of an absolute URI stands above the header `Host` (RFC 9112, section 3.2.2), and has to be the same.
pub fn is_for(uri: &Uri, headers: &HeaderMap, address: SocketAddr, reached: &Reached) -> bool {
    let Some(host) = only(headers, HOST.as_str()) else {
        return false;
    };
    let is_same = |authority: &str| authority.eq_ignore_ascii_case(host);
    uri.authority()
        .is_none_or(|authority| is_same(authority.as_str()))
        && is_own(host, address, reached)
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

/// Checks that the body is JSON by its type, which a page of another origin cannot send without asking first, and that it is not
/// compressed.
///
/// # Errors
/// The reason of the status 415.
pub fn check_json(headers: &HeaderMap) -> Result<(), &'static str> {
    let is_json = only(headers, CONTENT_TYPE.as_str()).is_some_and(|value| {
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    });
    if !is_json {
        return Err("the content type is `application/json`");
    }
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    match encodings.all(|encoding| encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")) {
        true => Ok(()),
        false => Err("the body has no content encoding, such as gzip"),
    }
}

/// Types of answers that a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// The type `application/json`.
    pub json: bool,
    /// The type `text/event-stream`.
    pub events: bool,
}

/// Returns the types of answers that a request takes; JSON if it does not say.
pub fn takes(headers: &HeaderMap) -> Takes {
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

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

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
        let mapped = "[::ffff:192.0.2.1]:80".parse().unwrap();
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
            (mapped, "192.0.2.1", true),
            (mapped, "[::ffff:192.0.2.1]", true),
            (mapped, "192.0.2.2", false),
        ] {
            let headers = headers(&[("host", host)]);
            assert_eq!(
                is_for(&Uri::default(), &headers, address, &reached),
                is_own,
                "{address} {host}"
            );
        }
        let two = headers(&[("host", "localhost:8080"), ("host", "evil.example")]);
        let uri = Uri::default();
        assert!(!is_for(&uri, &two, v4, &reached) && !is_for(&uri, &HeaderMap::new(), v4, &reached));
        let own = headers(&[("host", "127.0.0.1:8080")]);
        let absolute = |host: &str| format!("http://{host}/api").parse::<Uri>().unwrap();
        assert!(is_for(&absolute("127.0.0.1:8080"), &own, v4, &reached));
        assert!(!is_for(&absolute("evil.example"), &own, v4, &reached));
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
            assert_eq!(
                is_for(&Uri::default(), &headers, address, &reached),
                is_own,
                "{origin}"
            );
        }
        let two = [
            ("host", "localhost:8080"),
            ("origin", "http://localhost:8080"),
            ("origin", "https://evil.example"),
        ];
        assert!(!is_for(&Uri::default(), &headers(&two), address, &reached));
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
    }

    #[test]
    fn bodies_are_json_without_an_encoding() {
        let json = ("content-type", "Application/JSON; charset=utf-8");
        for all in [&[json][..], &[json, ("content-encoding", "Identity")]] {
            assert_eq!(check_json(&headers(all)), Ok(()), "{all:?}");
        }
        for (all, part) in [
            (&[][..], "content type"),
            (&[("content-type", "text/plain")], "content type"),
            (&[json, json], "content type"),
            (&[json, ("content-encoding", "gzip")], "content encoding"),
            (
                &[json, ("content-encoding", "identity"), ("content-encoding", "br")],
                "content encoding",
            ),
        ] {
            let refused = check_json(&headers(all)).unwrap_err();
            assert!(refused.contains(part), "{all:?}: {refused}");
        }
    }
}
