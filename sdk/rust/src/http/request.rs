//! Requests.

use serde::Serialize;

use super::{Response, backend};
use crate::{Result, ToolError, show};

/// Default of [`Request::max_body`], in bytes.
const MAX_BODY: usize = 8 << 20;

/// Headers of a connection, which the host sets and a guest cannot.
const OF_HOST: [&str; 9] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    method: String,
    url: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    pub(super) max_body: usize,
    pub(super) is_cut: bool,
}

impl Request {
    /// Creates a request with any method, such as `PATCH`.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            max_body: MAX_BODY,
            is_cut: false,
        }
    }

    /// Creates a GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// Creates a POST request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// Creates a PUT request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// Creates a DELETE request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// Adds a header. A header can be added more than once.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to the JSON of a value, and `content-type` unless it was added.
    ///
    /// # Errors
    /// Fails if the value has no JSON, such as a map with keys that are not text.
    pub fn json(mut self, value: &impl Serialize) -> Result<Self> {
        self.body = serde_json::to_vec(value)?;
        if !self.has_header("content-type") {
            self = self.header("content-type", "application/json");
        }
        Ok(self)
    }

    /// Sets the maximum size of the response's body, in bytes. The default is 8 MiB. A longer one is an error.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self.is_cut = false;
        self
    }

    /// Sets the number of bytes of the response's body that are read. See [`Response::is_cut`].
    #[must_use]
    pub fn cut_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self.is_cut = true;
        self
    }

    /// Sends the request and reads the response, whatever its status.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) if no grant allows the request,
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) if the URL or a header cannot be sent,
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the connection failed, otherwise
    /// [`ErrorKind::Failed`](crate::ErrorKind::Failed).
    pub fn send(&self) -> Result<Response> {
        let target = Target::parse(&self.url)?;
        self.check_headers()?;
        let mut headers = self.headers.clone();
        // A length that was added could be wrong, and the connection would break.
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        let has_body = !self.body.is_empty() || !matches!(self.method.as_str(), "GET" | "HEAD");
        if has_body {
            headers.push(("content-length".into(), self.body.len().to_string().into_bytes()));
        }
        let mut response = backend::send(self, &target, &headers)?;
        if response.body.len() > self.max_body {
            if !self.is_cut {
                return Err(ToolError::failed(format_args!(
                    "{}: the response has more than {} bytes",
                    show::quoted(&self.url),
                    self.max_body
                )));
            }
            response.body.truncate(self.max_body);
            response.is_cut = true;
        }
        response.url.clone_from(&self.url);
        Ok(response)
    }

    /// Method in capitals, as it was set.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// URL as it was set.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Headers that were added, in order.
    pub fn headers(&self) -> &[(String, Vec<u8>)] {
        &self.headers
    }

    /// Body to send.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Checks that the headers can be sent.
    ///
    /// # Errors
    /// Names one that cannot, and says why.
    fn check_headers(&self) -> Result<()> {
        for (name, value) in &self.headers {
            let why = if OF_HOST.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                "it is set with the connection; leave it out"
            } else if name.is_empty() || !name.bytes().all(is_token) {
                "a name has only letters, digits and `-`, `_` or `.`"
            } else if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
                "a value has no line breaks or other control characters"
            } else {
                continue;
            };
            return Err(ToolError::invalid(format_args!(
                "the header {} cannot be sent: {why}",
                show::quoted(name)
            )));
        }
        Ok(())
    }

    /// Returns the error of a request that no grant allows. Another method may be allowed for the same URL.
    #[cfg(any(target_family = "wasm", test))]
    pub(super) fn denied(&self) -> ToolError {
        let method = match self.method.as_str() {
            "GET" | "HEAD" => String::new(),
            other => format!("{} ", show::value(other)),
        };
        let url = show::quoted(&self.url);
        ToolError::denied(format_args!("this tool may not send {method}requests to {url}"))
    }

    fn has_header(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

/// True if a byte may be in the name of a header (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The parts of a URL that a request has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) is_https: bool,
    pub(super) authority: &'a str,
    pub(super) path_with_query: std::borrow::Cow<'a, str>,
}

impl<'a> Target<'a> {
    fn parse(url: &'a str) -> Result<Self> {
        let invalid = |why: &str| {
            let url = show::quoted(url);
            ToolError::invalid(format_args!("{url} is no URL to send a request to: {why}"))
        };
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(
                "blanks and characters beyond ASCII must be percent-encoded",
            ));
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(invalid("it must begin with https:// or http://")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return Err(invalid("it has no host"));
        }
        if authority.contains('@') {
            return Err(invalid("it has a user name, which belongs into a header"));
        }
        let path_with_query = if path.starts_with('/') {
            path.into()
        } else {
            format!("/{path}").into()
        };
        Ok(Self {
            is_https,
            authority,
            path_with_query,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::{respond, response};
    use serde_json::json;

    #[test]
    fn body_beyond_its_maximum_is_an_error_or_cut() {
        respond(|_| Ok(response(200, "12345")));
        let request = Request::get("https://a.example/");
        let whole = request.clone().max_body(5).send().unwrap();
        assert_eq!((whole.bytes(), whole.is_cut()), (&b"12345"[..], false));
        let error = request.clone().max_body(4).send().unwrap_err();
        assert!(error.message().contains("more than 4 bytes"), "{error}");
        let cut = request.clone().cut_body(4).send().unwrap();
        assert_eq!((cut.bytes(), cut.is_cut()), (&b"1234"[..], true));
        assert!(!request.cut_body(5).send().unwrap().is_cut());
    }

    #[test]
    fn json_body_has_its_type_unless_another_is_set() {
        let request = Request::post("https://a.example/")
            .json(&json!({"a": 1}))
            .unwrap();
        assert_eq!(request.bytes(), br#"{"a":1}"#);
        assert_eq!(
            request.headers(),
            [("content-type".to_owned(), b"application/json".to_vec())]
        );
        let other = Request::put("https://a.example/").header("Content-Type", "application/x+json");
        assert_eq!(other.json(&1).unwrap().headers().len(), 1);
    }

    #[test]
    fn header_that_cannot_be_sent_is_named_with_the_reason() {
        respond(|_| Ok(response(200, "")));
        let sent = |name: &str, value: &str| Request::post("https://a.example/").header(name, value).send();
        for (name, value, why) in [
            (
                "Host",
                "b.example",
                "the header `Host` cannot be sent: it is set with",
            ),
            (
                "transfer-encoding",
                "chunked",
                "`transfer-encoding` cannot be sent",
            ),
            ("a b", "c", "the header `a b` cannot be sent: a name has only"),
            ("", "c", "a name has only"),
            ("ä", "c", "a name has only"),
            (
                "x",
                "c\r\ny: z",
                "the header `x` cannot be sent: a value has no line breaks",
            ),
        ] {
            let error = sent(name, value).unwrap_err();
            assert!(error.message().contains(why), "{name}: {error}");
        }
        for (name, value) in [("X-Key", "a\tb"), ("x_y.z", "ü"), ("content-length", "99")] {
            sent(name, value).unwrap();
        }
    }

    #[test]
    fn denial_names_a_method_that_changes_something() {
        let message = |method: &str| Request::new(method, "https://a.example/").denied().to_string();
        assert!(message("POST").contains("may not send POST requests to `https://a.example/`"));
        assert!(message("GET").contains("may not send requests to `https://a.example/`"));
    }

    #[test]
    fn test_without_a_server_says_how_to_set_one() {
        let error = Request::delete("https://a.example/").send().unwrap_err();
        assert!(error.message().contains("http::testing::respond"), "{error}");
    }

    #[test]
    fn url_is_split_into_the_parts_of_a_request() {
        for (url, is_https, authority, path) in [
            ("https://a.example", true, "a.example", "/"),
            ("HTTP://a.example:8080/b?c=d#e", false, "a.example:8080", "/b?c=d"),
            ("https://[::1]?q", true, "[::1]", "/?q"),
            ("http://a/b//c", false, "a", "/b//c"),
        ] {
            let expected = Target {
                is_https,
                authority,
                path_with_query: path.into(),
            };
            assert_eq!(Target::parse(url).unwrap(), expected);
        }
        for (url, why) in [
            ("", "begin with https://"),
            ("a.example/b", "begin with https://"),
            ("file:///etc/passwd", "begin with https://"),
            ("https://", "no host"),
            ("https:///a", "no host"),
            ("https://u:p@a.example/", "user name"),
            ("https://a.example/a b", "percent-encoded"),
            ("https://a.example/ü", "percent-encoded"),
            ("https://a.example/\n", "percent-encoded"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(error.message().contains(why), "{url}: {error}");
        }
    }
}
