//! HTTP client of a provider: TLS settings and timeouts.
//!
//! Redirects are not followed (a key must not be sent to another host), and proxies of the environment are not used.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use toolcell_core::http_header::is_of_client;
use url::Url;

use super::HttpOptions;
use crate::{ApiKey, BaseUrlError, SetupError};

/// A header of a request.
pub(crate) type Header = (HeaderName, HeaderValue);

/// Validated base URL.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    base: String,
    /// URL below which the protocol may be instead: with the version of the API, or without it.
    other: Option<String>,
    pub(super) host: String,
}

impl Endpoint {
    /// URL of a path below the base URL, or below the other one.
    pub(super) fn at(&self, path: &str, is_other: bool) -> String {
        let base = self.other.as_ref().filter(|_| is_other).unwrap_or(&self.base);
        format!("{base}/{path}")
    }

    /// True if there is another URL to try.
    pub(super) fn has_other(&self) -> bool {
        self.other.is_some()
    }
}

/// Position of an API's version in the URLs of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// The base URL may contain it, as in `http://localhost:11434/v1`. Of a URL with another path, both forms are tried.
    InBase(&'static str),
    /// The version always comes after the base URL, unless that ends with it.
    InPath(&'static str),
    /// The API has none; one at the end of the base URL, for another API of the same server, is removed.
    None,
}

/// True for a part of a path such as `v1`, `v1beta` or `v4`.
fn is_version(part: &str) -> bool {
    part.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Validates a base URL: `http` or `https`, with a host, without user, query and fragment. `path` is that of requests, which is
/// removed: a URL from the documentation of a service often has it.
pub(super) fn endpoint(base_url: &str, version: Version, path: &str) -> Result<Endpoint, SetupError> {
    checked(base_url, version, path).map_err(|source| {
        let url = without_credentials(base_url);
        SetupError::BaseUrl { url, source }
    })
}

/// Removes user name and password from a URL for an error, also if the URL is invalid.
fn without_credentials(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        (None, Some((_, rest))) => rest.to_owned(),
        (_, None) => url.to_owned(),
    }
}

/// Removes the path of requests, also for another model or method, from the end of the path of a URL.
fn without_request_path<'a>(written: &'a str, path: &str) -> &'a str {
    let path = path.split('?').next().unwrap_or_default();
    if let Some(base) = written.strip_suffix(path).and_then(|base| base.strip_suffix('/')) {
        return base;
    }
    let of_model = path
        .contains(':')
        .then(|| written.rsplit_once("/models/"))
        .flatten();
    match of_model {
        Some((base, model)) if model.ends_with("enerateContent") && !model.contains('/') => base,
        _ => written,
    }
}

fn checked(base_url: &str, version: Version, path: &str) -> Result<Endpoint, BaseUrlError> {
    let mut url = Url::parse(base_url.trim())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(BaseUrlError::Scheme);
    }
    let host = url.host_str().ok_or(BaseUrlError::NoHost)?.to_owned();
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BaseUrlError::Credentials);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(BaseUrlError::Query);
    }
    let base = without_request_path(url.path().trim_end_matches('/'), path).to_owned();
    url.set_path(&base);
    let written = url.as_str().trim_end_matches('/').to_owned();
    let mut parts = url
        .path_segments()
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty());
    let has_path = parts.clone().next().is_some();
    let has_version = parts.any(is_version);
    let (base, other) = match version {
        Version::InBase(version) | Version::InPath(version) if has_version => {
            let (start, end) = written.rsplit_once('/').unwrap_or_default();
            let other = match end {
                _ if end == version => Some(start.to_owned()),
                "v1" => Some(format!("{start}/{version}")),
                _ => None,
            };
            (written, other)
        }
        Version::InBase(version) if has_path => {
            let other = format!("{written}/{version}");
            (written, Some(other))
        }
        Version::InBase(version) | Version::InPath(version) => {
            (format!("{written}/{version}"), Some(written))
        }
        Version::None => {
            let end = written
                .rsplit_once('/')
                .filter(|(_, end)| has_path && (is_version(end) || *end == "api"));
            (end.map_or(written.clone(), |(start, _)| start.to_owned()), None)
        }
    };
    Ok(Endpoint { base, other, host })
}

/// Builds a header; `secret` values are hidden from `Debug` and not stored in HTTP/2 tables.
pub(crate) fn header(name: &str, value: &str, secret: bool) -> Result<Header, SetupError> {
    let refused = || SetupError::Header { name: name.into() };
    let header: HeaderName = name.parse().map_err(|_| refused())?;
    let mut value: HeaderValue = value.parse().map_err(|_| refused())?;
    value.set_sensitive(secret);
    Ok((header, value))
}

/// Header `Authorization: Bearer` of a key or token (RFC 6750).
pub(crate) fn bearer(key: &ApiKey) -> Result<Header, SetupError> {
    header("authorization", &format!("Bearer {}", key.expose()), true)
}

/// Builds the client.
pub(super) fn client(options: &HttpOptions) -> Result<reqwest::Client, SetupError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        if is_of_client(name) {
            return Err(SetupError::ReservedHeader { name: name.clone() });
        }
        let (name, value) = header(name, value, true)?;
        headers.insert(name, value);
    }
    let mut tls = toolcell_tls::client_config(&options.root_certificates)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(options.connect_timeout)
        .user_agent(concat!("toolcell/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .no_proxy();
    if let Some(proxy) = &options.proxy {
        // The URL may contain a password, so that it is removed from the cause.
        let proxy = reqwest::Proxy::all(proxy).map_err(|e| SetupError::Proxy(e.without_url()))?;
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(|e| SetupError::Client(e.without_url()))
}

/// True if TLS refused the connection, for example because of an untrusted certificate.
pub(super) fn refuses_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return true;
        }
        // The source of an I/O error is that of the error it wraps, not the error itself.
        let wrapped = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        cause = match wrapped {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::error_chain;

    #[test]
    fn base_url_may_contain_the_version_or_not() {
        let urls = |url: &str, version| {
            let endpoint = endpoint(url, version, "x").unwrap();
            (
                endpoint.at("x", false),
                endpoint.has_other().then(|| endpoint.at("x", true)),
            )
        };
        let (base, path) = (Version::InBase("v1"), Version::InPath("v1"));
        for (url, version, first, other) in [
            (
                "https://a.example/v1",
                base,
                "https://a.example/v1/x",
                Some("https://a.example/x"),
            ),
            (
                "https://a.example/in/v1/",
                path,
                "https://a.example/in/v1/x",
                Some("https://a.example/in/x"),
            ),
            (
                "https://a.example",
                base,
                "https://a.example/v1/x",
                Some("https://a.example/x"),
            ),
            (
                "http://localhost:1/",
                path,
                "http://localhost:1/v1/x",
                Some("http://localhost:1/x"),
            ),
            (
                "https://a.example/in",
                base,
                "https://a.example/in/x",
                Some("https://a.example/in/v1/x"),
            ),
            (
                "https://a.example/in",
                path,
                "https://a.example/in/v1/x",
                Some("https://a.example/in/x"),
            ),
            (
                "https://a.example/v1beta/openai",
                base,
                "https://a.example/v1beta/openai/x",
                None,
            ),
            (
                "https://a.example/paas/v4",
                base,
                "https://a.example/paas/v4/x",
                None,
            ),
            (
                "https://a.example/v1",
                Version::InBase("v1beta"),
                "https://a.example/v1/x",
                Some("https://a.example/v1beta/x"),
            ),
            (
                "http://localhost:1/v1",
                Version::None,
                "http://localhost:1/x",
                None,
            ),
            (
                "http://localhost:1/api/",
                Version::None,
                "http://localhost:1/x",
                None,
            ),
            ("http://localhost:1", Version::None, "http://localhost:1/x", None),
            (
                "http://a.example/ollama",
                Version::None,
                "http://a.example/ollama/x",
                None,
            ),
        ] {
            assert_eq!(
                urls(url, version),
                (first.to_owned(), other.map(str::to_owned)),
                "{url}"
            );
        }
    }

    #[test]
    fn base_url_may_contain_the_path_of_requests() {
        let generate = "models/m:streamGenerateContent?alt=sse";
        for (url, version, path, first) in [
            (
                "http://h/v1/chat/completions",
                Version::InBase("v1"),
                "chat/completions",
                "http://h/v1/x",
            ),
            (
                "http://h/in/v1/messages/",
                Version::InPath("v1"),
                "messages",
                "http://h/in/v1/x",
            ),
            (
                "http://h/messages",
                Version::InPath("v1"),
                "messages",
                "http://h/v1/x",
            ),
            ("http://h/api/chat", Version::None, "api/chat", "http://h/x"),
            (
                "http://h/v1beta/models/other:generateContent",
                Version::InBase("v1beta"),
                generate,
                "http://h/v1beta/x",
            ),
            (
                "http://h/v1beta/models",
                Version::InBase("v1beta"),
                generate,
                "http://h/v1beta/models/x",
            ),
            // The path of another protocol may be a prefix of a gateway.
            (
                "http://h/v1/messages",
                Version::InBase("v1"),
                "chat/completions",
                "http://h/v1/messages/x",
            ),
        ] {
            assert_eq!(
                endpoint(url, version, path).unwrap().at("x", false),
                first,
                "{url}"
            );
        }
    }

    #[test]
    fn invalid_base_url_is_refused_without_its_password() {
        for (url, is) in [
            ("example.com", "relative URL without a base"),
            ("ftp://example.com", "must start with"),
            ("https://u:geheim@example.com", "user names and passwords"),
            ("https://u:geheim@exa mple.com", "invalid"),
            ("https://u:geheim@example.com:x", "invalid port number"),
            ("u:geheim@example.com", "must start with"),
            ("https://example.com?x=1", "queries and fragments"),
            ("http://", "empty host"),
        ] {
            let error = error_chain(&endpoint(url, Version::None, "x").unwrap_err());
            assert!(error.contains(is), "{url}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn invalid_proxy_header_and_root_certificate_are_refused() {
        let refused = |options: HttpOptions| error_chain(&client(&options).unwrap_err());
        let proxy = HttpOptions {
            proxy: Some("://".into()),
            ..HttpOptions::default()
        };
        assert!(refused(proxy).starts_with("invalid proxy"));
        let header = HttpOptions {
            headers: vec![("x-a".into(), "a\nb".into())],
            ..HttpOptions::default()
        };
        assert_eq!(
            refused(header),
            "invalid characters in the value of the header `x-a`"
        );
        let reserved = HttpOptions {
            headers: vec![("Content-Length".into(), "0".into())],
            ..HttpOptions::default()
        };
        assert_eq!(
            refused(reserved),
            "the header `Content-Length` is set by the HTTP client"
        );
        let root = HttpOptions {
            root_certificates: vec![b"no certificate".to_vec()],
            ..HttpOptions::default()
        };
        assert!(refused(root).contains("invalid root certificate"));
        assert!(client(&HttpOptions::default()).is_ok());
    }
}
