//! What the services of providers have by default: the variable of their key, their address, a model.

use std::sync::Arc;

use toolcell_core::Provider;
use toolcell_providers::text_calls::{TextCalls, TextFormat};
use toolcell_providers::{anthropic, gemini, ollama, openai};

use super::vertex;
use crate::config::provider::{ProviderName, ToolCalls};

/// The variable that holds the key of OpenAI, and of servers that speak its protocol.
pub(super) const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// A model at OpenAI that is asked when nobody names one.
const OPENAI_MODEL: &str = "gpt-5-mini";

/// What a provider that is reached over a network has by default.
pub(super) struct Service {
    /// The variable that usually holds the key.
    pub(super) key: &'static str,
    /// Its own address; `None` where that depends on more.
    pub(super) base_url: Option<&'static str>,
    /// The model that is asked there by default; `None` where it must be named.
    pub(super) model: Option<&'static str>,
}

impl Service {
    /// The defaults of a provider; `None` where nothing is reached over a network.
    pub(super) fn of(name: ProviderName) -> Option<Self> {
        let (key, base_url, model) = match name {
            ProviderName::OpenAi | ProviderName::Responses => {
                (OPENAI_KEY, Some(openai::OPENAI_BASE_URL), Some(OPENAI_MODEL))
            }
            ProviderName::Anthropic => ("ANTHROPIC_API_KEY", Some(anthropic::ANTHROPIC_BASE_URL), None),
            ProviderName::Gemini => ("GEMINI_API_KEY", Some(gemini::GEMINI_BASE_URL), None),
            ProviderName::Ollama => ("OLLAMA_API_KEY", Some(ollama::OLLAMA_BASE_URL), None),
            ProviderName::Vertex => (vertex::TOKEN, None, None),
            ProviderName::Scripted | ProviderName::Offline => return None,
        };
        Some(Self { key, base_url, model })
    }
}

/// A provider whose model calls tools in this way.
pub(super) fn calling(provider: Arc<dyn Provider>, way: ToolCalls) -> Arc<dyn Provider> {
    let format = match way {
        ToolCalls::Native => return provider,
        ToolCalls::Watch => return Arc::new(TextCalls::watching(provider)),
        ToolCalls::Hermes => TextFormat::Hermes,
        ToolCalls::Labels => TextFormat::Labels,
        ToolCalls::ToolTag => TextFormat::ToolTag,
        ToolCalls::Action => TextFormat::Action,
    };
    Arc::new(TextCalls::new(provider, format))
}
