//! Interface of one protocol: building requests and decoding answers. Everything else, from the base URL to retries, is
//! shared.

use std::fmt::Debug;

use serde_json::Value;
use toolcell_core::provider::{Completion, Request};

use super::client::{Header, Version, bearer};
use super::dialect::{Dialect, OptionalPart};
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
    type Decoder: Decoder;

    const FRAMING: Framing;

    /// Address of the protocol's own service.
    const BASE_URL: &'static str;

    /// Path of the list of models, below the version.
    const MODELS: &'static str;

    /// Parts of requests that not every server accepts. The first one that a refusal names is left out.
    const OPTIONAL: &'static [OptionalPart];

    /// JSON pointers of the fields that can contain the maximum tokens of an answer.
    const OUTPUT_LIMITS: &'static [&'static str];

    /// True if messages can contain bytes of this media type. A line of text stands in place of others.
    fn carries(&self, _media_type: &str) -> bool {
        true
    }

    /// Name of the protocol's own service in errors and traces.
    fn service(&self) -> &'static str;

    /// True if the protocol's own service is at this host. It requires a key.
    fn is_own_host(host: &str) -> bool;

    /// Header of a key or token.
    fn authorization(&self, key: &ApiKey) -> Result<Header, SetupError> {
        bearer(key)
    }

    /// Additional headers of every request.
    fn headers(&self) -> Result<Vec<Header>, SetupError> {
        Ok(Vec::new())
    }

    /// Position of the API's version in URLs.
    fn version(&self) -> Version;

    /// Path of requests, below the version.
    fn path(&self, model: &str) -> String;

    /// Builds the body of a request. Deterministic: equal requests give equal bytes. Fields of [`Self::OPTIONAL`] that the
    /// server refused are removed afterwards.
    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value;

    /// Path and body of a request for the limits of the model, if this request needs to know them. Sent at most once.
    fn lookup(&self, _request: &Request, _model: &str, _dialect: Dialect) -> Option<(&'static str, Value)> {
        None
    }

    /// Reads the limits of the model; `None` if there was no answer.
    fn looked_up(&self, dialect: Dialect, _answer: Option<&Value>) -> Dialect {
        dialect
    }

    /// Chooses the length of the context for a request.
    ///
    /// # Errors
    /// The reason, if the request cannot fit.
    fn fit(&self, _request: &Request, _model: &str, dialect: Dialect) -> Result<Dialect, String> {
        Ok(dialect)
    }

    /// Dialect with a longer context, after the server refused a request as too long; `None` if there is none.
    fn longer(&self, _dialect: Dialect) -> Option<Dialect> {
        None
    }

    /// Creates a decoder for an answer of this provider.
    fn decoder(provider: &str) -> Self::Decoder;

    /// Prepares an empty answer for the request.
    fn prepare(&self, answer: ResponseBuilder, _request: &Request) -> ResponseBuilder {
        answer
    }
}
