//! Requests for packages: over TLS, to public addresses, with limits of size and time.
//!
//! The rules are those of requests of cells: a name is resolved once, every address of it must be public, and each hop of a
//! redirect is checked anew. The host that the user named can be an exception, and no other. Proxies of the environment are
//! not used.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION, USER_AGENT,
};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use toolcell_sandbox::is_public_address;
use url::Url;

use super::Refused;
use super::reference::is_local;

/// Maximum number of redirects of one request. Registries redirect once, to their storage.
const MAX_REDIRECTS: usize = 5;

/// Time in which a connection is established, with TLS.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Time without a byte after which a server is given up.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Time for one answer as a whole: 64 MiB over a slow connection.
const TOTAL_TIME: Duration = Duration::from_secs(600);

/// Maximum size of the headers of an answer, in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Maximum size of the body of an error, in bytes. It can be larger than what was asked for.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// Name and version of this program.
const AGENT: &str = concat!("toolcell/", env!("CARGO_PKG_VERSION"));

/// Sends requests for one package.
pub(crate) struct Downloader {
    /// Address that the user named: its host may be an exception, and gets credentials.
    named: Url,
    is_private_allowed: bool,
    tls: Arc<ClientConfig>,
}

/// A request.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    pub(crate) accept: Option<&'a str>,
    /// Media type and content of the body.
    pub(crate) body: Option<(&'a str, Vec<u8>)>,
    /// Value of the header `authorization`, for the named host alone.
    pub(crate) authorization: Option<&'a str>,
    /// Maximum size of the answer, in bytes.
    pub(crate) max_bytes: u64,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Address that it came from, after redirects.
    pub(crate) url: Url,
}

impl Answer {
    /// Returns the answer if its status is one of success.
    ///
    /// # Errors
    /// Returns an error with the status.
    pub(crate) fn succeeded(self) -> anyhow::Result<Self> {
        if self.status.is_success() {
            return Ok(self);
        }
        let host = self.url.host_str().unwrap_or_default();
        Err(Refused {
            why: format!("the server `{host}` answered with {}", self.status),
            hint: match self.status.as_u16() {
                401 | 403 => "sign in to the registry (`docker login HOST`) as a user who may read it",
                404 => {
                    "check the name and the tag or version; to who is not signed in (`docker login HOST`), private ones do not exist"
                }
                429 | 500..=599 => "try again later",
                _ => "nothing was changed: check the reference, or ask who publishes it",
            },
        }
        .into())
    }
}

impl Downloader {
    /// Creates a downloader for the address that the user named.
    ///
    /// # Errors
    /// Returns an error if TLS cannot be set up.
    pub(crate) fn new(named: &Url, is_private_allowed: bool) -> anyhow::Result<Self> {
        Ok(Self {
            named: named.clone(),
            // A private address that was named is meant.
            is_private_allowed: is_private_allowed || is_local(named) || address_in(named).is_some(),
            tls: Arc::new(toolcell_tls::client_config(&[])?),
        })
    }

    /// Creates a downloader for an address that a server named: only public ones are reached.
    ///
    /// # Errors
    /// Returns an error if TLS cannot be set up.
    pub(crate) fn public(url: &Url) -> anyhow::Result<Self> {
        Ok(Self {
            is_private_allowed: false,
            ..Self::new(url, false)?
        })
    }

    /// Requests a resource.
    ///
    /// # Errors
    /// As [`Downloader::send`].
    pub(crate) async fn get(
        &self,
        url: &Url,
        accept: Option<&str>,
        authorization: Option<&str>,
        max_bytes: u64,
    ) -> anyhow::Result<Answer> {
        self.send(Outgoing {
            method: Method::GET,
            url,
            accept,
            body: None,
            authorization,
            max_bytes,
        })
        .await
    }

    /// Sends a request, and follows redirects of `GET` and `HEAD`.
    ///
    /// # Errors
    /// Returns an error if an address is refused, the server does not answer in time, or its answer is too large.
    pub(crate) async fn send(&self, outgoing: Outgoing<'_>) -> anyhow::Result<Answer> {
        let sent = async {
            let mut url = outgoing.url.clone();
            for _ in 0..=MAX_REDIRECTS {
                let answer = Box::pin(self.hop(&outgoing, &url)).await.with_context(|| {
                    format!("the request to `{}` failed", url.host_str().unwrap_or_default())
                })?;
                let is_followed = answer.status.is_redirection()
                    && answer.status != StatusCode::NOT_MODIFIED
                    && matches!(outgoing.method, Method::GET | Method::HEAD);
                if !is_followed {
                    return Ok(answer);
                }
                let location = answer
                    .headers
                    .get(LOCATION)
                    .and_then(|location| location.to_str().ok());
                let location = location.context("a redirect has no valid `location`")?;
                url = url.join(location).context("a redirect has no valid `location`")?;
            }
            bail!("there are more than {MAX_REDIRECTS} redirects")
        };
        timeout(TOTAL_TIME, sent)
            .await
            .with_context(|| format!("it was not complete after {} s", TOTAL_TIME.as_secs()))?
    }

    /// Sends a request within a time, and returns its answer also if that is a redirect.
    ///
    /// # Errors
    /// As [`Downloader::send`].
    pub(crate) async fn send_once(&self, outgoing: &Outgoing<'_>, time: Duration) -> anyhow::Result<Answer> {
        timeout(time, Box::pin(self.hop(outgoing, outgoing.url)))
            .await
            .with_context(|| format!("it was not complete after {} s", time.as_secs()))?
    }

    /// True for the host that the user named, with its scheme and port.
    fn is_named(&self, url: &Url) -> bool {
        url.origin() == self.named.origin()
    }

    async fn hop(&self, outgoing: &Outgoing<'_>, url: &Url) -> anyhow::Result<Answer> {
        ensure!(
            url.scheme() == "https" || (url.scheme() == "http" && self.is_named(url) && is_local(url)),
            "`{}` is not reached over `https`",
            url.host_str().unwrap_or(url.scheme())
        );
        let request = self.request(outgoing, url)?;
        let stream = timeout(CONNECT_TIME, self.connect(url))
            .await
            .with_context(|| format!("no connection after {} s", CONNECT_TIME.as_secs()))??;
        let (status, headers, body) = if url.scheme() == "https" {
            let name = match address_in(url) {
                Some(ip) => ServerName::IpAddress(ip.into()),
                None => ServerName::try_from(url.host_str().unwrap_or_default().to_owned())?,
            };
            let tls = TlsConnector::from(self.tls.clone());
            let stream = timeout(CONNECT_TIME, tls.connect(name, stream))
                .await
                .context("no TLS connection in time")??;
            exchange(stream, request, outgoing.max_bytes).await?
        } else {
            exchange(stream, request, outgoing.max_bytes).await?
        };
        Ok(Answer {
            status,
            headers,
            body,
            url: url.clone(),
        })
    }

    fn request(&self, outgoing: &Outgoing<'_>, url: &Url) -> anyhow::Result<Request<Full<Bytes>>> {
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let host = url.host_str().context("it has no host")?;
        let host = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let mut request = Request::builder()
            .method(outgoing.method.clone())
            .uri(target)
            .header(HOST, host)
            .header(USER_AGENT, AGENT);
        if let Some(accept) = outgoing.accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(authorization) = outgoing.authorization.filter(|_| self.is_named(url)) {
            let mut value =
                HeaderValue::try_from(authorization).context("the credentials are no valid header")?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let body = match &outgoing.body {
            Some((media_type, body)) => {
                request = request.header(CONTENT_TYPE, *media_type);
                Full::new(Bytes::from(body.clone()))
            }
            None => Full::default(),
        };
        Ok(request.body(body)?)
    }

    /// Connects to the first address that answers, after all of them were checked.
    async fn connect(&self, url: &Url) -> anyhow::Result<TcpStream> {
        let port = url.port_or_known_default().context("it has no port")?;
        let addresses: Vec<SocketAddr> = match address_in(url) {
            Some(ip) => vec![SocketAddr::new(ip, port)],
            None => {
                let name = url.host_str().context("it has no host")?;
                tokio::net::lookup_host((name, port))
                    .await
                    .context("the host was not found")?
                    .collect()
            }
        };
        let is_exempt = self.is_private_allowed && self.is_named(url);
        if let Some(private) = addresses.iter().find(|address| !is_public_address(address.ip()))
            && !is_exempt
        {
            bail!("{} is not a public address", private.ip());
        }
        let mut last = anyhow::anyhow!("the host has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

/// The IP address that a URL names.
fn address_in(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(ip) => Some(ip.into()),
        url::Host::Ipv6(ip) => Some(ip.into()),
        url::Host::Domain(_) => None,
    }
}

/// Sends a request on a connection, and reads its answer to the end.
async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    max_bytes: u64,
) -> anyhow::Result<(StatusCode, HeaderMap, Vec<u8>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEADER_BYTES)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = tokio::spawn(connection);
    let read = async {
        let idle = || format!("the server sent nothing for {} s", IDLE_TIME.as_secs());
        let response = timeout(IDLE_TIME, sender.send_request(request))
            .await
            .with_context(idle)??;
        let (head, mut body) = response.into_parts();
        if head.status.is_redirection() {
            // Its text is for the user.
            return Ok((head.status, head.headers, Vec::new()));
        }
        let max_bytes = match head.status.is_success() {
            true => max_bytes,
            false => max_bytes.max(MAX_ERROR_BYTES),
        };
        let too_large = || anyhow::anyhow!("the answer is larger than {max_bytes} bytes");
        let declared = head.headers.get(hyper::header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|length| length > max_bytes) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(frame) = timeout(IDLE_TIME, body.frame()).await.with_context(idle)? {
            let Ok(data) = frame?.into_data() else { continue };
            if bytes.len() as u64 + data.len() as u64 > max_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok((head.status, head.headers, bytes))
    };
    let answer = read.await;
    driver.abort();
    answer
}
