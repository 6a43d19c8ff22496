//! The seam to the outside: look-up, connection, TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use toolcell_core::BoxFuture;

/// How requests of guests reach the network. The policy is applied above it: only names that a grant allows are
/// looked up, and only addresses that were checked are connected to.
pub trait Network: Send + Sync {
    /// The addresses of a DNS name, each with `port`.
    fn lookup<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// A connection to exactly this address.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// The network of the host: its resolver and its routes. Proxies that the environment names are not used.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostNetwork;

impl Network for HostNetwork {
    fn lookup<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

/// A network and the certificates that it is trusted by; one for all tools of a sandbox.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) network: Arc<dyn Network>,
    tls: Arc<Tls>,
}

struct Tls {
    extra_roots: Vec<CertificateDer<'static>>,
    /// Made on the first request over TLS: reading the certificates of the system takes milliseconds.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Transport {
    /// `extra_roots` are certificates in DER; they are trusted beside Mozilla's root certificates and those of the system.
    pub(crate) fn new(network: Arc<dyn Network>, extra_roots: &[Vec<u8>]) -> Self {
        let extra_roots = extra_roots.iter().cloned().map(CertificateDer::from).collect();
        let tls = Arc::new(Tls {
            extra_roots,
            config: OnceLock::new(),
        });
        Self { network, tls }
    }

    /// The TLS settings: TLS 1.2 and 1.3, certificates always verified.
    ///
    /// # Errors
    ///
    /// When the provider of cryptography does not know the protocol versions, which ring does.
    pub(crate) async fn tls(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        if let Some(config) = self.tls.config.get() {
            return Ok(config.clone());
        }
        let tls = self.tls.clone();
        let made = tokio::task::spawn_blocking(move || client_config(&tls.extra_roots))
            .await
            .map_err(|e| rustls::Error::General(e.to_string()))??;
        Ok(self.tls.config.get_or_init(|| made).clone())
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside")
            .field("extra_roots", &self.tls.extra_roots.len())
            .finish_non_exhaustive()
    }
}

fn client_config(extra_roots: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::debug!(%error, "a root certificate of the system was not read");
    }
    roots.add_parsable_certificates(system.certs);
    roots.add_parsable_certificates(extra_roots.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A session that is resumed carries something from one call to the next, across tools.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
