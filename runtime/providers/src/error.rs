//! Why a provider cannot be set up. Failures of a request are [`toolcell_core::ProviderError`].

/// Why a provider cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// This address answers nobody without a key.
    #[error("`{host}` needs an API key and none is set for the provider `{provider}`")]
    MissingKey {
        /// Name of the provider.
        provider: String,
        /// Host of the base URL.
        host: String,
    },
    /// The base URL is no address that requests can go to.
    #[error("`{url}` is no base URL of a provider: {reason}")]
    BaseUrl {
        /// What was given, without a password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The proxy is no address that requests can go through.
    #[error("the proxy cannot be used: {reason}")]
    Proxy {
        /// What is wrong with it.
        reason: String,
    },
    /// A key or header value has bytes that HTTP does not carry.
    #[error("the value of the header `{name}` has characters that HTTP does not carry")]
    Header {
        /// Name of the header.
        name: String,
    },
    /// The HTTP client could not be built.
    #[error("the HTTP client could not be built: {reason}")]
    Client {
        /// The chain of causes.
        reason: String,
    },
    /// A script of turns is not usable.
    #[error("the script is not usable: {reason}")]
    Script {
        /// What is wrong and where.
        reason: String,
    },
}
