//! Anthropic Messages (<https://docs.anthropic.com/en/api/messages>), streamed.
//!
//! Thinking blocks go back unchanged and in order, as the service demands within a turn with tools. Tools, system prompt
//! and conversation end in cache breakpoints, so that each step of a loop pays for what is new in it.

mod request;
mod stream;

use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::header::{HeaderName, HeaderValue};
use toolcell_core::provider::{Delta, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use crate::emit;
use crate::framing::Framing;
use crate::http::{Endpoint, Http, Outgoing, Protocol, endpoint, header};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, HttpOptions, SetupError};
pub(crate) use stream::MessagesDecoder;

/// Base URL of Anthropic itself.
pub const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com";

/// Version of the wire, sent with every request.
const VERSION: &str = "2023-06-01";

/// The name under which what the provider must get back is kept.
const WIRE: &str = "anthropic";

/// Settings of [`Anthropic`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Name of the provider in errors and traces. Default: `anthropic`.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Where the server is, without `/v1`. Default: [`ANTHROPIC_BASE_URL`].
    pub base_url: String,
    /// The key. Only Anthropic itself is known to need one.
    pub api_key: Option<ApiKey>,
    /// Most tokens of an answer where the request names no limit; this wire demands one. Default: 16 384.
    pub max_output_tokens: u64,
    /// How long the service's cache keeps the stable part of a request; `None` sets no breakpoints. Default: five minutes.
    pub cache: Option<CacheTime>,
    /// Names of beta features (`anthropic-beta`).
    pub betas: Vec<String>,
    /// The connection.
    pub http: HttpOptions,
}

/// How long the cache keeps the stable part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheTime {
    /// Five minutes, renewed by each use.
    FiveMinutes,
    /// One hour; writing costs more.
    OneHour,
}

impl Options {
    /// A model at Anthropic, without a key yet.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            provider: "anthropic".into(),
            model: model.into(),
            base_url: ANTHROPIC_BASE_URL.into(),
            api_key: None,
            max_output_tokens: 16_384,
            cache: Some(CacheTime::FiveMinutes),
            betas: Vec::new(),
            http: HttpOptions::default(),
        }
    }

    /// The same with this key.
    #[must_use]
    pub fn with_key(mut self, key: impl AsRef<str>) -> Self {
        self.api_key = Some(ApiKey::new(key));
        self
    }
}

/// A model behind the Messages endpoint.
///
/// ```
/// use toolcell_providers::ApiKey;
/// use toolcell_providers::anthropic::{Anthropic, Options};
///
/// let mut options = Options::new("model-name");
/// options.api_key = Some(ApiKey::new("the key"));
/// let model = Anthropic::new(options)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Anthropic {
    info: ProviderInfo,
    endpoint: Endpoint,
    headers: Vec<(HeaderName, HeaderValue)>,
    http: Http,
    /// What the settings or the service itself allow.
    max_output_tokens: AtomicU64,
    cache: Option<CacheTime>,
}

impl Anthropic {
    /// Checks the settings; sends nothing.
    ///
    /// # Errors
    /// [`SetupError::MissingKey`] for Anthropic itself without a key, and what is wrong with URL, proxy or headers.
    pub fn new(options: Options) -> Result<Self, SetupError> {
        let endpoint = endpoint(&options.base_url)?;
        let is_own = endpoint.host == "api.anthropic.com";
        endpoint.check_key(is_own, &options.provider, options.api_key.as_ref())?;
        let mut headers = vec![header("anthropic-version", VERSION, false)?];
        if let Some(key) = &options.api_key {
            headers.push(header("x-api-key", key.expose(), true)?);
        }
        if !options.betas.is_empty() {
            headers.push(header("anthropic-beta", &options.betas.join(","), false)?);
        }
        Ok(Self {
            http: Http::new(&options.provider, options.http, options.api_key)?,
            info: ProviderInfo {
                provider: options.provider,
                model: options.model,
            },
            endpoint,
            headers,
            max_output_tokens: AtomicU64::new(options.max_output_tokens),
            cache: options.cache,
        })
    }
}

impl Provider for Anthropic {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            provider: self,
            request,
        };
        emit::stream(|mut out| async move { self.http.exchange(exchange, &mut out).await })
    }
}

struct Exchange<'a> {
    provider: &'a Anthropic,
    request: Request,
}

impl Protocol for Exchange<'_> {
    type Decoder = MessagesDecoder;

    const FRAMING: Framing = Framing::Sse;

    fn outgoing(&self) -> Outgoing {
        Outgoing {
            url: self.provider.endpoint.at("v1/messages"),
            headers: self.provider.headers.clone(),
            body: request::body(&self.request, self.provider),
        }
    }

    fn decoder(&self) -> MessagesDecoder {
        MessagesDecoder::new(&self.provider.info.provider)
    }

    fn answer(&self) -> ResponseBuilder {
        ResponseBuilder::to(&self.request, &self.provider.info.provider)
    }

    /// A model may allow less than our default: "max_tokens: 16384 > 8192, which is the maximum allowed …".
    fn adapt(&mut self, error: &ProviderError) -> bool {
        if self.request.max_output_tokens.is_some() || error.kind != ProviderErrorKind::InvalidRequest {
            return false;
        }
        let allowed = error
            .message
            .strip_prefix("max_tokens: ")
            .and_then(|rest| rest.split_once("> "))
            .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next())
            .and_then(|digits| digits.parse::<u64>().ok())
            .filter(|allowed| {
                *allowed > 0 && *allowed < self.provider.max_output_tokens.load(Ordering::Relaxed)
            });
        match allowed {
            Some(allowed) => {
                self.provider.max_output_tokens.store(allowed, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }
}
