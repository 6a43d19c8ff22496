//! Network access: name resolution, connections, TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::client::Resumption;
use tokio::net::TcpStream;
use toolcell_core::BoxFuture;
use toolcell_tls::TlsError;

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
    extra_roots: Vec<Vec<u8>>,
    /// Created by the first TLS request: reading the certificates of the system takes milliseconds.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Transport {
    /// Creates a transport. `extra_roots` are DER certificates trusted beside Mozilla's root certificates and those of
    /// the system.
    pub(crate) fn new(network: Arc<dyn Network>, extra_roots: &[Vec<u8>]) -> Self {
        let tls = Arc::new(Tls {
            extra_roots: extra_roots.to_vec(),
            config: OnceLock::new(),
        });
        Self { network, tls }
    }

    /// The TLS settings.
    ///
    /// # Errors
    /// [`TlsError::RootCertificate`] for an invalid extra root.
    pub(crate) async fn tls(&self) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = self.tls.config.get() {
            return Ok(config.clone());
        }
        let tls = self.tls.clone();
        let made = tokio::task::spawn_blocking(move || tls.client_config()).await;
        let made = made.unwrap_or_else(|_| self.tls.client_config())?;
        Ok(self.tls.config.get_or_init(|| Arc::new(made)).clone())
    }
}

impl Tls {
    fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let mut config = toolcell_tls::client_config(&self.extra_roots)?;
        // A session that is resumed carries something from one call to the next, across tools.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("extra_roots", &self.tls.extra_roots.len())
            .finish_non_exhaustive()
    }
}
