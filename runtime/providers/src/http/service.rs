//! Service behind a provider: its address, protocol and dialect; and the state of one request to it.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcell_core::provider::{Completion, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{Content, Message, ProviderError};

use super::client::{Endpoint, Header};
use super::dialect::{self, Dialect};
use super::failure::bounded;
use super::protocol::Protocol;
use super::retry::FailedAttempt;
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, TokenSource};

/// Maximum number of types of files in a notice.
const MAX_TYPES: usize = 4;

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
            at_base: None,
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
    /// Failure at the base URL, if the request was sent to the other URL then.
    at_base: Option<FailedAttempt>,
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

    /// Describes the files in the latest messages that are not sent: the protocol has no form for them.
    pub(super) fn unsent(&self) -> Option<String> {
        let is_answer = |message: &&Arc<Message>| matches!(***message, Message::Assistant { .. });
        let latest = self.request.messages.iter().rev();
        let contents =
            latest
                .take_while(|message| !is_answer(message))
                .filter_map(|message| match &**message {
                    Message::User { content } => Some((content, false)),
                    Message::Tool { content, .. } => Some((content, true)),
                    Message::Assistant { .. } => None,
                });
        let parts =
            contents.flat_map(|(content, in_result)| content.iter().map(move |part| (part, in_result)));
        let mut types: Vec<&str> = Vec::new();
        let mut count = 0_usize;
        for (part, in_result) in parts {
            if let Content::Blob(blob) = part
                && !P::sends(&blob.media_type, in_result)
            {
                count += 1;
                if !types.contains(&blob.media_type.as_str()) && types.len() < MAX_TYPES {
                    types.push(&blob.media_type);
                }
            }
        }
        let info = &self.service.info;
        let files = if count == 1 { "file is" } else { "files are" };
        (count > 0).then(|| {
            let types: Vec<String> = types.iter().map(|name| bounded(name)).collect();
            format!(
                "{}: {count} {files} not sent, because this API takes no {}; the model is told only type and size",
                info.provider,
                types.join(", ")
            )
        })
    }

    /// Fact about a complete answer that the user should know.
    pub(super) fn notice_after(&self, completion: &Completion) -> Option<String> {
        let service = self.service;
        let notice = service
            .protocol
            .notice_after(completion.usage.as_ref(), self.dialect)?;
        Some(format!("{}: {notice}", service.info.provider))
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
            if failure.is_wrong_path && endpoint.has_other() && !self.dialect.uses_other_url {
                self.at_base = Some(self.with_url(failure.clone()));
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

    /// Error to report for the last failure. If both URLs failed, it is the one that explains more.
    pub(super) fn reported(&mut self, last: FailedAttempt) -> ProviderError {
        let last = self.with_url(last);
        match self.at_base.take() {
            Some(first) if last.is_wrong_path && (first.is_explained || !last.is_explained) => first.error,
            Some(first) if first.is_explained && !last.is_explained => first.error,
            _ => last.error,
        }
    }

    /// Adds the URL to an error that nothing is there: a base URL may have been written with the path of the requests.
    fn with_url(&self, mut failure: FailedAttempt) -> FailedAttempt {
        if failure.is_wrong_path
            && let Ok(sent) = self.outgoing()
        {
            let message = std::mem::take(&mut failure.error.message);
            let between = if message.is_empty() { "" } else { "; " };
            failure.error.message = format!("{message}{between}the request was sent to {}", sent.url);
        }
        failure
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
