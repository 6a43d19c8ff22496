//! The kinds of providers and the ways of calling tools, by the names that people write.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Error as _};

use crate::ui::suggest::nearest;

/// The kinds of providers, by the names that people write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum ProviderName {
    /// OpenAI, or any server that speaks its Chat Completions.
    OpenAi,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini, from Google.
    Gemini,
    /// Gemini on Vertex AI, with an access token of Google Cloud.
    Vertex,
    /// Ollama's own wire.
    Ollama,
    /// Turns from a JSON file, for tests and demonstrations.
    Scripted,
    /// No model: a small stand-in that matches words of the request with the tools.
    Offline,
}

impl ProviderName {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::OpenAi,
        Self::Responses,
        Self::Anthropic,
        Self::Gemini,
        Self::Vertex,
        Self::Ollama,
        Self::Scripted,
        Self::Offline,
    ];

    /// The name, as people write it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Vertex => "vertex",
            Self::Ollama => "ollama",
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

/// How the model is told of tools, and how it calls them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub(crate) enum ToolCalls {
    /// As the provider does it.
    #[default]
    Native,
    /// As the provider does it; calls that come as text all the same are read as well.
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
    const ALL: [Self; 6] = [
        Self::Native,
        Self::Watch,
        Self::Hermes,
        Self::Labels,
        Self::ToolTag,
        Self::Action,
    ];

    /// The name in the configuration and on the command line.
    fn as_str(self) -> &'static str {
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
            "way of calling tools",
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

/// The one of that name, or what to say to whoever wrote another one.
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
