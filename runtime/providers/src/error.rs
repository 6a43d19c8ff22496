//! Errors of setting up a provider. Failures of a request are [`toolcell_core::ProviderError`].

use std::path::PathBuf;

use toolcell_fs::FileError;
use toolcell_tls::TlsError;

/// Error of setting up a provider.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The server requires an API key and none is set.
    #[error("no API key is set for the provider `{provider}`, and `{host}` requires one")]
    MissingKey {
        /// Name of the provider.
        provider: String,
        /// Host of the base URL.
        host: String,
    },
    /// The base URL is invalid.
    #[error("invalid base URL `{url}`")]
    BaseUrl {
        /// The URL, without a password.
        url: String,
        /// Reason for the refusal.
        source: BaseUrlError,
    },
    /// The URL of the proxy is invalid.
    #[error("invalid proxy")]
    Proxy(#[source] reqwest::Error),
    /// A key or header value contains characters that are invalid in HTTP.
    #[error("invalid characters in the value of the header `{name}`")]
    Header {
        /// Name of the header.
        name: String,
    },
    /// An additional header belongs to the HTTP client.
    #[error("the header `{name}` is set by the HTTP client")]
    ReservedHeader {
        /// Name of the header.
        name: String,
    },
    /// The TLS settings are invalid.
    #[error("could not set up TLS")]
    Tls(#[from] TlsError),
    /// The HTTP client could not be built.
    #[error("could not build the HTTP client")]
    Client(#[source] reqwest::Error),
    /// The script of turns is invalid.
    #[error("invalid script `{}`", path.display())]
    Script {
        /// Path of the file.
        path: PathBuf,
        /// Reason, with the position of a syntax error.
        source: ScriptError,
    },
}

/// Defect of a base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BaseUrlError {
    /// It is not a URL.
    #[error(transparent)]
    Parse(#[from] url::ParseError),
    /// Its scheme is not HTTP.
    #[error("it must start with `http://` or `https://`")]
    Scheme,
    /// It has no host.
    #[error("it has no host")]
    NoHost,
    /// It contains a user name or a password.
    #[error("user names and passwords are not supported; set a key instead")]
    Credentials,
    /// It contains a query or a fragment.
    #[error("queries and fragments are not supported")]
    Query,
}

/// Defect of a script of turns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text is not a script; the error has line and column.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// There are no steps.
    #[error("it has no steps")]
    Empty,
}
