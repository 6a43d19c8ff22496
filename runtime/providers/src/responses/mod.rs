//! OpenAI Responses (<https://platform.openai.com/docs/api-reference/responses>), streamed.
//!
//! The conversation is ours: nothing is stored at the provider (`store: false`), and reasoning travels as encrypted items
//! that go back with what followed them. This wire carries pictures and files in results.

mod request;
mod stream;

use reqwest::header::{HeaderName, HeaderValue};
use toolcell_core::provider::{Delta, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use crate::emit;
use crate::framing::Framing;
use crate::http::{Endpoint, Http, Outgoing, Protocol, bearer, endpoint, header};
use crate::openai::{OPENAI_BASE_URL, ToolSchemas};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, HttpOptions, SetupError};
pub(crate) use stream::ResponsesDecoder;

/// The name under which what the provider must get back is kept.
const WIRE: &str = "openai_responses";

/// Settings of [`OpenAiResponses`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Name of the provider in errors and traces. Default: `openai`.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Where the server is, with its version. Default: [`OPENAI_BASE_URL`].
    pub base_url: String,
    /// The key. Only OpenAI itself is known to need one.
    pub api_key: Option<ApiKey>,
    /// Header `OpenAI-Organization`.
    pub organization: Option<String>,
    /// Header `OpenAI-Project`.
    pub project: Option<String>,
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
            organization: None,
            project: None,
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

/// A model behind the Responses endpoint.
///
/// ```
/// use toolcell_providers::ApiKey;
/// use toolcell_providers::responses::{OpenAiResponses, Options};
///
/// let mut options = Options::new("gpt-5-mini");
/// options.api_key = Some(ApiKey::new("the key"));
/// let model = OpenAiResponses::new(options)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug)]
pub struct OpenAiResponses {
    info: ProviderInfo,
    endpoint: Endpoint,
    headers: Vec<(HeaderName, HeaderValue)>,
    http: Http,
    tool_schemas: ToolSchemas,
}

impl OpenAiResponses {
    /// Checks the settings; sends nothing.
    ///
    /// # Errors
    /// [`SetupError::MissingKey`] for OpenAI itself without a key, and what is wrong with URL, proxy or headers.
    pub fn new(options: Options) -> Result<Self, SetupError> {
        let endpoint = endpoint(&options.base_url)?;
        let is_own = endpoint.host == "api.openai.com";
        endpoint.check_key(is_own, &options.provider, options.api_key.as_ref())?;
        let mut headers = Vec::new();
        if let Some(key) = &options.api_key {
            headers.push(bearer(key)?);
        }
        for (name, value) in [
            ("openai-organization", &options.organization),
            ("openai-project", &options.project),
        ] {
            if let Some(value) = value {
                headers.push(header(name, value, false)?);
            }
        }
        Ok(Self {
            http: Http::new(&options.provider, options.http, options.api_key)?,
            info: ProviderInfo {
                provider: options.provider,
                model: options.model,
            },
            endpoint,
            headers,
            tool_schemas: options.tool_schemas,
        })
    }
}

impl Provider for OpenAiResponses {
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
    provider: &'a OpenAiResponses,
    request: Request,
}

impl Protocol for Exchange<'_> {
    type Decoder = ResponsesDecoder;

    const FRAMING: Framing = Framing::Sse;

    fn outgoing(&self) -> Outgoing {
        Outgoing {
            url: self.provider.endpoint.at("responses"),
            headers: self.provider.headers.clone(),
            body: request::body(
                &self.request,
                &self.provider.info.model,
                self.provider.tool_schemas,
            ),
        }
    }

    fn decoder(&self) -> ResponsesDecoder {
        ResponsesDecoder::new(&self.provider.info.provider)
    }

    fn answer(&self) -> ResponseBuilder {
        let answer = ResponseBuilder::to(&self.request, &self.provider.info.provider);
        self.provider.tool_schemas.answer(answer, &self.request)
    }
}
