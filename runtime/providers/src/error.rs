//! Errors of setting up a provider. Failures of a request are [`toolcell_core::ProviderError`].

/// Error of setting up a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    #[error("invalid base URL `{url}`: {reason}")]
    BaseUrl {
        /// The URL, without a password.
        url: String,
        /// Reason.
        reason: String,
    },
    /// The URL of the proxy is invalid.
    #[error("invalid proxy: {reason}")]
    Proxy {
        /// Reason.
        reason: String,
    },
    /// A key or header value contains characters that are invalid in HTTP.
    #[error("invalid characters in the value of the header `{name}`")]
    Header {
        /// Name of the header.
        name: String,
    },
    /// The HTTP client could not be built.
    #[error("could not build the HTTP client: {reason}")]
    Client {
        /// Chain of causes.
        reason: String,
    },
    /// The script of turns is invalid.
    #[error("invalid script: {reason}")]
    Script {
        /// Reason and position.
        reason: String,
    },
}
