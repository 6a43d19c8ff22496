//! Ollama's native API (<https://github.com/ollama/ollama/blob/main/docs/api.md>): `POST /api/chat`, JSON lines.
//!
//! Unlike the compatible endpoints of the same server, it can set the length of the context, which is small by default
//! and beyond which a prompt is truncated silently.

mod request;
mod stream;

use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::Request;

use crate::framing::Framing;
use crate::http::{HttpProvider, Protocol};
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Chat {
    /// Length of the context, in tokens; `None` uses the server's default, which truncates longer prompts. Default: 16
    /// 384.
    pub context: Option<u64>,
    /// Time that the model stays loaded, such as `10m`; `None` uses the server's default.
    pub keep_alive: Option<String>,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            context: Some(16_384),
            keep_alive: None,
        }
    }
}

/// Support of thinking by a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thinking {
    /// As requested.
    Asked,
    /// The model does not support it.
    Unsupported,
}

impl Protocol for Chat {
    type Dialect = Thinking;
    type Decoder = OllamaDecoder;

    const FRAMING: Framing = Framing::Lines;
    const BASE_URL: &'static str = OLLAMA_BASE_URL;

    fn service(&self) -> &'static str {
        "ollama"
    }

    /// None: a local server needs no key, and the cloud service returns an error without one.
    fn is_own_host(_host: &str) -> bool {
        false
    }

    fn dialect(&self, _host: &str) -> Thinking {
        Thinking::Asked
    }

    fn path(&self, _model: &str) -> String {
        "api/chat".into()
    }

    fn body(&self, request: &Request, model: &str, thinking: Thinking) -> Value {
        request::body(request, model, thinking, self)
    }

    fn decoder(provider: &str) -> OllamaDecoder {
        OllamaDecoder::new(provider)
    }

    fn adapt(
        &self,
        thinking: Thinking,
        request: &Request,
        _body: &Value,
        error: &ProviderError,
    ) -> Option<Thinking> {
        let refuses = error.message.contains("does not support thinking");
        let was_asked = thinking == Thinking::Asked && request.reasoning_effort.is_some();
        (refuses && was_asked).then_some(Thinking::Unsupported)
    }
}
