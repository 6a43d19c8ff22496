//! Chat Completions (<https://platform.openai.com/docs/api-reference/chat>), streamed: OpenAI and every server that
//! speaks the same, such as Ollama, vLLM, llama.cpp, LM Studio, SGLang, LiteLLM, OpenRouter and Groq.
//!
//! The wire is spoken as its widest common part; what a server refuses (`stream_options`, `parallel_tool_calls`, …) is
//! left out from then on, and what it does differently in its answer is understood.

mod request;
mod schemas;
mod stream;

use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::header::{HeaderName, HeaderValue};
use toolcell_core::provider::{Delta, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use crate::emit;
use crate::framing::Framing;
use crate::http::{Endpoint, Http, Outgoing, Protocol, bearer, endpoint};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, HttpOptions, SetupError};
use request::Dialect;
pub use schemas::ToolSchemas;
pub(crate) use schemas::answer_schema;
pub(crate) use stream::ChatDecoder;

/// Base URL of OpenAI itself.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// The name under which what the provider must get back is kept.
const WIRE: &str = "openai_chat";

/// Settings of [`OpenAi`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Name of the provider in errors and traces. Default: `openai`.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Where the server is, with its version, such as `http://localhost:11434/v1`. Default: [`OPENAI_BASE_URL`].
    pub base_url: String,
    /// The key. Only OpenAI itself is known to need one.
    pub api_key: Option<ApiKey>,
    /// How tools are described. Default: [`ToolSchemas::Loose`].
    pub tool_schemas: ToolSchemas,
    /// The connection.
    pub http: HttpOptions,
}

impl Options {
    /// A model at OpenAI, without a key yet.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            provider: "openai".into(),
            model: model.into(),
            base_url: OPENAI_BASE_URL.into(),
            api_key: None,
            tool_schemas: ToolSchemas::Loose,
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

/// A model behind a Chat Completions endpoint.
///
/// ```
/// use toolcell_providers::openai::{OpenAi, Options};
///
/// let mut options = Options::new("llama3.2");
/// options.base_url = "http://localhost:11434/v1".into();
/// let model = OpenAi::new(options)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug)]
pub struct OpenAi {
    info: ProviderInfo,
    endpoint: Endpoint,
    authorization: Option<(HeaderName, HeaderValue)>,
    http: Http,
    tool_schemas: ToolSchemas,
    /// [`Dialect`] as learnt from the server's refusals.
    dialect: AtomicU8,
}

impl OpenAi {
    /// Checks the settings; sends nothing.
    ///
    /// # Errors
    /// [`SetupError::MissingKey`] for OpenAI itself without a key, and what is wrong with URL, proxy or headers.
    pub fn new(options: Options) -> Result<Self, SetupError> {
        let endpoint = endpoint(&options.base_url)?;
        let is_openai = endpoint.host == "api.openai.com";
        endpoint.check_key(is_openai, &options.provider, options.api_key.as_ref())?;
        let authorization = options.api_key.as_ref().map(bearer).transpose()?;
        Ok(Self {
            http: Http::new(&options.provider, options.http, options.api_key)?,
            info: ProviderInfo {
                provider: options.provider,
                model: options.model,
            },
            endpoint,
            authorization,
            tool_schemas: options.tool_schemas,
            dialect: AtomicU8::new(Dialect::of_server(is_openai).bits()),
        })
    }
}

impl Provider for OpenAi {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            provider: self,
            dialect: Dialect::from_bits(self.dialect.load(Ordering::Relaxed)),
            request,
        };
        emit::stream(|mut out| async move { self.http.exchange(exchange, &mut out).await })
    }
}

struct Exchange<'a> {
    provider: &'a OpenAi,
    dialect: Dialect,
    request: Request,
}

impl Protocol for Exchange<'_> {
    type Decoder = ChatDecoder;

    const FRAMING: Framing = Framing::Sse;

    fn outgoing(&self) -> Outgoing {
        Outgoing {
            url: self.provider.endpoint.at("chat/completions"),
            headers: self.provider.authorization.iter().cloned().collect(),
            body: request::body(
                &self.request,
                &self.provider.info.model,
                self.dialect,
                self.provider.tool_schemas,
            ),
        }
    }

    fn decoder(&self) -> ChatDecoder {
        ChatDecoder::new(&self.provider.info.provider)
    }

    fn answer(&self) -> ResponseBuilder {
        let answer = ResponseBuilder::to(&self.request, &self.provider.info.provider);
        self.provider.tool_schemas.answer(answer, &self.request)
    }

    fn adapt(&mut self, error: &ProviderError) -> bool {
        if error.kind != ProviderErrorKind::InvalidRequest {
            return false;
        }
        let Some(adapted) = self.dialect.without_what(&error.message, &self.outgoing().body) else {
            return false;
        };
        self.dialect = adapted;
        self.provider.dialect.store(adapted.bits(), Ordering::Relaxed);
        true
    }
}
