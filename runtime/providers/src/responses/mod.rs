//! OpenAI Responses (<https://platform.openai.com/docs/api-reference/responses>), streamed.
//!
//! Conversations are kept by the client: nothing is stored at the provider (`store: false`), and reasoning is sent as
//! encrypted items together with the items that followed. Results may contain pictures and files.

mod request;
mod stream;

use serde_json::Value;
use toolcell_core::provider::Request;

use crate::SetupError;
use crate::fallback_text::is_picture;
use crate::framing::Framing;
use crate::http::{
    Dialect, Feature, Header, HttpProvider, OptionalPart, Protocol, STRICT_WORDS, Version, header,
};
use crate::openai::{OPENAI_BASE_URL, OPENAI_HOST, ToolSchemas};
use crate::response_builder::ResponseBuilder;
pub(crate) use stream::ResponsesDecoder;

/// Name under which opaque provider data is kept.
const WIRE: &str = "openai_responses";

/// Model behind the Responses endpoint.
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::responses::OpenAiResponses;
///
/// let model = OpenAiResponses::new(Connection::new("gpt-5-mini").with_key("the key"))?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
pub type OpenAiResponses = HttpProvider<Responses>;

/// The Responses protocol.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Responses {
    /// Header `OpenAI-Organization`.
    pub organization: Option<String>,
    /// Header `OpenAI-Project`.
    pub project: Option<String>,
    /// Form of tool schemas. Default: [`ToolSchemas::Loose`].
    pub tool_schemas: ToolSchemas,
}

impl Protocol for Responses {
    type Decoder = ResponsesDecoder;

    const FRAMING: Framing = Framing::Sse;
    const BASE_URL: &'static str = OPENAI_BASE_URL;
    const MODELS: &'static str = "models";
    const OPTIONAL: &'static [OptionalPart] = &[
        OptionalPart {
            feature: Feature::PastReasoning,
            label: "encrypted reasoning",
            fields: &["/include"],
            words: &["encrypted_content", "encrypted content", "of type 'reasoning'"],
        },
        OptionalPart {
            feature: Feature::CacheKey,
            label: "`prompt_cache_key`",
            fields: &["/prompt_cache_key"],
            words: &["prompt_cache_key"],
        },
        OptionalPart {
            feature: Feature::Strict,
            label: "strict schemas of tools",
            fields: &[],
            words: STRICT_WORDS,
        },
        OptionalPart {
            feature: Feature::ParallelCalls,
            label: "`parallel_tool_calls`",
            fields: &["/parallel_tool_calls"],
            words: &["parallel_tool_calls"],
        },
        OptionalPart {
            feature: Feature::Effort,
            label: "the reasoning effort",
            fields: &["/reasoning"],
            words: &[
                "reasoning.effort",
                "reasoning_effort",
                "reasoning.summary",
                "reasoning effort",
            ],
        },
        OptionalPart {
            feature: Feature::Temperature,
            label: "the temperature",
            fields: &["/temperature"],
            words: &["temperature"],
        },
        OptionalPart {
            feature: Feature::TopP,
            label: "`top_p`",
            fields: &["/top_p"],
            words: &["top_p"],
        },
        OptionalPart {
            feature: Feature::MaxTokens,
            label: "`max_output_tokens`",
            fields: &["/max_output_tokens"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::AnswerSchema,
            label: "a schema of the answer",
            fields: &["/text"],
            words: &["text.format", "json_schema"],
        },
        OptionalPart {
            feature: Feature::Pictures,
            label: "pictures",
            fields: &[],
            words: &[],
        },
    ];
    const OUTPUT_LIMITS: &'static [&'static str] = &["/max_output_tokens"];

    fn service(&self) -> &'static str {
        "responses"
    }

    fn is_own_host(host: &str) -> bool {
        host == OPENAI_HOST
    }

    fn version(&self) -> Version {
        Version::InBase("v1")
    }

    fn headers(&self) -> Result<Vec<Header>, SetupError> {
        [
            ("openai-organization", &self.organization),
            ("openai-project", &self.project),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some(header(name, value.as_deref()?, false)))
        .collect()
    }

    fn path(&self, _model: &str) -> String {
        "responses".into()
    }

    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value {
        request::body(request, model, dialect, self.tool_schemas)
    }

    fn sends(media_type: &str, _in_result: bool) -> bool {
        is_picture(media_type) || media_type == "application/pdf"
    }

    fn decoder(provider: &str) -> ResponsesDecoder {
        ResponsesDecoder::new(provider)
    }

    fn prepare(&self, answer: ResponseBuilder, request: &Request) -> ResponseBuilder {
        self.tool_schemas.answer(answer, request)
    }
}
