//! How the model of a provider is reached, whatever protocol it speaks.

use super::HttpOptions;
use crate::{ApiKey, TokenSource};

/// A model and the way to it. What only one protocol knows is in the type of that protocol, such as
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
    /// Address that the protocol's paths are appended to, such as `http://localhost:11434/v1`. Default: that of the
    /// protocol's own service.
    pub base_url: Option<String>,
    /// Key of the provider. The protocol's own service answers nobody without one; other servers often do.
    pub api_key: Option<ApiKey>,
    /// Source of access tokens, for a service whose keys expire. Goes before the key.
    pub tokens: Option<TokenSource>,
    /// Limits, proxy, headers and retries of the connection.
    pub http: HttpOptions,
}

impl Connection {
    /// A model at the protocol's own service, without a key yet.
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

    /// The same with this key.
    #[must_use]
    pub fn with_key(mut self, key: impl AsRef<str>) -> Self {
        self.api_key = Some(ApiKey::new(key));
        self
    }

    /// The same at this address.
    #[must_use]
    pub fn with_base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }
}
