//! Anthropic Messages (<https://docs.anthropic.com/en/api/messages>), streamed.
//!
//! Thinking blocks are sent back unchanged and in order, as the API requires within a turn with tools. Tools, system
//! prompt and conversation end with cache breakpoints, so that each step of a loop pays only for its new part.

mod request;
mod stream;

use serde_json::Value;
use toolcell_core::provider::Request;

use crate::fallback_text::is_picture;
use crate::framing::Framing;
use crate::http::{Dialect, Feature, Header, HttpProvider, OptionalPart, Protocol, Version, header};
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
    type Decoder = MessagesDecoder;

    const FRAMING: Framing = Framing::Sse;
    const BASE_URL: &'static str = ANTHROPIC_BASE_URL;
    const MODELS: &'static str = "models?limit=1000";
    const OPTIONAL: &'static [OptionalPart] = &[
        OptionalPart {
            feature: Feature::PastReasoning,
            label: "the reasoning of earlier answers",
            fields: &[],
            words: &["invalid `signature`", "invalid signature"],
        },
        OptionalPart {
            feature: Feature::Effort,
            label: "the reasoning effort",
            fields: &["/thinking", "/output_config/effort"],
            words: &[
                "adaptive thinking",
                "not support thinking",
                "thinking is not supported",
                "thinking.type",
                "effort",
                "thinking.adaptive",
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
            feature: Feature::Stop,
            label: "`stop`",
            fields: &["/stop_sequences"],
            words: &["stop_sequences"],
        },
        OptionalPart {
            feature: Feature::AnswerSchema,
            label: "a schema of the answer",
            fields: &["/output_config/format"],
            words: &["output_config", "output_format", "json_schema"],
        },
        OptionalPart {
            feature: Feature::ParallelCalls,
            label: "`disable_parallel_tool_use`",
            fields: &["/tool_choice/disable_parallel_tool_use"],
            words: &["disable_parallel_tool_use"],
        },
        OptionalPart {
            feature: Feature::CacheControl,
            label: "cache breakpoints",
            fields: &[],
            words: &["cache_control"],
        },
        OptionalPart {
            feature: Feature::Pictures,
            label: "pictures",
            fields: &[],
            words: &[],
        },
    ];
    const OUTPUT_LIMITS: &'static [&'static str] = &["/max_tokens"];

    fn service(&self) -> &'static str {
        "anthropic"
    }

    fn is_own_host(host: &str) -> bool {
        host == "api.anthropic.com"
    }

    fn version(&self) -> Version {
        Version::InPath("v1")
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
        "messages".into()
    }

    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value {
        let cache = self.cache.filter(|_| dialect.takes(Feature::CacheControl));
        request::body(request, model, dialect, self.max_output_tokens, cache)
    }

    fn sends(media_type: &str, _in_result: bool) -> bool {
        is_picture(media_type) || media_type == "application/pdf"
    }

    fn decoder(provider: &str) -> MessagesDecoder {
        MessagesDecoder::new(provider)
    }
}
