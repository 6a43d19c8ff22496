//! Address of a server over HTTP, and the headers that the user adds to every request to it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use toolcell_core::http_header::is_of_client;
use url::{Host, Url};

use super::authorization::{TokenSource, Tokens};
use crate::client::error::ServerError;

/// Time in which a connection is established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers that the protocol sets, beside those of the HTTP client.
const RESERVED: [&str; 2] = ["accept", "last-event-id"];

/// Address of a server over HTTP, with the headers of every request.
#[derive(Debug, Clone)]
pub struct Remote {
    url: Url,
    headers: HeaderMap,
    /// True if its plain endpoints are used instead of the protocol.
    is_plain: bool,
    /// Access tokens, if the user can log in to it.
    tokens: Option<Tokens>,
}

/// Defect of an address or a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The text is not a URL.
    #[error("it is not a URL")]
    Url(#[from] url::ParseError),
    /// The scheme is neither `https` nor `http`.
    #[error("it must start with `https://`, or with `http://` for a server on this machine")]
    Scheme,
    /// A connection without TLS would leave this machine.
    #[error("`http` is for servers on this machine only: others on the way could read and change everything")]
    Insecure,
    /// The URL contains a user name or a password.
    #[error("user names and passwords do not belong in it; use a header")]
    Credentials,
    /// The URL has a fragment, which is never sent.
    #[error("a part after `#` is never sent")]
    Fragment,
    /// The name of a header has invalid characters.
    #[error("`{0}` is not a name of a header")]
    HeaderName(String),
    /// The header is set by the protocol or the connection.
    #[error("the header `{0}` is set by the protocol")]
    Reserved(String),
    /// The value of a header has invalid characters.
    #[error("the value of the header `{0}` has characters that no header can have")]
    HeaderValue(String),
}

impl Remote {
    /// Checks an address and headers.
    ///
    /// # Errors
    /// The defect of the address, or of the first header that has one.
    pub fn new(url: &str, headers: impl IntoIterator<Item = (String, String)>) -> Result<Self, RemoteError> {
        let url = parsed(url)?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let header = header_name(&name)?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| RemoteError::HeaderValue(name))?;
            value.set_sensitive(true);
            all.insert(header, value);
        }
        Ok(Self {
            url,
            headers: all,
            is_plain: false,
            tokens: None,
        })
    }

    /// Uses the plain endpoints below the address instead of the protocol: `POST /tools/list` and `POST /tools/call`.
    pub fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    /// Sends access tokens once the server asks for one.
    pub fn authorized_by(mut self, source: Arc<dyn TokenSource>) -> Self {
        self.tokens = Some(Tokens::new(source));
        self
    }

    pub(super) fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(super) fn url(&self) -> Url {
        self.url.clone()
    }

    /// Address of a plain endpoint: its path behind that of the server.
    pub(super) fn endpoint(&self, method: &str) -> Url {
        let mut url = self.url.clone();
        let path = format!("{}/{method}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Builds the client for the connections.
    pub(in crate::client) fn client() -> Result<reqwest::Client, ServerError> {
        fn failed(error: &(dyn std::error::Error + 'static)) -> ServerError {
            ServerError::Unreachable(toolcell_core::error_chain(error))
        }
        let mut tls = toolcell_tls::client_config(&[]).map_err(|error| failed(&error))?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("toolcell/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .build()
            .map_err(|error| failed(&error.without_url()))
    }
}

/// Checks an address: `https`, or `http` on this machine.
///
/// # Errors
/// The defect of the address.
pub fn check_url(url: &str) -> Result<(), RemoteError> {
    parsed(url).map(drop)
}

/// Checks the name of a header that a user wants to add.
///
/// # Errors
/// The defect of the name.
pub fn check_header_name(name: &str) -> Result<(), RemoteError> {
    header_name(name).map(drop)
}

fn parsed(url: &str) -> Result<Url, RemoteError> {
    let url = Url::parse(url)?;
    match url.scheme() {
        "https" => {}
        "http" if is_on_this_machine(&url) => {}
        "http" => return Err(RemoteError::Insecure),
        _ => return Err(RemoteError::Scheme),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(RemoteError::Credentials);
    }
    if url.fragment().is_some() {
        return Err(RemoteError::Fragment);
    }
    Ok(url)
}

fn is_on_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

fn header_name(name: &str) -> Result<HeaderName, RemoteError> {
    let invalid = || RemoteError::HeaderName(name.escape_debug().to_string());
    let header: HeaderName = name.parse().map_err(|_| invalid())?;
    let name = header.as_str();
    let is_reserved = is_of_client(name) || RESERVED.contains(&name) || name.starts_with("mcp-");
    match is_reserved {
        true => Err(RemoteError::Reserved(name.to_owned())),
        false => Ok(header),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_leaves_this_machine_only_with_tls() {
        for url in [
            "https://mcp.example/mcp?team=1",
            "http://127.0.0.1:3000/mcp",
            "http://127.1.2.3/",
            "http://[::1]:80/mcp",
            "http://[::ffff:127.0.0.1]/",
            "http://localhost:8080",
        ] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
        for (url, error) in [
            ("http://mcp.example/mcp", RemoteError::Insecure),
            ("http://169.254.169.254/", RemoteError::Insecure),
            ("http://10.0.0.1/", RemoteError::Insecure),
            ("http://localhost.example/", RemoteError::Insecure),
            ("ftp://mcp.example", RemoteError::Scheme),
            ("file:///etc/passwd", RemoteError::Scheme),
            ("https://u:p@mcp.example", RemoteError::Credentials),
            ("https://mcp.example/#x", RemoteError::Fragment),
            (
                "mcp.example",
                RemoteError::Url(url::ParseError::RelativeUrlWithoutBase),
            ),
            ("https://", RemoteError::Url(url::ParseError::EmptyHost)),
        ] {
            assert_eq!(check_url(url), Err(error), "{url}");
        }
    }

    #[test]
    fn plain_endpoints_are_below_the_address() {
        for (url, endpoint) in [
            ("https://a.example", "https://a.example/tools/list"),
            ("https://a.example/v1/?k=1", "https://a.example/v1/tools/list?k=1"),
        ] {
            let remote = Remote::new(url, []).unwrap().plain();
            assert_eq!(remote.endpoint("tools/list").as_str(), endpoint);
        }
    }

    #[test]
    fn headers_of_the_protocol_cannot_be_set() {
        let refused = |name: &str, value: &str| {
            let headers = [(name.to_owned(), value.to_owned())];
            Remote::new("https://mcp.example", headers).err()
        };
        assert_eq!(refused("Authorization", "Bearer x"), None);
        for name in ["Host", "MCP-Session-Id", "mcp-method", "Content-Length"] {
            let lower = name.to_ascii_lowercase();
            assert_eq!(refused(name, "x"), Some(RemoteError::Reserved(lower)));
        }
        assert_eq!(refused("a b", "x"), Some(RemoteError::HeaderName("a b".into())));
        assert_eq!(
            refused("x-a", "a\nb"),
            Some(RemoteError::HeaderValue("x-a".into()))
        );
        let headers = [("x-key".to_owned(), "s3cret".to_owned())];
        let remote = Remote::new("https://mcp.example", headers).unwrap();
        assert!(!format!("{remote:?}").contains("s3cret"));
    }
}
