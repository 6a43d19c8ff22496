//! A network for tests.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toolcell_core::denial::HttpDenial;
use toolcell_core::policy::{HttpGrant, Limits};
use toolcell_core::secret::{SecretBinding, Secrets};
use toolcell_core::{BoxFuture, Grant};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::cell::receipt::ReceiptRecorder;
use crate::egress::shared::Timeouts;
use crate::egress::{BoundSecrets, CallEgress, Egress, Network, Transport};

/// Names, their look-up results, and recorded look-ups.
#[derive(Default)]
pub(super) struct FakeNetwork {
    names: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    routes: Mutex<HashMap<IpAddr, SocketAddr>>,
    pub(super) lookups: Mutex<Vec<String>>,
    pub(super) connections: Mutex<Vec<SocketAddr>>,
}

impl FakeNetwork {
    /// Adds a name; each look-up takes the next list of addresses, the last one is repeated.
    pub(super) fn name(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers
            .iter()
            .map(|list| list.iter().map(|ip| ip.parse().unwrap()).collect())
            .collect();
        self.names.lock().unwrap().insert(name.into(), answers);
    }

    /// Routes an address to a server.
    pub(super) fn route(&self, ip: &str, server: SocketAddr) {
        self.routes.lock().unwrap().insert(ip.parse().unwrap(), server);
    }

    pub(super) fn connected(&self) -> Vec<String> {
        self.connections
            .lock()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

impl Network for FakeNetwork {
    fn lookup<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.lookups.lock().unwrap().push(name.into());
        let mut names = self.names.lock().unwrap();
        let answer = match names.get_mut(name) {
            Some(answers) if answers.len() > 1 => answers.pop_front(),
            Some(answers) => answers.front().cloned(),
            None => None,
        };
        let answer = answer.ok_or_else(|| io::Error::other("no such name"));
        Box::pin(async move { Ok(answer?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.connections.lock().unwrap().push(address);
        let route = self.routes.lock().unwrap().get(&address.ip()).copied();
        Box::pin(async move {
            match route {
                Some(server) => TcpStream::connect(server).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// One call of a tool with some grants.
pub(super) struct Caller {
    pub(super) egress: Arc<Egress>,
    pub(super) recorder: ReceiptRecorder,
    pub(super) hooks: CallEgress,
}

/// Options of a call.
pub(super) struct Setup {
    pub(super) network: Arc<FakeNetwork>,
    pub(super) grants: Vec<HttpGrant>,
    pub(super) denials: Vec<HttpDenial>,
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) roots: Vec<Vec<u8>>,
    pub(super) bindings: Vec<SecretBinding>,
    pub(super) secrets: Secrets,
}

impl Setup {
    pub(super) fn new(network: &Arc<FakeNetwork>, grants: &[&str]) -> Self {
        let grants = grants
            .iter()
            .map(|line| match line.parse().unwrap() {
                Grant::Http(grant) => grant,
                other => panic!("{other}"),
            })
            .collect();
        Self {
            network: network.clone(),
            grants,
            denials: Vec::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            roots: Vec::new(),
            bindings: Vec::new(),
            secrets: Secrets::default(),
        }
    }

    pub(super) fn caller(self) -> Caller {
        let outside = Transport::new(self.network.clone(), &self.roots);
        let secrets = BoundSecrets::new(&self.bindings, &self.secrets).unwrap();
        let mut egress = Egress::new(&self.grants, &self.limits, secrets, outside).denying(&self.denials);
        egress.timeouts = self.timeouts;
        let egress = Arc::new(egress);
        let recorder = ReceiptRecorder::default();
        Caller {
            hooks: egress.call(recorder.clone()),
            egress,
            recorder,
        }
    }
}

/// A completely read response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Result<Bytes, Error>,
}

impl Caller {
    pub(super) fn new(network: &Arc<FakeNetwork>, grants: &[&str]) -> Self {
        Setup::new(network, grants).caller()
    }

    /// A response with an unread body, whose connection is driven.
    pub(super) async fn open(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<http::Response<WasiBody>, Error> {
        let reply = self
            .hooks
            .send_request(request, options, Box::new(async { Ok(()) }));
        let (response, driver) = Box::into_pin(reply).await?;
        tokio::spawn(Box::into_pin(driver));
        Ok(response)
    }

    pub(super) async fn send(&mut self, request: http::Request<WasiBody>) -> Result<Answer, Error> {
        let response = self.open(request, None).await?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.into_body().collect().await.map(|b| b.to_bytes()),
        })
    }

    pub(super) async fn get(&mut self, url: &str) -> Result<Answer, Error> {
        self.send(get(url)).await
    }

    /// Denials as target and suggested grant.
    pub(super) fn denials(&self) -> Vec<(String, Option<String>)> {
        let receipt = self.recorder.lock();
        receipt
            .denials
            .iter()
            .map(|d| (d.target.clone(), d.allow_with.clone()))
            .collect()
    }
}

/// A `GET` request as passed by `wasi:http`.
pub(super) fn get(url: &str) -> http::Request<WasiBody> {
    request("GET", url, &[])
}

pub(super) fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> http::Request<WasiBody> {
    let mut builder = http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let body = Empty::<Bytes>::new().map_err(|e| match e {}).boxed_unsync();
    builder.body(body).unwrap()
}

/// A server that responds to every request with the result of `answer` for its head, and records the heads.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, seen) = (Arc::new(answer), heads.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen) = (answer.clone(), seen.clone());
                tokio::spawn(async move { serve(stream, &*answer, &seen).await });
            }
        });
        Self { address, heads }
    }

    /// A server run by the test itself.
    pub(super) fn at(address: SocketAddr) -> Self {
        Self {
            address,
            heads: Arc::default(),
        }
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Reads one head, writes one response, closes.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: &(impl Fn(&str) -> Vec<u8> + ?Sized),
    seen: &Mutex<Vec<String>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    seen.lock().unwrap().push(head.clone());
    // The client may close the connection early.
    let _ = stream.write_all(&answer(&head)).await;
    let _ = stream.shutdown().await;
}

/// A plain response with this body.
pub(super) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A redirect to `location`.
pub(super) fn found(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}
