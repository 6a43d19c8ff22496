//! One request and its response on its own connection: look-up, check, connect, send.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::Poll;

use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::body::{CheckedBody, from_hyper};
use super::network::Transport;
use super::response::redact_body::MaskedBody;
use super::response::{self, MAX_RESPONSE_HEADER_BYTES, RefusedResponse};
use super::secrets::Treatment;
use super::shared::{ApprovedRequest, lock, no_memory};
use super::target::{Host, Scheme, Target};
use crate::cell::memory::objects::CONNECTION;

/// Maximum number of addresses tried for a name. Names with more are load balancers, where any will do.
const MAX_ADDRESSES: usize = 8;

/// Maximum number of response headers. Ordinary pages send about 30.
const MAX_RESPONSE_HEADERS: usize = 256;

/// Future that drives a connection while the guest reads the body.
pub(super) type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Sends an approved request.
pub(super) async fn send(
    admitted: ApprovedRequest,
    options: RequestOptions,
) -> Result<(Response<WasiBody>, Driver), Error> {
    let ApprovedRequest {
        egress,
        recorder,
        redirects,
        request,
        target,
        scope,
        hop,
        treatment,
        mut memory,
    } = admitted;
    let timeouts = egress.timeouts.at_most(options);
    let method = request.method().clone();
    let connected_by = Instant::now() + timeouts.connect;

    let permit = timeout_at(connected_by, egress.connections.clone().acquire_owned())
        .await
        .map_err(|_| Error::ConnectionLimitReached)?
        .map_err(|_| Error::ConnectionLimitReached)?;
    memory.grow(CONNECTION).map_err(no_memory)?;
    let found = timeout_at(connected_by, addresses(&egress.transport, &target))
        .await
        .map_err(|_| Error::DnsTimeout)??;
    let in_scope: Vec<SocketAddr> = found.into_iter().filter(|a| scope.permits(a.ip())).collect();
    let has_none = in_scope.is_empty();
    let allowed: Vec<SocketAddr> = in_scope
        .into_iter()
        .filter(|a| egress.may_reach(&recorder, &method, &target, a.ip()))
        .take(MAX_ADDRESSES)
        .collect();
    if has_none {
        egress.note_denial(&recorder, &method, &target, true, hop);
    }
    if allowed.is_empty() {
        return Err(Error::DestinationIpProhibited);
    }
    recorder.host(target.host_and_port());
    let stream = connect(&egress.transport, &allowed, connected_by).await?;
    let stream: Box<dyn Duplex> = match target.scheme {
        Scheme::Http => Box::new(stream),
        Scheme::Https => {
            let config = (egress.transport.tls().await)
                .map_err(|error| Error::InternalError(Some(error.to_string())))?;
            let connector = tokio_rustls::TlsConnector::from(config);
            let handshake = connector.connect(server_name(&target.host)?, stream);
            let stream = timeout_at(connected_by, handshake)
                .await
                .map_err(|_| Error::ConnectionTimeout)?
                .map_err(from_tls)?;
            Box::new(stream)
        }
    };
    let request = prepare(request, &target)?;
    let (mut response, driver) = timeout(timeouts.first_byte, exchange(stream, request))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)??;
    let treatment = treatment.as_ref();
    response::check(&method, &response, egress.body_limit, treatment).inspect_err(|error| {
        if let Error::HttpResponseBodySize(length) = error {
            recorder.too_much("http_body", egress.body_limit, length.unwrap_or(0));
        }
    })?;
    let checked = match response::settle(&method, &target, &mut response, treatment) {
        Ok(checked) => checked,
        Err(why) => {
            egress.note_refusal(&recorder, &method, &target, &why);
            return Err(match why {
                RefusedResponse::Redirect(_) => {
                    lock(&redirects).note_unknown(&target, hop);
                    Error::HttpProtocolError
                }
                RefusedResponse::MediaType { .. } => Error::HttpRequestDenied,
            });
        }
    };
    lock(&redirects).note_all(&target, hop, &checked.leads);
    let response = response.map(|incoming| {
        if checked.withheld {
            return Empty::new().map_err(|never| match never {}).boxed_unsync();
        }
        let body = CheckedBody::new(
            incoming,
            egress.body_limit,
            timeouts.between_bytes,
            permit,
            memory,
            recorder,
        );
        match treatment {
            Some(Treatment {
                redactor,
                must_be_searchable,
                ..
            }) => MaskedBody::new(body.boxed_unsync(), redactor.clone(), *must_be_searchable).boxed_unsync(),
            None => body.boxed_unsync(),
        }
    });
    Ok((response, driver))
}

/// Returns the addresses of the host; a name is resolved once, and the checked addresses are the ones connected to.
async fn addresses(transport: &Transport, target: &Target) -> Result<Vec<SocketAddr>, Error> {
    let name = match &target.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Host::Name(name) => name,
    };
    let found = transport
        .network
        .lookup(name, target.port)
        .await
        .map_err(|error| {
            tracing::debug!(%error, name, "look-up failed");
            Error::DnsError {
                rcode: Some("address not available".into()),
                info_code: None,
            }
        })?;
    if found.is_empty() {
        return Err(Error::DestinationNotFound);
    }
    Ok(found)
}

/// Connects to the first address that answers. Each gets an equal share of the remaining time, so that an unresponsive
/// address does not block the next.
async fn connect(
    transport: &Transport,
    addresses: &[SocketAddr],
    connected_by: Instant,
) -> Result<tokio::net::TcpStream, Error> {
    let mut last = Error::ConnectionTimeout;
    for (tried, address) in addresses.iter().enumerate() {
        let left = connected_by.saturating_duration_since(Instant::now());
        let to_try = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout(left / to_try, transport.network.connect(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = from_connect(&error),
            Err(_) => last = Error::ConnectionTimeout,
        }
    }
    Err(last)
}

fn from_connect(error: &io::Error) -> Error {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        ErrorKind::TimedOut => Error::ConnectionTimeout,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Error::ConnectionTerminated,
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Error::DestinationIpUnroutable,
        _ => Error::DestinationUnavailable,
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, Error> {
    match host {
        Host::Ip(ip) => Ok(ServerName::IpAddress(IpAddr::into(*ip))),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| Error::HttpRequestUriInvalid),
    }
}

fn from_tls(error: io::Error) -> Error {
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(error) => from_rustls(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Error::ConnectionTerminated,
        None => Error::TlsProtocolError,
    }
}

fn from_rustls(error: &rustls::Error) -> Error {
    tracing::debug!(%error, "TLS failed");
    match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            Error::TlsCertificateError
        }
        rustls::Error::AlertReceived(alert) => Error::TlsAlertReceived {
            alert_id: Some(u8::from(*alert)),
            alert_message: Some(format!("{alert:?}")),
        },
        _ => Error::TlsProtocolError,
    }
}

/// Sets the request line and the `Host` header from the canonical target.
fn prepare(mut request: Request<WasiBody>, target: &Target) -> Result<Request<WasiBody>, Error> {
    *request.uri_mut() = Uri::try_from(target.path_and_query()).map_err(|_| Error::HttpRequestUriInvalid)?;
    let host = HeaderValue::try_from(target.authority()).map_err(|_| Error::HttpRequestUriInvalid)?;
    request.headers_mut().insert(HOST, host);
    Ok(request)
}

/// Sends the request and drives the connection until the response headers are available.
async fn exchange(
    stream: Box<dyn Duplex>,
    request: Request<WasiBody>,
) -> Result<(Response<Incoming>, Driver), Error> {
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(MAX_RESPONSE_HEADERS)
        .max_buf_size(2 * MAX_RESPONSE_HEADER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(from_hyper)?;
    let mut connection = Some(Box::pin(connection));
    let mut response = pin!(sender.send_request(request));
    let response = std::future::poll_fn(|cx| {
        if let Poll::Ready(response) = response.as_mut().poll(cx) {
            return Poll::Ready(response);
        }
        let Some(driven) = connection.as_mut() else {
            return Poll::Pending;
        };
        match driven.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(end) => {
                connection = None;
                // A connection that has ended has completed the request, with a response or with the more specific
                // error.
                match (response.as_mut().poll(cx), end) {
                    (Poll::Pending, Err(error)) => Poll::Ready(Err(error)),
                    (answer, _) => answer,
                }
            }
        }
    })
    .await
    .map_err(from_hyper)?;
    let driver: Driver = match connection {
        Some(connection) => Box::new(async move { connection.await.map_err(from_hyper) }),
        None => Box::new(std::future::ready(Ok(()))),
    };
    Ok((response, driver))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    use std::sync::Arc;
    use std::sync::Mutex;

    use toolcell_core::BoxFuture;

    use crate::egress::Network;

    /// A network whose addresses swallow packets, but for one that refuses.
    #[derive(Default)]
    struct Silent(Mutex<Vec<(SocketAddr, Duration)>>, Option<Instant>);

    impl Network for Silent {
        fn lookup<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
            Box::pin(std::future::pending())
        }

        fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<tokio::net::TcpStream>> {
            let at = self.1.map(|begun| begun.elapsed()).unwrap_or_default();
            self.0.lock().unwrap().push((address, at));
            match address.port() {
                1 => Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into()))),
                _ => Box::pin(std::future::pending()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_gets_an_equal_part_of_the_time() {
        let begun = Instant::now();
        let network = Arc::new(Silent(Mutex::default(), Some(begun)));
        let transport = Transport::new(network.clone(), &[]);
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let addresses = [address(80), address(81), address(1)];
        let error = connect(&transport, &addresses, begun + Duration::from_secs(9)).await;
        assert!(matches!(error, Err(Error::ConnectionRefused)));
        let tried: Vec<_> = network
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|(a, at)| (a.port(), at.as_secs()))
            .collect();
        assert_eq!(tried, [(80, 0), (81, 3), (1, 6)]);
    }

    #[test]
    fn failures_of_connections_have_their_codes() {
        use io::ErrorKind;
        for (kind, expected) in [
            (ErrorKind::ConnectionRefused, "ConnectionRefused"),
            (ErrorKind::TimedOut, "ConnectionTimeout"),
            (ErrorKind::ConnectionReset, "ConnectionTerminated"),
            (ErrorKind::ConnectionAborted, "ConnectionTerminated"),
            (ErrorKind::HostUnreachable, "DestinationIpUnroutable"),
            (ErrorKind::NetworkUnreachable, "DestinationIpUnroutable"),
            (ErrorKind::Other, "DestinationUnavailable"),
        ] {
            assert_eq!(format!("{:?}", from_connect(&kind.into())), expected, "{kind}");
        }
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied);
        assert!(matches!(
            from_tls(io::Error::other(alert)),
            Error::TlsAlertReceived { .. }
        ));
        assert!(matches!(
            from_tls(ErrorKind::UnexpectedEof.into()),
            Error::ConnectionTerminated
        ));
        assert!(matches!(
            from_tls(ErrorKind::InvalidData.into()),
            Error::TlsProtocolError
        ));
    }

    #[tokio::test]
    async fn headers_arriving_in_pieces_fit_with_their_separators() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (client, mut server) = tokio::io::duplex(1 << 20);
        let serving = tokio::spawn(async move {
            let mut head = String::from("HTTP/1.1 204 No Content\r\n");
            for i in 0..64 {
                head.push_str(&format!(
                    "{i:05}: {}\r\n",
                    "v".repeat(MAX_RESPONSE_HEADER_BYTES / 64 - 5)
                ));
            }
            let mut request = vec![0; 1_024];
            let _ = server.read(&mut request).await;
            server.write_all(head.as_bytes()).await.unwrap();
            // The client has read all of them before the head ends.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let _ = server.write_all(b"\r\n").await;
        });
        let request = Request::get("/")
            .header(HOST, "a")
            .body(WasiBody::default())
            .unwrap();
        let (response, _) = exchange(Box::new(client), request).await.unwrap();
        assert_eq!(response.headers().len(), 64);
        serving.await.unwrap();
    }
}
