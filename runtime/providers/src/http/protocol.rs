//! What one protocol contributes to a provider: how a request is written and how its answer is read. Everything else, from
//! the base URL to retries, is shared.

use std::fmt::Debug;

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::{Completion, Request};

use super::client::bearer;
use super::retry::Failure;
use crate::framing::{Event, Framing};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, SetupError};

/// A header of a request.
pub(crate) type Header = (HeaderName, HeaderValue);

/// How far a decoder has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More must come.
    Open,
    /// The answer is complete; what may follow is of little worth.
    Settled,
    /// The protocol's end marker was read.
    Done,
}

/// Reads the events of one answer.
pub(crate) trait Decoder: Send {
    /// Takes one event.
    fn event(&mut self, event: Event, answer: &mut ResponseBuilder) -> Result<Progress, Failure>;

    /// Everything was read and the answer is complete.
    fn finish(&mut self, answer: &mut ResponseBuilder) -> Result<Completion, Failure>;
}

/// A protocol that models are asked in.
pub(crate) trait Protocol: Debug + Send + Sync {
    /// What requests leave out or say otherwise because the server refused it. A provider learns it once.
    type Dialect: Debug + Copy + Send + Sync;

    type Decoder: Decoder;

    const FRAMING: Framing;

    /// Address of the protocol's own service.
    const BASE_URL: &'static str;

    /// Name of the protocol's own service in errors and traces.
    fn service(&self) -> &'static str;

    /// Whether the protocol's own service listens at this host. It answers nobody without a key.
    fn is_own_host(host: &str) -> bool;

    /// The dialect that a server is first asked in.
    fn dialect(&self, host: &str) -> Self::Dialect;

    /// The header of a key or token.
    fn authorization(&self, key: &ApiKey) -> Result<Header, SetupError> {
        bearer(key)
    }

    /// Further headers of every request.
    fn headers(&self) -> Result<Vec<Header>, SetupError> {
        Ok(Vec::new())
    }

    /// Where requests go, below the base URL.
    fn path(&self, model: &str) -> String;

    /// The body of a request. The same request gives the same bytes.
    fn body(&self, request: &Request, model: &str, dialect: Self::Dialect) -> Value;

    /// A decoder for the answer of this provider.
    fn decoder(provider: &str) -> Self::Decoder;

    /// Prepares an empty answer for what the request asks.
    fn prepare(&self, answer: ResponseBuilder, _request: &Request) -> ResponseBuilder {
        answer
    }

    /// The dialect in which a server may accept the request that it refused as invalid, where the error tells.
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
