//! Format of a script.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::{ProviderErrorKind, Request, StopReason, ToolChoice, Usage};

use super::check;
use crate::ScriptError;

/// Script of answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Name of the played model. Default: `script`.
    #[serde(default = "script")]
    pub model: String,
    /// Assignment of steps to requests.
    #[serde(default)]
    pub position: Position,
    /// Steps, at least one.
    pub steps: Vec<Step>,
}

/// Assignment of steps to requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// The n-th request gets the n-th step.
    #[default]
    Order,
    /// A request that contains `n` answers gets step `n + 1`, so that a session can continue in another process, and
    /// many sessions can share one provider.
    Conversation,
}

/// Answer of a script.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// Expectations on the request.
    pub expect: Expect,
    /// Retry pauses before the answer, in milliseconds each.
    pub retries_ms: Vec<u64>,
    /// Reasoning deltas, sent first.
    pub reasoning: String,
    /// Text, sent after the reasoning.
    pub text: String,
    /// Calls, sent after the text.
    pub calls: Vec<ScriptedCall>,
    /// Maximum characters of one delta; 0, the default, sends each text as one delta.
    pub chunk: usize,
    /// Pause before each delta, in milliseconds.
    pub delay_ms: u64,
    /// Failure after the content.
    pub error: Option<ScriptedError>,
    /// True to leave the stream open after the content, until it is dropped.
    pub hang: bool,
    /// Stop reason.
    #[serde(deserialize_with = "stop_reason")]
    pub stop: StopReason,
    /// Token usage.
    pub usage: Option<Usage>,
}

/// Call of a step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Identifier. Default: `call_S_N` for call N of the step that is the S-th answer of its conversation.
    #[serde(default)]
    pub id: Option<String>,
    /// Name of the tool; need not exist.
    pub name: String,
    /// An object, or a string that is sent unchanged and need not be JSON. Default: `{}`.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

/// Failure instead of a stop reason.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    /// Kind of the error: `rate_limited`, `truncated`, …
    pub kind: ProviderErrorKind,
    /// Message of the provider.
    #[serde(default)]
    pub message: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: Option<u16>,
    /// Requested wait, in milliseconds.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

/// Expectations on a request. Omitted ones are not checked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Substring of the user's last message.
    pub user: Option<String>,
    /// Substring of each result after the last answer, by position; their number must be equal.
    pub results: Option<Vec<String>>,
    /// True for each of these results that is an error.
    pub errors: Option<Vec<bool>>,
    /// Substring of the system prompt.
    pub instructions: Option<String>,
    /// Names of all offered tools, in order.
    pub tools: Option<Vec<String>>,
    /// Number of messages.
    pub messages: Option<usize>,
    /// Required tool choice.
    pub tool_choice: Option<ToolChoice>,
    /// Strings that must not occur in the request.
    pub absent: Vec<String>,
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    /// [`ScriptError::Json`] with line and column, or [`ScriptError::Empty`].
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = serde_json::from_str(text)?;
        if script.steps.is_empty() {
            return Err(ScriptError::Empty);
        }
        Ok(script)
    }
}

impl From<Vec<Step>> for Script {
    fn from(steps: Vec<Step>) -> Self {
        Self {
            model: script(),
            position: Position::default(),
            steps,
        }
    }
}

impl Step {
    /// Splits a text into deltas of [`Step::chunk`] characters.
    pub(super) fn pieces(&self, text: &str) -> Vec<String> {
        if self.chunk == 0 {
            return vec![text.to_owned()];
        }
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(self.chunk).map(String::from_iter).collect()
    }

    pub(super) async fn pause(&self) {
        if self.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.delay_ms)).await;
        }
    }
}

impl ScriptedCall {
    pub(super) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

impl ScriptedError {
    pub(super) fn error(&self) -> ProviderError {
        ProviderError {
            status: self.status,
            retry_after_ms: self.retry_after_ms,
            ..ProviderError::new("scripted", self.kind, self.message.clone())
        }
    }
}

impl Expect {
    /// Checks a request against the expectations.
    ///
    /// # Errors
    /// Description of the first mismatch.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        if let Some(wanted) = &self.user {
            contains("the last user message", &check::last_user_text(request), wanted)?;
        }
        if let Some(wanted) = &self.instructions {
            contains("the system prompt", &request.instructions, wanted)?;
        }
        let results = check::last_results(request);
        if let Some(wanted) = &self.results {
            equal("the number of results", &results.len(), &wanted.len())?;
            for ((text, _), wanted) in results.iter().zip(wanted) {
                contains("a result", text, wanted)?;
            }
        }
        if let Some(wanted) = &self.errors {
            let errors: Vec<bool> = results.iter().map(|(_, is_error)| *is_error).collect();
            equal("which results are errors", &errors, wanted)?;
        }
        if let Some(wanted) = &self.tools {
            let names: Vec<String> = request.tools.iter().map(|t| t.name.to_string()).collect();
            equal("the tools", &names, wanted)?;
        }
        if let Some(wanted) = &self.messages {
            equal("the number of messages", &request.messages.len(), wanted)?;
        }
        if let Some(wanted) = &self.tool_choice {
            equal("the choice of tools", &request.tool_choice, wanted)?;
        }
        if !self.absent.is_empty() {
            let everything = format!("{request:?}");
            if let Some(found) = self.absent.iter().find(|text| everything.contains(*text)) {
                return Err(format!("`{found}` occurs in the request"));
            }
        }
        Ok(())
    }
}

fn contains(what: &str, text: &str, wanted: &str) -> Result<(), String> {
    if text.contains(wanted) {
        Ok(())
    } else {
        Err(format!("{what} does not contain {wanted:?}: {text:?}"))
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{what}: expected {wanted:?}, got {found:?}"))
    }
}

fn stop_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StopReason, D::Error> {
    Ok(match String::deserialize(deserializer)?.as_str() {
        "complete" => StopReason::Complete,
        "max_tokens" => StopReason::MaxTokens,
        "refused" => StopReason::Refused,
        "paused" => StopReason::Paused,
        other => StopReason::Other(other.to_owned()),
    })
}

fn script() -> String {
    "script".into()
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}
