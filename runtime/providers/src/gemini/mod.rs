//! Gemini `generateContent` (<https://ai.google.dev/api/generate-content>), streamed, at the Gemini API and on Vertex AI.
//!
//! Signatures of thoughts are kept with the calls that they came with and go back with them, as models that think between
//! their calls demand.

mod request;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{HeaderName, HeaderValue};
use toolcell_core::provider::{Delta, ProviderErrorKind, ProviderInfo, Request};
use toolcell_core::{BoxStream, Provider, ProviderError};

use crate::emit;
use crate::framing::Framing;
use crate::http::{Endpoint, Http, Outgoing, Protocol, bearer, endpoint, header};
use crate::response_builder::ResponseBuilder;
use crate::{ApiKey, HttpOptions, SetupError, TokenSource};
pub(crate) use stream::GeminiDecoder;

/// Base URL of the Gemini API.
pub const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The name under which what the provider must get back is kept.
const WIRE: &str = "gemini";

/// Settings of [`Gemini`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Name of the provider in errors and traces. Default: `gemini`, on Vertex AI `vertex`.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// What stands before `/models/{model}`. Default: [`GEMINI_BASE_URL`]; see [`vertex_base_url`].
    pub base_url: String,
    /// How the key is sent.
    pub access: Access,
    /// The key, or on Vertex AI an access token, which is valid for an hour.
    pub api_key: Option<ApiKey>,
    /// Where access tokens come from, in the place of one that expires.
    pub tokens: Option<TokenSource>,
    /// The connection.
    pub http: HttpOptions,
}

/// How the key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A key, in `x-goog-api-key`: the Gemini API.
    Key,
    /// An OAuth access token, in `Authorization: Bearer`: Vertex AI.
    Token,
}

/// The base URL of Vertex AI for a project and a location, such as `europe-west4` or `global`.
pub fn vertex_base_url(project: &str, location: &str) -> String {
    let host = match location {
        "global" => "aiplatform.googleapis.com".to_owned(),
        regional => format!("{regional}-aiplatform.googleapis.com"),
    };
    format!("https://{host}/v1/projects/{project}/locations/{location}/publishers/google")
}

impl Options {
    /// A model at the Gemini API, without a key yet.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            provider: "gemini".into(),
            model: model.into(),
            base_url: GEMINI_BASE_URL.into(),
            access: Access::Key,
            api_key: None,
            tokens: None,
            http: HttpOptions::default(),
        }
    }

    /// A model on Vertex AI, without a token yet.
    pub fn vertex(model: impl Into<String>, project: &str, location: &str) -> Self {
        Self {
            provider: "vertex".into(),
            base_url: vertex_base_url(project, location),
            access: Access::Token,
            ..Self::new(model)
        }
    }

    /// The same with this key, or on Vertex AI with this access token.
    #[must_use]
    pub fn with_key(mut self, key: impl AsRef<str>) -> Self {
        self.api_key = Some(ApiKey::new(key));
        self
    }
}

/// A model behind a `generateContent` endpoint.
///
/// ```
/// use toolcell_providers::gemini::{Gemini, Options};
///
/// let options = Options::vertex("gemini-2.5-flash", "my-project", "europe-west4").with_key("an access token");
/// let model = Gemini::new(options)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Gemini {
    info: ProviderInfo,
    endpoint: Endpoint,
    authorization: Option<(HeaderName, HeaderValue)>,
    tokens: Option<TokenSource>,
    http: Http,
    /// The server does not know `parametersJsonSchema`; schemas are lowered to its own type.
    lowers: AtomicBool,
}

impl Gemini {
    /// Checks the settings; sends nothing.
    ///
    /// # Errors
    /// [`SetupError::MissingKey`] for Google itself without a key, and what is wrong with URL, proxy or headers.
    pub fn new(options: Options) -> Result<Self, SetupError> {
        let endpoint = endpoint(&options.base_url)?;
        let is_own = endpoint.host.ends_with(".googleapis.com");
        if options.tokens.is_none() {
            endpoint.check_key(is_own, &options.provider, options.api_key.as_ref())?;
        }
        let authorization = match (&options.api_key, options.access) {
            (None, _) => None,
            (Some(key), Access::Key) => Some(header("x-goog-api-key", key.expose(), true)?),
            (Some(key), Access::Token) => Some(bearer(key)?),
        };
        Ok(Self {
            http: Http::new(&options.provider, options.http, options.api_key)?,
            info: ProviderInfo {
                provider: options.provider,
                model: options.model,
            },
            endpoint,
            authorization,
            tokens: options.tokens,
            lowers: AtomicBool::new(false),
        })
    }
}

impl Provider for Gemini {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn stream(&self, request: Request) -> BoxStream<'_, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            provider: self,
            lowers: self.lowers.load(Ordering::Relaxed),
            token: None,
            is_refused: false,
            request,
        };
        emit::stream(|mut out| async move { self.http.exchange(exchange, &mut out).await })
    }
}

struct Exchange<'a> {
    provider: &'a Gemini,
    lowers: bool,
    /// The access token of this request, where they come from a source.
    token: Option<ApiKey>,
    /// The service did not accept it. A second one that is refused ends the request.
    is_refused: bool,
    request: Request,
}

impl Protocol for Exchange<'_> {
    type Decoder = GeminiDecoder;

    const FRAMING: Framing = Framing::Sse;

    fn outgoing(&self) -> Outgoing {
        let model = &self.provider.info.model;
        let path = model.strip_prefix("models/").unwrap_or(model);
        let mut headers: Vec<_> = self.provider.authorization.iter().cloned().collect();
        headers.extend(self.token.as_ref().and_then(|token| bearer(token).ok()));
        Outgoing {
            url: self
                .provider
                .endpoint
                .at(&format!("models/{path}:streamGenerateContent?alt=sse")),
            headers,
            body: request::body(&self.request, path, self.lowers),
        }
    }

    fn decoder(&self) -> GeminiDecoder {
        GeminiDecoder::new(&self.provider.info.provider)
    }

    fn answer(&self) -> ResponseBuilder {
        ResponseBuilder::to(&self.request, &self.provider.info.provider)
    }

    async fn prepare(&mut self) -> Result<(), ProviderError> {
        let Some(tokens) = &self.provider.tokens else {
            return Ok(());
        };
        let refused = self.token.as_ref().filter(|_| self.is_refused);
        let unauthorized = |reason: String| {
            ProviderError::new(
                &self.provider.info.provider,
                ProviderErrorKind::Unauthorized,
                reason,
            )
        };
        let token = tokens.get(refused).await.map_err(unauthorized)?;
        bearer(&token).map_err(|error| unauthorized(error.to_string()))?;
        self.token = Some(token);
        Ok(())
    }

    fn secret(&self) -> Option<&ApiKey> {
        self.token.as_ref()
    }

    fn adapt(&mut self, error: &ProviderError) -> bool {
        let is_unauthorized = error.status == Some(401) && self.token.is_some();
        if is_unauthorized && !std::mem::replace(&mut self.is_refused, true) {
            return true;
        }
        let refuses =
            error.kind == ProviderErrorKind::InvalidRequest && error.message.contains("parametersJsonSchema");
        if self.lowers || !refuses {
            return false;
        }
        self.lowers = true;
        self.provider.lowers.store(true, Ordering::Relaxed);
        true
    }
}
