//! Anthropic Messages (<https://docs.anthropic.com/en/api/messages>), streamed.
//!
//! Thinking blocks are sent back unchanged and in order, as the API requires within a turn with tools. Tools, system
//! prompt and conversation end with cache breakpoints, so that each step of a loop pays only for its new part.

mod request;
mod stream;

use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::Request;

use crate::framing::Framing;
use crate::http::{Header, HttpProvider, Protocol, header};
use crate::{ApiKey, SetupError};
pub(crate) use stream::MessagesDecoder;

/// Base URL of Anthropic.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

/// Version of the protocol, sent with every request.
const VERSION: &str = "2023-06-01";

/// Name under which opaque provider data is kept.
const WIRE: &str = "anthropic";

/// Model behind the Messages endpoint.
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::anthropic::Anthropic;
///
/// let model = Anthropic::new(Connection::new("model-name").with_key("the key"))?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
pub type Anthropic = HttpProvider<Messages>;

/// The Messages protocol.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Messages {
    /// Maximum tokens of an answer if the request sets no limit; the API requires one. Default: 16 384. Lowered for
    /// models that allow less.
    pub max_output_tokens: u64,
    /// Lifetime of the cache for the stable part of a request; `None` sets no breakpoints. Default: five minutes.
    pub cache: Option<CacheTime>,
    /// Names of beta features (`anthropic-beta`).
    pub betas: Vec<String>,
}

/// Lifetime of the prompt cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheTime {
    /// Five minutes, renewed by each use.
    FiveMinutes,
    /// One hour; writing costs more.
    OneHour,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            max_output_tokens: 16_384,
            cache: Some(CacheTime::FiveMinutes),
            betas: Vec::new(),
        }
    }
}

impl Protocol for Messages {
    /// Maximum tokens of an answer, by the settings or the API's limit.
    type Dialect = u64;
    type Decoder = MessagesDecoder;

    const FRAMING: Framing = Framing::Sse;
    const BASE_URL: &'static str = ANTHROPIC_BASE_URL;

    fn service(&self) -> &'static str {
        "anthropic"
    }

    fn is_own_host(host: &str) -> bool {
        host == "api.anthropic.com"
    }

    fn dialect(&self, _host: &str) -> u64 {
        self.max_output_tokens
    }

    fn authorization(&self, key: &ApiKey) -> Result<Header, SetupError> {
        header("x-api-key", key.expose(), true)
    }

    fn headers(&self) -> Result<Vec<Header>, SetupError> {
        let mut headers = vec![header("anthropic-version", VERSION, false)?];
        if !self.betas.is_empty() {
            headers.push(header("anthropic-beta", &self.betas.join(","), false)?);
        }
        Ok(headers)
    }

    fn path(&self, _model: &str) -> String {
        "v1/messages".into()
    }

    fn body(&self, request: &Request, model: &str, max_output_tokens: u64) -> Value {
        request::body(request, model, max_output_tokens, self.cache)
    }

    fn decoder(provider: &str) -> MessagesDecoder {
        MessagesDecoder::new(provider)
    }

    /// Handles a model with a lower limit than the default: "max_tokens: 16384 > 8192, which is the maximum allowed …".
    fn adapt(
        &self,
        max_output_tokens: u64,
        request: &Request,
        _body: &Value,
        error: &ProviderError,
    ) -> Option<u64> {
        if request.max_output_tokens.is_some() {
            return None;
        }
        let (_, rest) = error.message.strip_prefix("max_tokens: ")?.split_once("> ")?;
        let allowed: u64 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        (1..max_output_tokens).contains(&allowed).then_some(allowed)
    }
}
