//! Names of providers and of tool call formats.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error as _};
use toolcell_core::suggest::nearest;

/// A model provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum ProviderName {
    /// OpenAI Chat Completions, or any compatible server.
    OpenAi,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini, from Google.
    Gemini,
    /// Gemini on Vertex AI, with an access token of Google Cloud.
    Vertex,
    /// Ollama's native API.
    Ollama,
    /// A model in a GGUF file on this machine.
    Local,
    /// Turns from a JSON file, for tests and demos.
    Scripted,
    /// No model: an offline stand-in that selects a tool by words of the prompt.
    Offline,
}

impl ProviderName {
    /// All providers.
    pub(crate) const ALL: [Self; 9] = [
        Self::OpenAi,
        Self::Responses,
        Self::Anthropic,
        Self::Gemini,
        Self::Vertex,
        Self::Ollama,
        Self::Local,
        Self::Scripted,
        Self::Offline,
    ];

    /// Returns the name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Vertex => "vertex",
            Self::Ollama => "ollama",
            Self::Local => "local",
            Self::Scripted => "scripted",
            Self::Offline => "offline",
        }
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProviderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(text, "provider", &Self::ALL.map(|name| (name.as_str(), name)))
    }
}

/// Format in which the model is told about tools, and calls them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub(crate) enum ToolCalls {
    /// Native tool calling of the provider.
    #[default]
    Native,
    /// Native tool calling; calls written as text are recognized too.
    Watch,
    /// In text, for models without tool calling: `<tool_call>{"name": …, "arguments": …}</tool_call>`.
    Hermes,
    /// In text: `TOOL_CALL: name` and `ARGUMENTS: {…}`.
    Labels,
    /// In text: `<tool>{"tool_name": …, "arguments": …}</tool>`.
    ToolTag,
    /// In text: `{"action": …, "params": …}`.
    Action,
}

impl ToolCalls {
    /// Every format.
    pub(crate) const ALL: [Self; 6] = [
        Self::Native,
        Self::Watch,
        Self::Hermes,
        Self::Labels,
        Self::ToolTag,
        Self::Action,
    ];

    /// Returns the name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Watch => "watch",
            Self::Hermes => "hermes",
            Self::Labels => "labels",
            Self::ToolTag => "tool-tag",
            Self::Action => "action",
        }
    }
}

impl fmt::Display for ToolCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ToolCalls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(
            text,
            "tool call format",
            &Self::ALL.map(|way| (way.as_str(), way)),
        )
    }
}

impl<'de> Deserialize<'de> for ToolCalls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ProviderName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// Finds a value by name, or returns an error with the nearest name.
fn named<T: Copy>(text: &str, what: &str, all: &[(&'static str, T)]) -> Result<T, String> {
    if let Some((_, found)) = all.iter().find(|(name, _)| *name == text) {
        return Ok(*found);
    }
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let text = text.escape_debug().to_string();
    Err(match nearest(&text, &known).first() {
        Some(near) => format!("there is no {what} `{text}`; did you mean `{near}`?"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("there is no {what} `{text}`; there are {}", known.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_agent::preset;

    #[test]
    fn providers_presets_and_call_formats_share_no_name() {
        let providers = ProviderName::ALL.map(ProviderName::as_str);
        let formats = ToolCalls::ALL.map(ToolCalls::as_str);
        let mut all = [&providers[..], &formats[..], &preset::NAMES[..]].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
    }
}
