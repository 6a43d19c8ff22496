//! Service behind a provider: its address, protocol and dialect; and the state of one request to it.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::{ProviderErrorKind, ProviderInfo, Request};

use super::client::{Endpoint, Header};
use super::protocol::Protocol;
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, TokenSource};

/// Service that is reached with the protocol `P`.
#[derive(Debug)]
pub(super) struct Service<P: Protocol> {
    pub(super) info: ProviderInfo,
    endpoint: Endpoint,
    headers: Vec<Header>,
    tokens: Option<TokenSource>,
    protocol: P,
    /// Dialect learnt from the server's refusals.
    dialect: Mutex<P::Dialect>,
}

/// HTTP request.
pub(super) struct HttpRequest {
    pub(super) url: String,
    pub(super) headers: Vec<Header>,
    pub(super) body: Value,
}

impl<P: Protocol> Service<P> {
    pub(super) fn new(
        info: ProviderInfo,
        endpoint: Endpoint,
        headers: Vec<Header>,
        tokens: Option<TokenSource>,
        protocol: P,
    ) -> Self {
        Self {
            dialect: Mutex::new(protocol.dialect(&endpoint.host)),
            info,
            endpoint,
            headers,
            tokens,
            protocol,
        }
    }

    /// Begins a request.
    pub(super) fn request(&self, request: Request) -> ServiceRequest<'_, P> {
        ServiceRequest {
            dialect: *self.dialect.lock().unwrap_or_else(PoisonError::into_inner),
            service: self,
            request,
            token: None,
            is_refused: false,
        }
    }
}

/// Request to a service, with the state of its attempts.
pub(super) struct ServiceRequest<'a, P: Protocol> {
    service: &'a Service<P>,
    request: Request,
    /// Copy of the learnt dialect: changes by concurrent requests do not affect this one.
    dialect: P::Dialect,
    /// Access token of this request, if a source is set.
    token: Option<ApiKey>,
    /// True if the service refused the token. A second refusal ends the request.
    is_refused: bool,
}

impl<P: Protocol> ServiceRequest<'_, P> {
    /// Returns the HTTP request of the next attempt.
    pub(super) fn outgoing(&self) -> Result<HttpRequest, ProviderError> {
        let Service {
            info,
            endpoint,
            headers,
            protocol,
            ..
        } = self.service;
        let mut headers = headers.clone();
        if let Some(token) = &self.token {
            let header = protocol.authorization(token);
            headers.push(header.map_err(|error| self.unauthorized(error.to_string()))?);
        }
        Ok(HttpRequest {
            url: endpoint.at(&protocol.path(&info.model)),
            headers,
            body: protocol.body(&self.request, &info.model, self.dialect),
        })
    }

    /// Returns a decoder for the answer.
    pub(super) fn decoder(&self) -> P::Decoder {
        P::decoder(&self.service.info.provider)
    }

    /// Returns an empty response.
    pub(super) fn answer(&self) -> ResponseBuilder {
        let answer = ResponseBuilder::to(&self.request, &self.service.info.provider);
        self.service.protocol.prepare(answer, &self.request)
    }

    /// Prepares each attempt: gets an access token.
    ///
    /// # Errors
    /// Fails if there is no token; the request is not sent.
    pub(super) async fn authorize(&mut self) -> Result<(), ProviderError> {
        let Some(tokens) = &self.service.tokens else {
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
        let Service { info, protocol, .. } = self.service;
        let body = protocol.body(&self.request, &info.model, self.dialect);
        let Some(adapted) = protocol.adapt(self.dialect, &self.request, &body, error) else {
            return false;
        };
        self.dialect = adapted;
        *(self.service.dialect.lock()).unwrap_or_else(PoisonError::into_inner) = adapted;
        true
    }

    fn unauthorized(&self, reason: String) -> ProviderError {
        ProviderError::new(
            &self.service.info.provider,
            ProviderErrorKind::Unauthorized,
            reason,
        )
    }
}
