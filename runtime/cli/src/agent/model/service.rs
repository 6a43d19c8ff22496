//! Defaults of provider services: key variable, base URL, model.

use std::sync::Arc;

use toolcell_core::Provider;
use toolcell_providers::text_calls::{TextCalls, TextFormat};
use toolcell_providers::{anthropic, gemini, ollama, openai};

use super::vertex;
use crate::config::provider::{ProviderName, ToolCalls};

/// Variable with the key of OpenAI and compatible servers.
pub(super) const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// Default model of OpenAI.
const OPENAI_MODEL: &str = "gpt-5-mini";

/// Defaults of a provider that is accessed over a network.
pub(super) struct Service {
    /// Variable that usually contains the key.
    pub(super) key: &'static str,
    /// Base URL; `None` if it depends on other settings.
    pub(super) base_url: Option<&'static str>,
    /// Default model; `None` if it must be set.
    pub(super) model: Option<&'static str>,
}

impl Service {
    /// Returns the defaults of a provider, or `None` if it uses no network.
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

/// Wraps a provider with a tool call format.
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
