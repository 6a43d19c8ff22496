//! Ollama's native API (<https://github.com/ollama/ollama/blob/main/docs/api.md>): `POST /api/chat`, JSON lines.
//!
//! Unlike the compatible endpoints of the same server, it can set the length of the context, which is small by default
//! and beyond which the server would cut a prompt silently. The length follows the conversation and the model,
//! and the server is told to refuse what does not fit.

mod context;
mod request;
mod stream;

use serde_json::{Value, json};
use toolcell_core::provider::{Request, Usage};

use crate::fallback_text::is_picture;
use crate::framing::Framing;
use crate::http::{Dialect, Feature, HttpProvider, OptionalPart, Protocol, Version};
pub(crate) use stream::OllamaDecoder;

/// Base URL of a local server.
pub const OLLAMA_BASE_URL: &str = "http://localhost:11434";

/// Name under which opaque provider data is kept.
const WIRE: &str = "ollama";

/// Model behind an Ollama server.
///
/// ```
/// use toolcell_providers::Connection;
/// use toolcell_providers::ollama::{Chat, Ollama};
///
/// let mut chat = Chat::default();
/// chat.context = Some(32_768);
/// let model = Ollama::with(Connection::new("qwen3"), chat)?;
/// # Ok::<(), toolcell_providers::SetupError>(())
/// ```
pub type Ollama = HttpProvider<Chat>;

/// Chat protocol of Ollama.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Chat {
    /// Length of the context, in tokens; `None` follows the conversation, up to what the model supports. Default: `None`.
    pub context: Option<u64>,
    /// Time that the model stays loaded, such as `10m`; `None` uses the server's default.
    pub keep_alive: Option<String>,
}

impl Protocol for Chat {
    type Decoder = OllamaDecoder;

    const FRAMING: Framing = Framing::Lines;
    const BASE_URL: &'static str = OLLAMA_BASE_URL;
    const MODELS: &'static str = "api/tags";
    const OPTIONAL: &'static [OptionalPart] = &[
        OptionalPart {
            feature: Feature::Effort,
            label: "the reasoning effort",
            fields: &["/think"],
            words: &["not support thinking", "think value"],
        },
        OptionalPart {
            feature: Feature::Temperature,
            label: "the temperature",
            fields: &["/options/temperature"],
            words: &["temperature"],
        },
        OptionalPart {
            feature: Feature::TopP,
            label: "`top_p`",
            fields: &["/options/top_p"],
            words: &["top_p"],
        },
        OptionalPart {
            feature: Feature::Stop,
            label: "`stop`",
            fields: &["/options/stop"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::Seed,
            label: "`seed`",
            fields: &["/options/seed"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::AnswerSchema,
            label: "a schema of the answer",
            fields: &["/format"],
            words: &[],
        },
        OptionalPart {
            feature: Feature::Pictures,
            label: "pictures",
            fields: &[],
            words: &[],
        },
    ];
    const OUTPUT_LIMITS: &'static [&'static str] = &[];

    fn service(&self) -> &'static str {
        "ollama"
    }

    /// None: a local server needs no key, and the cloud service returns an error without one.
    fn is_own_host(_host: &str) -> bool {
        false
    }

    fn version(&self) -> Version {
        Version::None
    }

    fn path(&self, _model: &str) -> String {
        "api/chat".into()
    }

    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value {
        let context = self.context.or(dialect.context).unwrap_or(context::SHORTEST);
        request::body(request, model, context, self.keep_alive.as_deref())
    }

    fn lookup(&self, request: &Request, model: &str, dialect: Dialect) -> Option<(&'static str, Value)> {
        let is_needed = self.context.is_none() && dialect.model_context.is_none();
        let is_long = || context::tokens(&self.body(request, model, dialect)) > context::LOOKUP;
        (is_needed && is_long()).then(|| ("api/show", json!({"model": model})))
    }

    fn looked_up(&self, mut dialect: Dialect, answer: Option<&Value>) -> Dialect {
        dialect.model_context = Some(answer.and_then(context::of_model));
        dialect
    }

    fn fit(&self, request: &Request, model: &str, mut dialect: Dialect) -> Result<Dialect, String> {
        let tokens = context::tokens(&self.body(request, model, dialect));
        let context = match self.context {
            Some(context) => context,
            None => context::fitting(tokens, request.max_output_tokens, dialect),
        };
        context::check(tokens, context)?;
        dialect.context = Some(context);
        Ok(dialect)
    }

    fn notice_after(&self, usage: Option<&Usage>, dialect: Dialect) -> Option<String> {
        let context = self.context.or(dialect.context)?;
        // A prompt that was cut fills the context to its last token; one that fits leaves room for an answer.
        (usage?.input >= context).then(|| {
            format!(
                "the prompt filled the context of {context} tokens: the server probably cut its beginning; a longer context \
                 is set by `num_ctx`"
            )
        })
    }

    fn longer(&self, mut dialect: Dialect) -> Option<Dialect> {
        let longer = context::longer(dialect).filter(|_| self.context.is_none())?;
        dialect.context = Some(longer);
        Some(dialect)
    }

    fn sends(media_type: &str, _in_result: bool) -> bool {
        is_picture(media_type)
    }

    fn decoder(provider: &str) -> OllamaDecoder {
        OllamaDecoder::new(provider)
    }
}
