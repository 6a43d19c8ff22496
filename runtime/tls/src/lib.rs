//! The certificates that Toolcell trusts, and the TLS settings of its clients: model providers, requests of guests, and the
//! export of traces.
//!
//! Nothing here reads the environment, with one exception: the certificate store of the system, where `SSL_CERT_FILE` and
//! `SSL_CERT_DIR` name another.

mod config;
mod error;

pub use config::client_config;
pub use error::TlsError;
