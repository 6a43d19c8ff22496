//! A provider behind HTTP: one connection and one way of exchanging requests for all protocols.

use std::sync::{Mutex, PoisonError};

use toolcell_core::provider::{Delta, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use super::client::{Endpoint, endpoint};
use super::exchange::{Http, Outgoing};
use super::protocol::{Header, Protocol};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, Connection, SetupError, TokenSource, emit};

/// A model behind HTTP that speaks the protocol `P`. Each module of a protocol names its own, such as
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
    /// As learnt from the server's refusals.
    dialect: Mutex<P::Dialect>,
}

#[expect(private_bounds, reason = "the protocols are those of this crate")]
impl<P: Protocol> HttpProvider<P> {
    /// A provider that speaks the protocol as it is by default. Checks the settings; sends nothing.
    ///
    /// # Errors
    /// As [`HttpProvider::with`].
    pub fn new(connection: Connection) -> Result<Self, SetupError>
    where
        P: Default,
    {
        Self::with(connection, P::default())
    }

    /// A provider that speaks the protocol with settings of its own. Checks the settings; sends nothing.
    ///
    /// # Errors
    /// [`SetupError::MissingKey`] for the protocol's own service without a key, and what is wrong with URL, proxy or
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

/// One request on its way to an answer.
pub(super) struct Exchange<'a, P: Protocol> {
    provider: &'a HttpProvider<P>,
    request: Request,
    /// Its own copy: what another request learns meanwhile was not said in this one.
    dialect: P::Dialect,
    /// The access token of this request, where they come from a source.
    token: Option<ApiKey>,
    /// The service did not accept it. A second one that is refused ends the request.
    is_refused: bool,
}

impl<P: Protocol> Exchange<'_, P> {
    /// What goes over the wire.
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

    /// An empty answer to be filled.
    pub(super) fn answer(&self) -> ResponseBuilder {
        let answer = ResponseBuilder::to(&self.request, &self.provider.info.provider);
        self.provider.protocol.prepare(answer, &self.request)
    }

    /// Gets what must be there before each attempt: an access token.
    ///
    /// # Errors
    /// When it is not there; the request is not sent.
    pub(super) async fn authorize(&mut self) -> Result<(), ProviderError> {
        let Some(tokens) = &self.provider.tokens else {
            return Ok(());
        };
        let refused = self.token.as_ref().filter(|_| self.is_refused);
        let token = tokens.get(refused).await;
        self.token = Some(token.map_err(|reason| self.unauthorized(reason))?);
        Ok(())
    }

    /// What the request holds beside the key of the provider and must stand in no error.
    pub(super) fn secret(&self) -> Option<&ApiKey> {
        self.token.as_ref()
    }

    /// Changes the request so that a server that refused it may accept it. `false` when there is nothing to change.
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
