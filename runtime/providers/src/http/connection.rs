//! Connection settings of a provider, common to all protocols.

use super::HttpOptions;
use crate::{ApiKey, TokenSource};

/// Model and connection settings. Settings of one protocol are in the type of that protocol, such as
/// [`ChatCompletions`](crate::openai::ChatCompletions).
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::openai::OpenAi;
///
/// let local = Connection::new("llama3.2").with_base_url("http://localhost:11434/v1");
/// let model = OpenAi::new(local)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Connection {
    /// Name of the provider in errors and traces. Default: that of the protocol's own service, such as `openai`.
    pub provider: Option<String>,
    /// Name of the model.
    pub model: String,
    /// Base URL, to which the protocol's paths are appended, such as `http://localhost:11434/v1`. Default: that of the
    /// protocol's own service.
    pub base_url: Option<String>,
    /// API key. Required by the protocol's own service; other servers often need none.
    pub api_key: Option<ApiKey>,
    /// Source of access tokens, for a service whose keys expire. Takes precedence over the key.
    pub tokens: Option<TokenSource>,
    /// Timeouts, proxy, headers and retries of the connection.
    pub http: HttpOptions,
}

impl Connection {
    /// Creates a connection to the protocol's own service, without a key.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            provider: None,
            model: model.into(),
            base_url: None,
            api_key: None,
            tokens: None,
            http: HttpOptions::default(),
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_key(mut self, key: impl AsRef<str>) -> Self {
        self.api_key = Some(ApiKey::new(key));
        self
    }

    /// Sets the base URL.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }
}
