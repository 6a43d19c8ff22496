//! Ollama's own wire (<https://github.com/ollama/ollama/blob/main/docs/api.md>): `POST /api/chat`, JSON lines.
//!
//! Beside the compatible endpoints of the same server it can set the length of the context, which is small by default and
//! beyond which a prompt is cut without a word.

mod request;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{HeaderName, HeaderValue};
use toolcell_core::provider::{Delta, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use crate::emit;
use crate::framing::Framing;
use crate::http::{Endpoint, Http, Outgoing, Protocol, bearer, endpoint};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, HttpOptions, SetupError};
pub(crate) use stream::OllamaDecoder;

/// Base URL of a server on this machine.
pub const OLLAMA_BASE_URL: &str = "http://localhost:11434";

/// The name under which what the provider must get back is kept.
const WIRE: &str = "ollama";

/// Settings of [`Ollama`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Name of the provider in errors and traces. Default: `ollama`.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Where the server is. Default: [`OLLAMA_BASE_URL`].
    pub base_url: String,
    /// The key; only Ollama's cloud wants one.
    pub api_key: Option<ApiKey>,
    /// Length of the context, in tokens; `None` leaves it to the server, which cuts what is longer. Default: 16 384.
    pub context: Option<u64>,
    /// How long the model stays loaded, such as `10m`; `None` leaves it to the server.
    pub keep_alive: Option<String>,
    /// The connection.
    pub http: HttpOptions,
}

impl Options {
    /// A model on this machine.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            provider: "ollama".into(),
            model: model.into(),
            base_url: OLLAMA_BASE_URL.into(),
            api_key: None,
            context: Some(16_384),
            keep_alive: None,
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

/// A model behind an Ollama server.
///
/// ```
/// use toolcell_providers::ollama::{Ollama, Options};
///
/// let mut options = Options::new("qwen3");
/// options.context = Some(32_768);
/// let model = Ollama::new(options)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Ollama {
    info: ProviderInfo,
    endpoint: Endpoint,
    authorization: Option<(HeaderName, HeaderValue)>,
    http: Http,
    context: Option<u64>,
    keep_alive: Option<String>,
    /// The model cannot be told whether to think.
    thinks_as_it_likes: AtomicBool,
}

impl Ollama {
    /// Checks the settings; sends nothing.
    ///
    /// # Errors
    /// What is wrong with URL, proxy or headers.
    pub fn new(options: Options) -> Result<Self, SetupError> {
        let authorization = options.api_key.as_ref().map(bearer).transpose()?;
        Ok(Self {
            endpoint: endpoint(&options.base_url)?,
            http: Http::new(&options.provider, options.http, options.api_key)?,
            info: ProviderInfo {
                provider: options.provider,
                model: options.model,
            },
            authorization,
            context: options.context,
            keep_alive: options.keep_alive,
            thinks_as_it_likes: AtomicBool::new(false),
        })
    }
}

impl Provider for Ollama {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, mut request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        if self.thinks_as_it_likes.load(Ordering::Relaxed) {
            request.reasoning_effort = None;
        }
        let exchange = Exchange {
            provider: self,
            request,
        };
        emit::stream(|mut out| async move { self.http.exchange(exchange, &mut out).await })
    }
}

struct Exchange<'a> {
    provider: &'a Ollama,
    request: Request,
}

impl Protocol for Exchange<'_> {
    type Decoder = OllamaDecoder;

    const FRAMING: Framing = Framing::Lines;

    fn outgoing(&self) -> Outgoing {
        Outgoing {
            url: self.provider.endpoint.at("api/chat"),
            headers: self.provider.authorization.iter().cloned().collect(),
            body: request::body(&self.request, self.provider),
        }
    }

    fn decoder(&self) -> OllamaDecoder {
        OllamaDecoder::new(&self.provider.info.provider)
    }

    fn answer(&self) -> ResponseBuilder {
        ResponseBuilder::to(&self.request, &self.provider.info.provider)
    }

    fn adapt(&mut self, error: &ProviderError) -> bool {
        let refuses = error.kind == ProviderErrorKind::InvalidRequest
            && error.message.contains("does not support thinking");
        if !refuses || self.request.reasoning_effort.is_none() {
            return false;
        }
        self.request.reasoning_effort = None;
        self.provider.thinks_as_it_likes.store(true, Ordering::Relaxed);
        true
    }
}
