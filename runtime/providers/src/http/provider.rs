//! Provider over HTTP: one connection and one exchange of requests for all protocols.

use std::sync::{Mutex, PoisonError};

use toolcell_core::provider::{Delta, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use super::client::{Endpoint, Header, endpoint};
use super::exchange::{Http, Outgoing};
use super::protocol::Protocol;
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, Connection, SetupError, TokenSource, emit};

/// Model over HTTP with the protocol `P`. Each protocol module names its own, such as
/// [`OpenAi`](crate::openai::OpenAi).
#[derive(Debug)]
#[expect(private_bounds, reason = "the protocols are those of this crate")]
pub struct HttpProvider<P: Protocol> {
    info: ProviderInfo,
    endpoint: Endpoint,
    headers: Vec<Header>,
    tokens: Option<TokenSource>,
    http: Http,
    protocol: P,
    /// Dialect learnt from the server's refusals.
    dialect: Mutex<P::Dialect>,
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
    /// [`SetupError::MissingKey`] for the protocol's own service without a key, and errors in the URL, proxy or
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
        let endpoint = endpoint(base_url.as_deref().unwrap_or(P::BASE_URL))?;
        if P::is_own_host(&endpoint.host) && api_key.is_none() && tokens.is_none() {
            return Err(SetupError::MissingKey {
                provider,
                host: endpoint.host,
            });
        }
        let mut headers = protocol.headers()?;
        if let (Some(key), None) = (&api_key, &tokens) {
            headers.push(protocol.authorization(key)?);
        }
        Ok(Self {
            http: Http::new(&provider, http, api_key)?,
            info: ProviderInfo { provider, model },
            dialect: Mutex::new(protocol.dialect(&endpoint.host)),
            endpoint,
            headers,
            tokens,
            protocol,
        })
    }

    fn learnt(&self) -> P::Dialect {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Protocol> Provider for HttpProvider<P> {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            dialect: self.learnt(),
            provider: self,
            request,
            token: None,
            is_refused: false,
        };
        emit::stream(|mut out| async move { self.http.exchange(exchange, &mut out).await })
    }
}

/// Exchange of one request.
pub(super) struct Exchange<'a, P: Protocol> {
    provider: &'a HttpProvider<P>,
    request: Request,
    /// Copy of the learnt dialect: changes by concurrent requests do not affect this one.
    dialect: P::Dialect,
    /// Access token of this request, if a source is set.
    token: Option<ApiKey>,
    /// True if the service refused the token. A second refusal ends the request.
    is_refused: bool,
}

impl<P: Protocol> Exchange<'_, P> {
    /// The HTTP request.
    pub(super) fn outgoing(&self) -> Result<Outgoing, ProviderError> {
        let HttpProvider {
            info,
            endpoint,
            headers,
            protocol,
            ..
        } = self.provider;
        let mut headers = headers.clone();
        if let Some(token) = &self.token {
            let header = protocol.authorization(token);
            headers.push(header.map_err(|error| self.unauthorized(error.to_string()))?);
        }
        Ok(Outgoing {
            url: endpoint.at(&protocol.path(&info.model)),
            headers,
            body: protocol.body(&self.request, &info.model, self.dialect),
        })
    }

    /// A decoder for the answer.
    pub(super) fn decoder(&self) -> P::Decoder {
        P::decoder(&self.provider.info.provider)
    }

    /// An empty response.
    pub(super) fn answer(&self) -> ResponseBuilder {
        let answer = ResponseBuilder::to(&self.request, &self.provider.info.provider);
        self.provider.protocol.prepare(answer, &self.request)
    }

    /// Prepares each attempt: gets an access token.
    ///
    /// # Errors
    /// Fails if there is no token; the request is not sent.
    pub(super) async fn authorize(&mut self) -> Result<(), ProviderError> {
        let Some(tokens) = &self.provider.tokens else {
            return Ok(());
        };
        let refused = self.token.as_ref().filter(|_| self.is_refused);
        let token = tokens.get(refused).await;
        self.token = Some(token.map_err(|reason| self.unauthorized(reason))?);
        Ok(())
    }

    /// Secret of the request, besides the provider's key, that must be redacted from errors.
    pub(super) fn secret(&self) -> Option<&ApiKey> {
        self.token.as_ref()
    }

    /// Changes the request so that a server that refused it may accept it. `false` if there is nothing to change.
    pub(super) fn adapt(&mut self, error: &ProviderError) -> bool {
        let is_unauthorized = error.status == Some(401) && self.token.is_some();
        if is_unauthorized && !std::mem::replace(&mut self.is_refused, true) {
            return true;
        }
        if error.kind != ProviderErrorKind::InvalidRequest {
            return false;
        }
        let HttpProvider { info, protocol, .. } = self.provider;
        let body = protocol.body(&self.request, &info.model, self.dialect);
        let Some(adapted) = protocol.adapt(self.dialect, &self.request, &body, error) else {
            return false;
        };
        self.dialect = adapted;
        *(self.provider.dialect.lock()).unwrap_or_else(PoisonError::into_inner) = adapted;
        true
    }

    fn unauthorized(&self, reason: String) -> ProviderError {
        ProviderError::new(
            &self.provider.info.provider,
            ProviderErrorKind::Unauthorized,
            reason,
        )
    }
}
