//! The network of a test: planted answers, and nothing else.
//!
//! Requests of the tool take the usual path through the egress rules of the sandbox. Only the last step differs: a name
//! resolves to an address that stands for it, and a connection to that address leads to a server in this process, over
//! loopback, with a certificate of an authority that only this sandbox trusts.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use toolcell_core::BoxFuture;
use toolcell_sandbox::Network;
use url::Url;

use super::cases::PlantedAnswer;

/// Maximum size of the body of a request, in bytes. A case compares it with a pattern.
const MAX_REQUEST_BODY: usize = 1 << 20;

/// Maximum number of unexpected requests that are remembered, for the report.
const MAX_UNEXPECTED: usize = 8;

/// First byte of a TLS connection: the type of a handshake record (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Network whose hosts are those of planted answers.
pub(super) struct PlantedNetwork {
    authority: Authority,
    plan: Arc<Mutex<Plan>>,
}

/// Answers of one call, and what was requested.
#[derive(Default)]
struct Plan {
    answers: Vec<(PlantedAnswer, bool)>,
    unexpected: Vec<String>,
}

/// Requests without a planted answer, and answers without a request.
#[derive(Debug, Default)]
pub(super) struct Requested {
    /// Requests without a planted answer.
    pub(super) unexpected: Vec<String>,
    /// Answers that were not requested.
    pub(super) unused: Vec<String>,
}

/// Certificate authority of one run.
struct Authority {
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl PlantedNetwork {
    /// Creates a network without hosts.
    ///
    /// # Errors
    /// Returns an error if no key can be created.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        Ok(Self {
            authority: Authority {
                certificate: params.self_signed(&key)?.der().to_vec(),
                issuer: Issuer::new(params, key),
            },
            plan: Arc::default(),
        })
    }

    /// The certificate of its authority (X.509, DER).
    pub(super) fn root(&self) -> Vec<u8> {
        self.authority.certificate.clone()
    }

    /// Plants the answers of the next call.
    pub(super) fn plant(&self, answers: &[PlantedAnswer]) {
        *self.plan() = Plan {
            answers: answers.iter().map(|answer| (answer.clone(), false)).collect(),
            unexpected: Vec::new(),
        };
    }

    /// Returns what was requested since, and removes the answers.
    pub(super) fn take(&self) -> Requested {
        let plan = std::mem::take(&mut *self.plan());
        let unused = plan.answers.into_iter().filter(|(_, is_used)| !is_used);
        Requested {
            unexpected: plan.unexpected,
            unused: unused.map(|(answer, _)| answer.url.into()).collect(),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host that an address stands for.
    fn host_at(&self, ip: IpAddr) -> Option<String> {
        let plan = self.plan();
        let mut hosts = plan
            .answers
            .iter()
            .filter_map(|(answer, _)| answer.url.host_str());
        hosts
            .find(|host| address_of(host, &plan) == Some(ip))
            .map(str::to_owned)
    }

    async fn serve(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let host = self
            .host_at(address.ip())
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        client.set_nodelay(true)?;
        let own = client.local_addr()?;
        let server = loop {
            // Another program of this machine may connect as well, and is sent away.
            let (server, peer) = listener.accept().await?;
            if peer == own {
                break server;
            }
        };
        server.set_nodelay(true)?;
        let tls = self.authority.server(&host).map_err(io::Error::other)?;
        let plan = self.plan.clone();
        tokio::spawn(async move {
            let mut first = [0];
            // The client may close the connection at any time.
            let _ = match server.peek(&mut first).await {
                Ok(1) if first[0] == TLS_HANDSHAKE => match tls.accept(server).await {
                    Ok(stream) => answer_requests(TokioIo::new(stream), "https", address, plan).await,
                    Err(_) => return,
                },
                _ => answer_requests(TokioIo::new(server), "http", address, plan).await,
            };
        });
        Ok(client)
    }
}

impl Network for PlantedNetwork {
    fn lookup<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let found = {
            let mut plan = self.plan();
            let is_planted = |(answer, _): &(PlantedAnswer, bool)| {
                answer
                    .url
                    .host_str()
                    .is_some_and(|host| host.eq_ignore_ascii_case(name))
            };
            let found = plan
                .answers
                .iter()
                .any(is_planted)
                .then(|| address_of(name, &plan));
            if found.is_none() {
                note(
                    &mut plan,
                    format!("a request to `{name}`, a host without a planted answer"),
                );
            }
            found.flatten()
        };
        Box::pin(async move {
            let ip = found.ok_or_else(|| io::Error::other("the test plants no answer of this host"))?;
            Ok(vec![SocketAddr::new(ip, port)])
        })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(self.serve(address))
    }
}

/// The address that stands for a host: itself if it is one, otherwise a public one, by the position of its first answer.
/// Nothing connects to it.
fn address_of(host: &str, plan: &Plan) -> Option<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse() {
        return Some(ip);
    }
    let is_it = |(answer, _): &(PlantedAnswer, bool)| {
        answer
            .url
            .host_str()
            .is_some_and(|other| other.eq_ignore_ascii_case(host))
    };
    let position = plan.answers.iter().position(is_it)?;
    let last = u8::try_from(position).ok()?;
    Some(IpAddr::V4(Ipv4Addr::new(9, 9, 9, last)))
}

fn note(plan: &mut Plan, what: String) {
    if plan.unexpected.len() < MAX_UNEXPECTED {
        plan.unexpected.push(what);
    }
}

impl Authority {
    /// Accepts TLS connections as this host.
    fn server(&self, host: &str) -> anyhow::Result<TlsAcceptor> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let params = CertificateParams::new(vec![bare.to_owned()])?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Answers the requests of one connection.
async fn answer_requests<S>(
    stream: S,
    scheme: &'static str,
    address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
) -> hyper::Result<()>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let plan = plan.clone();
        async move { Ok::<_, Infallible>(respond(request, scheme, address, &plan).await) }
    });
    http1::Builder::new().serve_connection(stream, service).await
}

async fn respond(
    request: Request<Incoming>,
    scheme: &str,
    address: SocketAddr,
    plan: &Mutex<Plan>,
) -> Response<Full<Bytes>> {
    let host = request.headers().get(hyper::header::HOST);
    let authority = host
        .and_then(|host| host.to_str().ok())
        .map_or_else(|| address.to_string(), str::to_owned);
    let target = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let url = format!("{scheme}://{authority}{target}");
    let method = request.method().to_string();
    let body = Limited::new(request.into_body(), MAX_REQUEST_BODY)
        .collect()
        .await;
    let body = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
    let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
    let (Ok(parsed), Ok(body)) = (Url::parse(&url), body) else {
        note(
            &mut plan,
            format!("{method} {url}, with a body that cannot be compared"),
        );
        return status(StatusCode::NOT_IMPLEMENTED);
    };
    let fits = |answer: &PlantedAnswer| {
        answer.url == parsed
            && answer.method.as_ref().is_none_or(|wanted| *wanted == method)
            && answer
                .request_body
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(&body))
    };
    // Answers of one URL in their order; the last one repeats.
    let next = plan
        .answers
        .iter()
        .position(|(answer, is_used)| !is_used && fits(answer));
    let found = next.or_else(|| plan.answers.iter().rposition(|(answer, _)| fits(answer)));
    let Some((answer, is_used)) = found.and_then(|index| plan.answers.get_mut(index)) else {
        note(&mut plan, format!("{method} {url}"));
        return status(StatusCode::NOT_IMPLEMENTED);
    };
    *is_used = true;
    let mut response = Response::new(Full::new(Bytes::from(answer.body.clone())));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::NOT_IMPLEMENTED);
    for (name, value) in &answer.headers {
        response.headers_mut().append(name.clone(), value.clone());
    }
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
