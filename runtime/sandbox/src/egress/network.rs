//! Network access: name resolution, connections, TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use toolcell_core::BoxFuture;

/// Network used by requests of guests. The policy is applied above it: only granted names are resolved, and only
/// checked addresses are connected to.
pub trait Network: Send + Sync {
    /// Resolves a DNS name to addresses with `port`.
    fn lookup<'a>(&'a self, name: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Connects to exactly this address.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// The network of the host: its resolver and its routes. Proxies of the environment are not used.
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

/// A network and its trusted root certificates, shared by all tools of a sandbox.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) network: Arc<dyn Network>,
    tls: Arc<Tls>,
}

struct Tls {
    extra_roots: Vec<CertificateDer<'static>>,
    /// Created by the first TLS request: reading the certificates of the system takes milliseconds.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Transport {
    /// Creates a transport. `extra_roots` are DER certificates trusted beside Mozilla's root certificates and those of
    /// the system.
    pub(crate) fn new(network: Arc<dyn Network>, extra_roots: &[Vec<u8>]) -> Self {
        let extra_roots = extra_roots.iter().cloned().map(CertificateDer::from).collect();
        let tls = Arc::new(Tls {
            extra_roots,
            config: OnceLock::new(),
        });
        Self { network, tls }
    }

    /// Returns the TLS settings: TLS 1.2 and 1.3, certificates always verified.
    ///
    /// # Errors
    ///
    /// If the cryptography provider does not support the protocol versions; ring does.
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
        tracing::debug!(%error, "ignoring an unreadable root certificate of the system");
    }
    roots.add_parsable_certificates(system.certs);
    roots.add_parsable_certificates(extra_roots.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Session resumption would carry state from one call to the next, across tools.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
