//! Service behind a provider: its address, protocol and dialect; and the state of one request to it.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use toolcell_core::provider::{ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{Content, Message, ProviderError};

use super::client::{Endpoint, Header};
use super::dialect::{self, Dialect};
use super::protocol::Protocol;
use super::retry::FailedAttempt;
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
    dialect: Mutex<Dialect>,
}

/// Change of a request after a failure.
#[derive(Debug)]
pub(super) enum Adaptation {
    /// Nothing can be changed.
    None,
    /// A new access token is requested.
    NewToken,
    /// The request differs; with a notice for the user, if no other request had this change before.
    Changed(Option<String>),
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
            dialect: Mutex::new(Dialect::new(P::is_own_host(&endpoint.host))),
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
    dialect: Dialect,
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
            url: endpoint.at(&protocol.path(&info.model), self.dialect.uses_other_url),
            headers,
            body: dialect::body(protocol, &self.request, &info.model, self.dialect),
        })
    }

    /// Returns the requests for the list of models, with each form of the base URL; the body is not sent.
    pub(super) fn listings(&self) -> Result<Vec<HttpRequest>, ProviderError> {
        let Service { endpoint, .. } = self.service;
        let forms = [false, true].into_iter();
        forms
            .filter(|is_other| !is_other || endpoint.has_other())
            .map(|is_other| {
                let mut request = self.outgoing()?;
                request.url = endpoint.at(P::MODELS, is_other);
                Ok(request)
            })
            .collect()
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

    /// HTTP request for the limits of the model, if they must be known.
    pub(super) fn lookup(&self) -> Option<HttpRequest> {
        let Service {
            info,
            endpoint,
            protocol,
            ..
        } = self.service;
        let (path, body) = protocol.lookup(&self.request, &info.model, self.dialect)?;
        let mut request = self.outgoing().ok()?;
        request.url = endpoint.at(path, self.dialect.uses_other_url);
        request.body = body;
        Some(request)
    }

    /// Keeps the limits of the model.
    pub(super) fn looked_up(&mut self, answer: Option<&Value>) {
        self.dialect = self.service.protocol.looked_up(self.dialect, answer);
    }

    /// Chooses the length of the context.
    ///
    /// # Errors
    /// Fails if the request cannot fit; it is not sent.
    pub(super) fn fit(&mut self) -> Result<(), ProviderError> {
        let Service { info, protocol, .. } = self.service;
        let fitting = protocol.fit(&self.request, &info.model, self.dialect);
        self.dialect = fitting
            .map_err(|why| ProviderError::new(&info.provider, ProviderErrorKind::ContextLength, why))?;
        Ok(())
    }

    /// Notice for the user about files of the latest message that the protocol cannot carry, if it has any.
    pub(super) fn not_carried(&self) -> Option<String> {
        let Service { info, protocol, .. } = self.service;
        let Message::User { content } = &**self.request.messages.last()? else {
            return None;
        };
        let media_type = content.iter().find_map(|part| match part {
            Content::Blob(blob) if !protocol.carries(&blob.media_type) => Some(&blob.media_type),
            _ => None,
        })?;
        let provider = &info.provider;
        Some(format!(
            "{provider}: files of the type {media_type} cannot be sent to it; the model is only told that there is one"
        ))
    }

    /// Secret of the request, besides the provider's key, that must be redacted from errors.
    pub(super) fn secret(&self) -> Option<&ApiKey> {
        self.token.as_ref()
    }

    /// Changes the request so that a server that refused it may accept it. Each change is made once.
    pub(super) fn adapt(&mut self, failure: &FailedAttempt) -> Adaptation {
        let error = &failure.error;
        let is_unauthorized = error.status == Some(401) && self.token.is_some();
        if is_unauthorized && !std::mem::replace(&mut self.is_refused, true) {
            return Adaptation::NewToken;
        }
        let Service {
            info,
            endpoint,
            protocol,
            ..
        } = self.service;
        if error.kind == ProviderErrorKind::ContextLength
            && let Some(longer) = protocol.longer(self.dialect)
        {
            self.dialect = longer;
            return Adaptation::Changed(None);
        }
        let Some(lesson) = dialect::learn(protocol, &self.request, &info.model, self.dialect, failure) else {
            if is_wrong_path(error) && endpoint.has_other() && !self.dialect.uses_other_url {
                // Kept for later requests only if this one succeeds: both URLs may be wrong.
                self.dialect.uses_other_url = true;
                return Adaptation::Changed(None);
            }
            return Adaptation::None;
        };
        self.dialect = lesson.dialect;
        let is_new = self.remember();
        let notice = format!("{}: {} ({})", info.provider, lesson.change, error.message);
        Adaptation::Changed(is_new.then_some(notice))
    }

    /// Keeps the dialect for later requests. Returns `true` if it contains something new.
    pub(super) fn remember(&self) -> bool {
        let mut shared = (self.service.dialect.lock()).unwrap_or_else(PoisonError::into_inner);
        let joined = shared.joined(self.dialect);
        std::mem::replace(&mut *shared, joined) != joined
    }

    fn unauthorized(&self, reason: String) -> ProviderError {
        ProviderError::new(
            &self.service.info.provider,
            ProviderErrorKind::Unauthorized,
            reason,
        )
    }
}

/// True if nothing is at the requested path. A model that does not exist has the same status.
pub(super) fn is_wrong_path(error: &ProviderError) -> bool {
    matches!(error.status, Some(404 | 405)) && !error.message.to_lowercase().contains("model")
}
