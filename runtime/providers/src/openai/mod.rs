//! Chat Completions (<https://platform.openai.com/docs/api-reference/chat>), streamed: OpenAI and compatible servers,
//! such as Ollama, vLLM, llama.cpp, LM Studio, SGLang, LiteLLM, OpenRouter and Groq.
//!
//! Requests use the common subset of servers; fields that a server refuses (`stream_options`, `parallel_tool_calls`, …)
//! are omitted from then on, and variants of answers are decoded.

mod request;
mod schemas;
mod stream;

use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::Request;

use crate::framing::Framing;
use crate::http::{HttpProvider, Protocol};
use crate::response_builder::ResponseBuilder;
use request::Dialect;
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
    type Dialect = Dialect;
    type Decoder = ChatDecoder;

    const FRAMING: Framing = Framing::Sse;
    const BASE_URL: &'static str = OPENAI_BASE_URL;

    fn service(&self) -> &'static str {
        "openai"
    }

    fn is_own_host(host: &str) -> bool {
        host == OPENAI_HOST
    }

    fn dialect(&self, host: &str) -> Dialect {
        Dialect::of_server(host == OPENAI_HOST)
    }

    fn path(&self, _model: &str) -> String {
        "chat/completions".into()
    }

    fn body(&self, request: &Request, model: &str, dialect: Dialect) -> Value {
        request::body(request, model, dialect, self.tool_schemas)
    }

    fn decoder(provider: &str) -> ChatDecoder {
        ChatDecoder::new(provider)
    }

    fn prepare(&self, answer: ResponseBuilder, request: &Request) -> ResponseBuilder {
        self.tool_schemas.answer(answer, request)
    }

    fn adapt(
        &self,
        dialect: Dialect,
        _request: &Request,
        body: &Value,
        error: &ProviderError,
    ) -> Option<Dialect> {
        dialect.without_what(&error.message, body)
    }
}
