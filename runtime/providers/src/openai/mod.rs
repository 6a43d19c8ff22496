//! Chat Completions (<https://platform.openai.com/docs/api-reference/chat>), streamed: OpenAI and compatible servers,
//! such as Ollama, vLLM, llama.cpp, LM Studio, SGLang, LiteLLM, OpenRouter and Groq.
//!
//! Requests use the common subset of servers; fields that a server refuses (`stream_options`, `parallel_tool_calls`, …)
//! are omitted from then on, and variants of answers are decoded.

mod request;
mod schemas;
mod stream;

use serde_json::Value;
use toolcell_core::provider::Request;

use crate::fallback_text::is_picture;
use crate::framing::Framing;
use crate::http::{Dialect, Feature, HttpProvider, OptionalPart, Protocol, STRICT_WORDS, Version};
use crate::response_builder::ResponseBuilder;
pub use schemas::ToolSchemas;
pub(crate) use schemas::answer_schema;
pub(crate) use stream::ChatDecoder;

/// Base URL of OpenAI.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// Host of OpenAI.
pub(crate) const OPENAI_HOST: &str = "api.openai.com";

/// Name under which opaque provider data is kept.
const WIRE: &str = "openai_chat";

/// Model behind a Chat Completions endpoint.
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::openai::OpenAi;
///
/// let model = OpenAi::new(Connection::new("llama3.2").with_base_url("http://localhost:11434/v1"))?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
pub type OpenAi = HttpProvider<ChatCompletions>;

/// The Chat Completions protocol.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ChatCompletions {
    /// Form of tool schemas. Default: [`ToolSchemas::Loose`].
    pub tool_schemas: ToolSchemas,
}

impl Protocol for ChatCompletions {
    type Decoder = ChatDecoder;

    const FRAMING: Framing = Framing::Sse;
    const BASE_URL: &'static str = OPENAI_BASE_URL;
    const MODELS: &'static str = "models";
    const OPTIONAL: &'static [OptionalPart] = &[
        OptionalPart {
            feature: Feature::StreamOptions,
            label: "`stream_options`",
            fields: &["/stream_options"],
            words: &["stream_options", "include_usage"],
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
            feature: Feature::CompletionTokens,
            label: "`max_completion_tokens`",
            fields: &["/max_completion_tokens"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::MaxTokens,
            label: "`max_tokens`",
            fields: &["/max_tokens"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::CacheKey,
            label: "`prompt_cache_key`",
            fields: &["/prompt_cache_key"],
            words: &["prompt_cache_key"],
        },
        OptionalPart {
            feature: Feature::Effort,
            label: "the reasoning effort",
            fields: &["/reasoning_effort"],
            words: &["reasoning_effort", "reasoning effort"],
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
            feature: Feature::Stop,
            label: "`stop`",
            fields: &["/stop"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::Seed,
            label: "`seed`",
            fields: &["/seed"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::AnswerSchema,
            label: "a schema of the answer",
            fields: &["/response_format"],
            words: &["response_format", "json_schema"],
        },
        OptionalPart {
            feature: Feature::Pictures,
            label: "pictures",
            fields: &[],
            words: &[],
        },
    ];
    const OUTPUT_LIMITS: &'static [&'static str] = &["/max_completion_tokens", "/max_tokens"];

    fn service(&self) -> &'static str {
        "openai"
    }

    fn is_own_host(host: &str) -> bool {
        host == OPENAI_HOST
    }

    fn version(&self) -> Version {
        Version::InBase("v1")
    }

    fn path(&self, _model: &str) -> String {
        "chat/completions".into()
    }

    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value {
        request::body(request, model, dialect, self.tool_schemas)
    }

    fn sends(media_type: &str, in_result: bool) -> bool {
        let is_document = matches!(media_type, "application/pdf" | "audio/wav" | "audio/mpeg");
        is_picture(media_type) || (is_document && !in_result)
    }

    fn decoder(provider: &str) -> ChatDecoder {
        ChatDecoder::new(provider)
    }

    fn prepare(&self, answer: ResponseBuilder, request: &Request) -> ResponseBuilder {
        self.tool_schemas.answer(answer, request)
    }
}
