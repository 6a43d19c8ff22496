//! Gemini `generateContent` (<https://ai.google.dev/api/generate-content>), streamed, at the Gemini API and on Vertex AI.
//!
//! Thought signatures are kept with their calls and sent back with them, as required by models that reason between
//! calls.

mod request;
mod stream;

use serde_json::Value;
use toolcell_core::provider::Request;

use crate::framing::Framing;
use crate::http::{Dialect, Feature, Header, HttpProvider, OptionalPart, Protocol, Version, bearer, header};
use crate::{ApiKey, SetupError};
pub(crate) use stream::GeminiDecoder;

/// Base URL of the Gemini API.
pub const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// Name under which opaque provider data is kept.
const WIRE: &str = "gemini";

/// Model behind a `generateContent` endpoint.
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::gemini::{Gemini, GenerateContent, vertex_base_url};
///
/// let vertex = Connection::new("gemini-2.5-flash")
///     .with_base_url(vertex_base_url("my-project", "europe-west4"))
///     .with_key("an access token");
/// let model = Gemini::with(vertex, GenerateContent::vertex())?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
pub type Gemini = HttpProvider<GenerateContent>;

/// The `generateContent` protocol.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct GenerateContent {
    /// Authorization of requests. Default: [`Access::Key`].
    pub access: Access,
}

/// Authorization of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// API key in `x-goog-api-key`: the Gemini API.
    Key,
    /// OAuth access token in `Authorization: Bearer`: Vertex AI.
    Token,
}

/// Base URL of Vertex AI for a project and a location, such as `europe-west4` or `global`.
pub fn vertex_base_url(project: &str, location: &str) -> String {
    let host = match location {
        "global" => "aiplatform.googleapis.com".to_owned(),
        regional => format!("{regional}-aiplatform.googleapis.com"),
    };
    format!("https://{host}/v1/projects/{project}/locations/{location}/publishers/google")
}

impl GenerateContent {
    /// The protocol of Vertex AI, at a [`vertex_base_url`]. The key is an access token, which is valid for an hour;
    /// [`Connection::tokens`](crate::Connection::tokens) renews it.
    pub fn vertex() -> Self {
        Self {
            access: Access::Token,
        }
    }
}

impl Default for GenerateContent {
    fn default() -> Self {
        Self { access: Access::Key }
    }
}

/// Name of a model in a path.
fn without_folder(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

impl Protocol for GenerateContent {
    type Decoder = GeminiDecoder;

    const FRAMING: Framing = Framing::Sse;
    const BASE_URL: &'static str = GEMINI_BASE_URL;
    const MODELS: &'static str = "models?pageSize=1000";
    const OPTIONAL: &'static [OptionalPart] = &[
        OptionalPart {
            feature: Feature::JsonSchemas,
            label: "`parametersJsonSchema`",
            fields: &[],
            words: &["parametersjsonschema"],
        },
        OptionalPart {
            feature: Feature::Effort,
            label: "the reasoning effort",
            fields: &["/generationConfig/thinkingConfig"],
            words: &[
                "thinking",
                "thinkinglevel",
                "thinking_level",
                "thinkingbudget",
                "thinking_budget",
            ],
        },
        OptionalPart {
            feature: Feature::AnswerSchema,
            label: "a schema of the answer",
            fields: &[
                "/generationConfig/responseMimeType",
                "/generationConfig/responseJsonSchema",
            ],
            words: &[
                "response mime type",
                "responsejsonschema",
                "json mode is not enabled",
            ],
        },
        OptionalPart {
            feature: Feature::Temperature,
            label: "the temperature",
            fields: &["/generationConfig/temperature"],
            words: &["temperature"],
        },
        OptionalPart {
            feature: Feature::TopP,
            label: "`top_p`",
            fields: &["/generationConfig/topP"],
            words: &["topp", "top_p"],
        },
        OptionalPart {
            feature: Feature::Stop,
            label: "`stop`",
            fields: &["/generationConfig/stopSequences"],
            words: &["stop_sequences", "stop sequences"],
        },
        OptionalPart {
            feature: Feature::Seed,
            label: "`seed`",
            fields: &["/generationConfig/seed"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::Pictures,
            label: "pictures",
            fields: &[],
            words: &[],
        },
    ];
    const OUTPUT_LIMITS: &'static [&'static str] = &["/generationConfig/maxOutputTokens"];

    fn service(&self) -> &'static str {
        match self.access {
            Access::Key => "gemini",
            Access::Token => "vertex",
        }
    }

    fn is_own_host(host: &str) -> bool {
        host.ends_with(".googleapis.com")
    }

    fn version(&self) -> Version {
        Version::InBase("v1beta")
    }

    fn authorization(&self, key: &ApiKey) -> Result<Header, SetupError> {
        match self.access {
            Access::Key => header("x-goog-api-key", key.expose(), true),
            Access::Token => bearer(key),
        }
    }

    fn path(&self, model: &str) -> String {
        let model = without_folder(model);
        format!("models/{model}:streamGenerateContent?alt=sse")
    }

    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value {
        request::body(request, without_folder(model), dialect)
    }

    fn sends(media_type: &str, _in_result: bool) -> bool {
        request::takes(media_type)
    }

    fn decoder(provider: &str) -> GeminiDecoder {
        GeminiDecoder::new(provider)
    }
}
