//! The target of a request in its canonical form.
//!
//! All code that handles a request (policy, look-up, connection, `Host` header, request line) uses this form and never
//! the guest's text, so that no two components interpret a URL differently. The parser implements the WHATWG URL
//! standard (<https://url.spec.whatwg.org/>), which also normalizes every spelling of an IPv4 address (`0x7f.1`,
//! `017700000001`, full-width digits).

use std::net::IpAddr;

use url::Url;

/// Maximum size of a URL, in bytes. Servers accept about 8 KiB in practice (RFC 9110, section 4.1), and longer ones
/// have crashed HTTP stacks before.
pub(crate) const MAX_URL: usize = 8 << 10;

/// Scheme, host, port, path and query of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Starts with `/`; dot segments are resolved, also percent-encoded ones.
    pub(crate) path: String,
    /// Without the `?`.
    pub(crate) query: Option<String>,
}

/// Supported schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// A host in canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A DNS name: ASCII, lower case, without the trailing dot.
    Name(String),
    /// An IP address written in the URL.
    Ip(IpAddr),
}

/// Error of an invalid target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTarget {
    #[error("the URL has {0} bytes, more than the limit of {MAX_URL}")]
    TooLong(usize),
    #[error("invalid URL: {0}")]
    Malformed(String),
    /// With the URL in its canonical form.
    #[error("unsupported scheme, expected `http` or `https`")]
    Scheme(String),
    #[error("the URL contains a user name or password")]
    UserInfo,
}

impl Target {
    /// Parses a URL as written by the user or in a `Location` header.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidTarget> {
        if text.len() > MAX_URL {
            return Err(InvalidTarget::TooLong(text.len()));
        }
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(InvalidTarget::Malformed(
                "it contains white space or control characters".into(),
            ));
        }
        let url = Url::parse(text).map_err(|e| InvalidTarget::Malformed(e.to_string()))?;
        let target = Self::from_url(&url)?;
        has_one_reading(text)?;
        Ok(target)
    }

    /// Parses the target of a request built by a guest.
    ///
    /// The authority is parsed separately and as part of the whole; both must name the same host, so that no trick in
    /// the path (an absolute form such as `GET http://other/`) redirects the request.
    pub(crate) fn of_request(uri: &http::Uri) -> Result<Self, InvalidTarget> {
        let authority = uri
            .authority()
            .ok_or_else(|| InvalidTarget::Malformed("it has no host".into()))?;
        if authority.as_str().contains('@') {
            return Err(InvalidTarget::UserInfo);
        }
        if !uri.path().starts_with('/') {
            return Err(InvalidTarget::Malformed(
                "the path does not start with `/`".into(),
            ));
        }
        let target = Self::parse(&uri.to_string())?;
        let alone =
            url::Host::parse(authority.host()).map_err(|e| InvalidTarget::Malformed(e.to_string()))?;
        if Host::from(alone) != target.host {
            return Err(InvalidTarget::Malformed("it names two hosts".into()));
        }
        Ok(target)
    }

    /// Resolves the target and the fragment of a `Location` header relative to this one, according to the WHATWG URL
    /// standard; bytes that are not valid UTF-8 count as their percent-encoding.
    ///
    /// # Errors
    /// If it is not an HTTP URL, or not a valid target.
    pub(crate) fn join(&self, location: &[u8]) -> Result<(Self, Option<String>), InvalidTarget> {
        if location.len() > MAX_URL {
            return Err(InvalidTarget::TooLong(location.len()));
        }
        let malformed = |e: url::ParseError| InvalidTarget::Malformed(e.to_string());
        let mut text = String::new();
        for chunk in location.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02X}")));
        }
        let base = Url::parse(&self.to_string()).map_err(malformed)?;
        let url = base.join(&text).map_err(malformed)?;
        Ok((Self::from_url(&url)?, url.fragment().map(str::to_owned)))
    }

    fn from_url(url: &Url) -> Result<Self, InvalidTarget> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(InvalidTarget::Scheme(url.to_string())),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidTarget::UserInfo);
        }
        let host = url
            .host()
            .ok_or_else(|| InvalidTarget::Malformed("it has no host".into()))?;
        let host = Host::from(host.to_owned());
        if matches!(&host, Host::Name(name) if !is_dns_name(name)) {
            return Err(InvalidTarget::Malformed("the host is not a DNS name".into()));
        }
        let port = url.port().unwrap_or(scheme.default_port());
        if port == 0 {
            return Err(InvalidTarget::Malformed("port 0 is invalid".into()));
        }
        let target = Self {
            scheme,
            host,
            port,
            path: url.path().to_owned(),
            query: url.query().map(str::to_owned),
        };
        // Encoding lengthens a URL, which may then exceed the limit.
        match target.to_string().len() {
            length if length > MAX_URL => Err(InvalidTarget::TooLong(length)),
            _ => Ok(target),
        }
    }

    /// Returns `host` or `host:port`, as in the `Host` header (RFC 9110, section 7.2).
    pub(crate) fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            self.host_and_port()
        }
    }

    /// Returns `host:port`, including the default port.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns path and query, as in the request line.
    pub(crate) fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    /// Returns `true` if both have the same scheme, host and port (RFC 6454).
    pub(crate) fn same_origin(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.host == other.host && self.port == other.port
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.path)?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

impl Scheme {
    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<url::Host<String>> for Host {
    fn from(host: url::Host<String>) -> Self {
        match host {
            url::Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(&name);
                Self::Name(name.to_ascii_lowercase())
            }
            url::Host::Ipv4(ip) => Self::Ip(ip.into()),
            url::Host::Ipv6(ip) => Self::Ip(ip.into()),
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

/// Rejects URLs that the WHATWG standard accepts and RFC 3986 interprets differently or not at all: one slash after the
/// scheme or three, a backslash before the query, and a percent-encoded host. (White space is rejected before.)
fn has_one_reading(text: &str) -> Result<(), InvalidTarget> {
    let malformed = |what: &str| Err(InvalidTarget::Malformed(what.into()));
    let Some((_, rest)) = text.split_once(':') else {
        return malformed("it has no scheme");
    };
    let Some(rest) = rest.strip_prefix("//").filter(|rest| !rest.starts_with('/')) else {
        return malformed("the scheme is not followed by exactly two slashes");
    };
    if rest
        .split(['?', '#'])
        .next()
        .is_some_and(|path| path.contains('\\'))
    {
        return malformed("a backslash before the query");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('%') {
        return malformed("the host is percent-encoded");
    }
    Ok(())
}

/// Labels of letters, digits, `-` and `_`, 63 bytes each, 253 in total (RFC 1035, section 2.3.4; `_` is in use).
fn is_dns_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(scheme: &str, authority: &str, path: &str) -> Result<Target, InvalidTarget> {
        let uri = http::Uri::builder()
            .scheme(scheme)
            .authority(authority)
            .path_and_query(path)
            .build()
            .map_err(|e| InvalidTarget::Malformed(e.to_string()))?;
        Target::of_request(&uri)
    }

    #[test]
    fn url_has_one_canonical_form() {
        for (written, canonical) in [
            ("HTTPS://EXAMPLE.com:443/a/../b?q#part", "https://example.com/b?q"),
            ("http://example.com.", "http://example.com/"),
            ("http://example.com:80/", "http://example.com/"),
            ("http://example.com:8080/", "http://example.com:8080/"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
            ("http://[::FFFF:7f00:1]:81/", "http://[::ffff:127.0.0.1]:81/"),
            ("http://h/a/%2e%2E/b/%2e/c", "http://h/b/c"),
        ] {
            assert_eq!(
                Target::parse(written).unwrap().to_string(),
                canonical,
                "{written}"
            );
        }
    }

    #[test]
    fn host_is_a_dns_name() {
        let label = |length: usize| "a".repeat(length);
        let name = |last: usize| [label(63), label(63), label(63), label(last)].join(".");
        for (host, is_name) in [
            ("a-b_c.example".to_owned(), true),
            ("a!b.example".to_owned(), false),
            ("a$b.example".to_owned(), false),
            (label(63), true),
            (label(64), false),
            (name(61), true),
            (name(62), false),
        ] {
            assert_eq!(
                Target::parse(&format!("http://{host}/")).is_ok(),
                is_name,
                "{host}"
            );
        }
    }

    #[test]
    fn url_beyond_eight_kibibytes_is_rejected() {
        let url = |length: usize| format!("http://h/{}", "a".repeat(length - "http://h/".len()));
        assert!(Target::parse(&url(MAX_URL)).is_ok());
        assert_eq!(
            Target::parse(&url(MAX_URL + 1)),
            Err(InvalidTarget::TooLong(MAX_URL + 1))
        );
        // One byte that becomes three by encoding.
        let growing = url(MAX_URL - 1).replace("aaa", "a{a");
        assert!(matches!(Target::parse(&growing), Err(InvalidTarget::TooLong(_))));
    }

    #[test]
    fn ambiguous_request_is_rejected() {
        for (authority, path) in [
            ("user@example.com", "/"),
            ("user:pw@example.com", "/"),
            ("@example.com", "/"),
            ("example.com", "*"),
            ("example.com", "http://127.0.0.1/"),
            ("example.com:0", "/"),
            ("example.com:99999", "/"),
            ("exa%2emple.com", "/"),
            ("", "/"),
            (".", "/"),
            ("a..b", "/"),
        ] {
            assert!(
                request("http", authority, path).is_err(),
                "{authority} {path}: {:?}",
                request("http", authority, path)
            );
        }
        for written in [
            "http://a b/",
            "http://a/\r\nX: y",
            " http://a/",
            "ht\ttp://a/",
            "http://a/\u{7f}",
            "http:/a/",
            "http:a",
            "https:///a/",
            "http://a\\@b/",
            "http://a/b\\..\\c",
            "http://%61/",
            "a/b",
        ] {
            assert!(Target::parse(written).is_err(), "{written:?}");
        }
    }

    #[test]
    fn location_is_resolved_relative_to_its_request() {
        let here = Target::parse("https://example.com/a/b").unwrap();
        for (location, found) in [
            ("c", Some("https://example.com/a/c")),
            ("/c?d", Some("https://example.com/c?d")),
            ("//other.example/x", Some("https://other.example/x")),
            ("http://127.0.0.1/", Some("http://127.0.0.1/")),
            ("\\\\127.0.0.1\\x", Some("https://127.0.0.1/x")),
            ("file:///etc/passwd", None),
            ("https://u:p@example.com/", None),
        ] {
            let target = here
                .join(location.as_bytes())
                .map(|(target, _)| target.to_string());
            assert_eq!(target.ok().as_deref(), found, "{location}");
        }
    }

    #[test]
    fn location_is_read_up_to_eight_kibibytes() {
        let base = Target::parse("http://a/").unwrap();
        let location = |length: usize| format!("http://h/{}", "a".repeat(length - "http://h/".len()));
        assert!(base.join(location(MAX_URL).as_bytes()).is_ok());
        assert_eq!(
            base.join(location(MAX_URL + 1).as_bytes()).unwrap_err(),
            InvalidTarget::TooLong(MAX_URL + 1)
        );
        // Long before it is made short.
        let dots = format!("http://h/{}", "./".repeat(MAX_URL / 2));
        assert!(matches!(
            base.join(dots.as_bytes()),
            Err(InvalidTarget::TooLong(_))
        ));
        assert!(base.join(b"/b").is_ok());
    }
}
