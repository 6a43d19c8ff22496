//! Interface of one protocol: building requests and decoding answers. Everything else, from the base URL to retries, is
//! shared.

use std::fmt::Debug;

use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::{Completion, Request};

use super::client::{Header, bearer};
use super::retry::FailedAttempt;
use crate::framing::{Event, Framing};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, SetupError};

/// State of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecoderState {
    /// The answer is incomplete.
    Open,
    /// The answer is complete; only less important data may follow.
    Settled,
    /// The protocol's end marker was received.
    Done,
}

/// Decoder of the events of one answer.
pub(crate) trait Decoder: Send {
    /// Decodes one event.
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<DecoderState, FailedAttempt>;

    /// Completes the answer when everything was read.
    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, FailedAttempt>;
}

/// Protocol of requests to models.
pub(crate) trait Protocol: Debug + Send + Sync {
    /// Optional parts of requests that the server supports. A provider learns them from refusals.
    type Dialect: Debug + Copy + Send + Sync;

    type Decoder: Decoder;

    const FRAMING: Framing;

    /// Address of the protocol's own service.
    const BASE_URL: &'static str;

    /// Name of the protocol's own service in errors and traces.
    fn service(&self) -> &'static str;

    /// True if the protocol's own service is at this host. It requires a key.
    fn is_own_host(host: &str) -> bool;

    /// Initial dialect for a server.
    fn dialect(&self, host: &str) -> Self::Dialect;

    /// Header of a key or token.
    fn authorization(&self, key: &ApiKey) -> Result<Header, SetupError> {
        bearer(key)
    }

    /// Additional headers of every request.
    fn headers(&self) -> Result<Vec<Header>, SetupError> {
        Ok(Vec::new())
    }

    /// Path of requests, below the base URL.
    fn path(&self, model: &str) -> String;

    /// Builds the body of a request. Deterministic: equal requests give equal bytes.
    fn body(&self, request: &Request, model: &str, dialect: Self::Dialect) -> Value;

    /// Creates a decoder for an answer of this provider.
    fn decoder(provider: &str) -> Self::Decoder;

    /// Prepares an empty answer for the request.
    fn prepare(&self, answer: ResponseBuilder, _request: &Request) -> ResponseBuilder {
        answer
    }

    /// Dialect in which a server may accept a request that it refused as invalid, if the error shows it.
    fn adapt(
        &self,
        _dialect: Self::Dialect,
        _request: &Request,
        _body: &Value,
        _error: &ProviderError,
    ) -> Option<Self::Dialect> {
        None
    }
}
