//! HTTPS against servers with certificates of a test authority.

use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wasmtime_wasi_http::Error;

use super::fake_network::{FakeNetwork, Server, Setup, ok, serve};

/// A certificate authority for one test.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A server with a certificate for `names`, valid until the first day of `until`.
    async fn serve(&self, names: &[&str], until: i32, answer: fn(&str) -> Vec<u8>) -> Server {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::at(listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, &answer, &Mutex::default()).await;
                }
            }
        });
        server
    }
}

async fn fetch(server: &Server, trusted: &Authority, url: &str) -> Result<u16, Error> {
    let network = Arc::<FakeNetwork>::default();
    network.name("a.example", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    let mut setup = Setup::new(&network, &["http=https://*"]);
    setup.roots = vec![trusted.certificate.to_vec()];
    setup.caller().get(url).await.map(|answer| answer.status)
}

#[tokio::test]
async fn trusted_certificate_for_the_name_is_accepted() {
    let authority = Authority::new();
    let server = authority.serve(&["a.example"], 2200, |_| ok("")).await;
    assert_eq!(
        fetch(&server, &authority, "https://a.example/").await.unwrap(),
        200
    );
}

#[tokio::test]
async fn every_other_certificate_is_refused() {
    let (authority, unknown) = (Authority::new(), Authority::new());
    for (why, issuer, names, until) in [
        ("wrong host", &authority, "b.example", 2200),
        ("expired", &authority, "a.example", 2000),
        ("unknown authority", &unknown, "a.example", 2200),
        ("an address for a name", &authority, "8.8.8.8", 2200),
    ] {
        let server = issuer.serve(&[names], until, |_| ok("")).await;
        let error = fetch(&server, &authority, "https://a.example/")
            .await
            .unwrap_err();
        assert!(matches!(error, Error::TlsCertificateError), "{why}: {error}");
    }
    let server = authority.serve(&["a.example"], 2200, |_| ok("")).await;
    let error = fetch(&server, &authority, "https://8.8.8.8/").await.unwrap_err();
    assert!(matches!(error, Error::TlsCertificateError), "{error}");
}

#[tokio::test]
async fn certificate_for_an_address_is_accepted_for_it() {
    let authority = Authority::new();
    let server = authority.serve(&["8.8.8.8"], 2200, |_| ok("")).await;
    assert_eq!(fetch(&server, &authority, "https://8.8.8.8/").await.unwrap(), 200);
}

#[tokio::test]
async fn server_without_tls_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(&ok("plain")).await;
    });
    let error = fetch(&server, &Authority::new(), "https://a.example/")
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::TlsProtocolError | Error::ConnectionTerminated),
        "{error}"
    );
}

#[tokio::test]
async fn redirect_from_https_to_http_is_not_followed() {
    let authority = Authority::new();
    let server = authority
        .serve(&["a.example"], 2200, |_| {
            super::fake_network::found("http://a.example/plain")
        })
        .await;
    let network = Arc::<FakeNetwork>::default();
    network.name("a.example", &[&["8.8.8.8"]]);
    network.route("8.8.8.8", server.address);
    let mut setup = Setup::new(&network, &["http=https://a.example", "http=http://a.example"]);
    setup.roots = vec![authority.certificate.to_vec()];
    let mut caller = setup.caller();
    assert_eq!(caller.get("https://a.example/").await.unwrap().status, 302);
    let error = caller.get("http://a.example/plain").await.unwrap_err();
    assert!(matches!(error, Error::HttpRequestDenied), "{error}");
    assert_eq!(network.connected().len(), 1);
}
