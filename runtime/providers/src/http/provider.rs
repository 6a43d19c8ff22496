//! Provider over HTTP: one connection and one exchange of requests for all protocols.

use toolcell_core::provider::{Delta, ModelInfo, ProviderInfo, Request};
use toolcell_core::{BoxFuture, BoxStream, Provider, ProviderError};

use super::client::endpoint;
use super::exchange::Http;
use super::protocol::Protocol;
use super::service::Service;
use crate::{ApiKey, Connection, SetupError, emit};

/// Model over HTTP with the protocol `P`. Each protocol module names its own, such as
/// [`OpenAi`](crate::openai::OpenAi).
#[derive(Debug)]
#[expect(private_bounds, reason = "the protocols are those of this crate")]
pub struct HttpProvider<P: Protocol> {
    http: Http,
    service: Service<P>,
}

#[expect(private_bounds, reason = "the protocols are those of this crate")]
impl<P: Protocol> HttpProvider<P> {
    /// Creates a provider with the default settings of the protocol. Validates the settings; sends no request.
    ///
    /// # Errors
    /// As [`HttpProvider::with`].
    pub fn new(connection: Connection) -> Result<Self, SetupError>
    where
        P: Default,
    {
        Self::with(connection, P::default())
    }

    /// Creates a provider with protocol settings. Validates the settings; sends no request.
    ///
    /// # Errors
    /// [`SetupError::MissingKey`] for the protocol's own service without a key or a header with one, and errors in the URL, proxy or
    /// headers.
    pub fn with(connection: Connection, protocol: P) -> Result<Self, SetupError> {
        let Connection {
            provider,
            model,
            base_url,
            api_key,
            tokens,
            http,
        } = connection;
        let provider = provider.unwrap_or_else(|| protocol.service().to_owned());
        let base_url = base_url.as_deref().unwrap_or(P::BASE_URL);
        let endpoint = endpoint(base_url, protocol.version(), &protocol.path(&model))?;
        // A configured header with the key is the key.
        let key_header = protocol.authorization(&ApiKey::new("key"))?.0;
        let (api_key, tokens) = match http.has_header(key_header.as_str()) {
            true => (None, None),
            false => (api_key, tokens),
        };
        let is_authorized = http.has_header(key_header.as_str()) || http.has_header("authorization");
        if P::is_own_host(&endpoint.host) && api_key.is_none() && tokens.is_none() && !is_authorized {
            return Err(SetupError::MissingKey {
                provider,
                host: endpoint.host,
            });
        }
        let mut headers = protocol.headers()?;
        headers.retain(|(name, _)| !http.has_header(name.as_str()));
        if let (Some(key), None) = (&api_key, &tokens) {
            headers.push(protocol.authorization(key)?);
        }
        let http = Http::new(&provider, http, api_key)?;
        let info = ProviderInfo { provider, model };
        Ok(Self {
            http,
            service: Service::new(info, endpoint, headers, tokens, protocol),
        })
    }
}

impl<P: Protocol> Provider for HttpProvider<P> {
    fn info(&self) -> &ProviderInfo {
        &self.service.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let request = self.service.request(request);
        emit::stream(|mut out| async move { self.http.exchange(request, &mut out).await })
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<ModelInfo>, ProviderError>> {
        Box::pin(async move {
            let mut request = self.service.request(Request::default());
            request.authorize().await?;
            self.http.models(&request).await
        })
    }
}
