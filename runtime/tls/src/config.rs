//! The settings of a client: TLS 1.2 and 1.3, and certificates that are always verified.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use crate::TlsError;

/// The settings of a client that trusts the roots of Mozilla, those of the system, and `extra` ones in DER.
///
/// The first call of a process reads the certificates of the system, which takes some milliseconds.
///
/// # Errors
/// [`TlsError::RootCertificate`] for an extra root that is no certificate.
pub fn client_config(extra: &[Vec<u8>]) -> Result<ClientConfig, TlsError> {
    let mut roots = roots();
    for certificate in extra {
        Arc::make_mut(&mut roots)
            .add(CertificateDer::from(certificate.as_slice()))
            .map_err(TlsError::RootCertificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Versions)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Mozilla's roots and those of the operating system, where it has some: containers often have none, and companies add
/// their own.
fn roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    ROOTS
        .get_or_init(|| {
            let mut roots = RootCertStore {
                roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
            };
            let native = rustls_native_certs::load_native_certs();
            for error in &native.errors {
                tracing::debug!(%error, "a certificate store of the system was not read");
            }
            let (_, refused) = roots.add_parsable_certificates(native.certs);
            tracing::debug!(count = roots.len(), refused, "TLS roots are loaded");
            Arc::new(roots)
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_root_certificate_is_refused() {
        let refused = client_config(&[b"no certificate".to_vec()]).unwrap_err();
        assert!(matches!(refused, TlsError::RootCertificate(_)), "{refused}");
        assert!(client_config(&[]).is_ok());
    }
}
