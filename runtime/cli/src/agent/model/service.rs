//! Defaults of provider services: key variable, base URL, model.

use std::sync::Arc;

use toolcell_core::Provider;
use toolcell_providers::text_calls::{TextCalls, TextFormat};
use toolcell_providers::{HttpOptions, anthropic, gemini, ollama, openai};

use super::vertex;
use crate::config::provider::{ProviderName, ToolCalls};
use crate::config::units::Span;

/// Variable with the key of OpenAI and compatible servers.
pub(super) const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// Default model of OpenAI.
const OPENAI_MODEL: &str = "gpt-5-mini";

/// Defaults of a provider that is accessed over a network.
pub(super) struct Service {
    /// Variable that usually contains the key.
    pub(super) key: &'static str,
    /// Header that has the key.
    pub(super) key_header: &'static str,
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
            ProviderName::Local | ProviderName::Scripted | ProviderName::Offline => return None,
        };
        let key_header = match name {
            ProviderName::Anthropic => "x-api-key",
            ProviderName::Gemini => "x-goog-api-key",
            _ => "authorization",
        };
        Some(Self {
            key,
            key_header,
            base_url,
            model,
        })
    }
}

/// Returns the value that a setting of `[provider]` has for a provider if it is not set, or `None` if nothing is sent then.
pub(crate) fn default_of(name: ProviderName, key: &str) -> Option<String> {
    let service = Service::of(name)?;
    let http = HttpOptions::default();
    match key {
        "model" => service.model.map(str::to_owned),
        "base_url" => service.base_url.map(str::to_owned),
        "api_key_env" => Some(service.key.to_owned()),
        "tool_calls" => Some(ToolCalls::default().to_string()),
        "idle_timeout" => Some(Span(http.idle_timeout).to_string()),
        "retries" => Some(http.retry.retries.to_string()),
        _ => None,
    }
}

/// Returns the value that a setting of `[provider]` has for each provider over a network, if it is not set.
pub(crate) fn default_of_each(key: &str) -> Option<String> {
    let is_common = matches!(key, "tool_calls" | "idle_timeout" | "retries");
    default_of(ProviderName::OpenAi, key).filter(|_| is_common)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_that_of_the_provider_at_hand() {
        use ProviderName::{Anthropic, Ollama, OpenAi, Scripted};
        for (name, key, expected) in [
            (OpenAi, "idle_timeout", Some("5 min")),
            (OpenAi, "retries", Some("2")),
            (OpenAi, "model", Some(OPENAI_MODEL)),
            (OpenAi, "tool_calls", Some("native")),
            (Anthropic, "base_url", Some(anthropic::ANTHROPIC_BASE_URL)),
            (Anthropic, "model", None),
            (Ollama, "api_key_env", Some("OLLAMA_API_KEY")),
            // Nothing is sent.
            (OpenAi, "temperature", None),
            (OpenAi, "request_timeout", None),
            // No network.
            (Scripted, "idle_timeout", None),
        ] {
            assert_eq!(default_of(name, key).as_deref(), expected, "{name:?} {key}");
        }
    }
}
