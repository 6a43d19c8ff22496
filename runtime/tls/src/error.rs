//! Errors of the TLS set-up.

/// Error of the TLS set-up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A root certificate is no certificate.
    #[error("invalid root certificate")]
    RootCertificate(#[source] rustls::Error),
    /// The library of cryptography does not have the versions of the protocol, which ring does.
    #[error("TLS 1.2 and 1.3 are not available")]
    Versions(#[source] rustls::Error),
}
