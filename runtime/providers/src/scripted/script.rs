//! The format of a script.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use toolcell_core::ProviderError;
use toolcell_core::provider::{ProviderErrorKind, Request, StopReason, ToolChoice, Usage};

use super::check;
use crate::SetupError;

/// A script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Name of the model that it plays. Default: `script`.
    #[serde(default = "script")]
    pub model: String,
    /// Which step answers which request.
    #[serde(default)]
    pub position: Position,
    /// The steps, at least one.
    pub steps: Vec<Step>,
}

/// Which step answers which request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// The first request gets the first step, the second the second, and so on.
    #[default]
    Order,
    /// A request with `n` answers of the model in it gets step `n + 1`. So a session finds its place again in another
    /// process, and many sessions can share one provider.
    Conversation,
}

/// One answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// What the request must be like.
    pub expect: Expect,
    /// Pauses of retries before the answer, in milliseconds each.
    pub retries_ms: Vec<u64>,
    /// Reasoning.
    pub reasoning: String,
    /// Text.
    pub text: String,
    /// Calls.
    pub calls: Vec<ScriptedCall>,
    /// Characters of one piece of text, reasoning or arguments; 0, the default, sends each as one piece.
    pub chunk: usize,
    /// Pause before each piece, in milliseconds.
    pub delay_ms: u64,
    /// Fails after all of the above.
    pub error: Option<Failure>,
    /// Never ends after all of the above; only dropping the stream does.
    pub hang: bool,
    /// Why the answer ends.
    #[serde(deserialize_with = "stop_reason")]
    pub stop: StopReason,
    /// Tokens used.
    pub usage: Option<Usage>,
}

/// One call of a step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Identifier. Default: `call_S_N` for call N of the step that is the S-th answer of its conversation.
    #[serde(default)]
    pub id: Option<String>,
    /// Name of the tool; need not exist.
    pub name: String,
    /// An object, or a string that is sent as it stands and need not be JSON. Default: `{}`.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

/// An error in place of an end.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What can be done about it: `rate_limited`, `truncated`, …
    pub kind: ProviderErrorKind,
    /// What the provider says.
    #[serde(default)]
    pub message: String,
    /// The HTTP status.
    #[serde(default)]
    pub status: Option<u16>,
    /// How long it asks to wait, in milliseconds.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

/// What a request must be like. What is left out is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Stands in the last message of the person.
    pub user: Option<String>,
    /// Each stands in the result of the call at the same position, after the model's last answer; their number is equal.
    pub results: Option<Vec<String>>,
    /// Whether each of these results is an error.
    pub errors: Option<Vec<bool>>,
    /// Stands in the system prompt.
    pub instructions: Option<String>,
    /// The names of all tools offered, in order.
    pub tools: Option<Vec<String>>,
    /// The number of messages.
    pub messages: Option<usize>,
    /// Whether the model must, may or must not call.
    pub tool_choice: Option<ToolChoice>,
    /// None of these stands anywhere in the request.
    pub absent: Vec<String>,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// [`SetupError::Script`] with line and column.
    pub fn parse(text: &str) -> Result<Self, SetupError> {
        let refused = |reason: String| SetupError::Script { reason };
        let script: Self = serde_json::from_str(text).map_err(|e| refused(e.to_string()))?;
        if script.steps.is_empty() {
            return Err(refused("it has no steps".into()));
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
    /// A text in pieces of [`Step::chunk`] characters.
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

impl Failure {
    pub(super) fn error(&self) -> ProviderError {
        ProviderError {
            status: self.status,
            retry_after_ms: self.retry_after_ms,
            ..ProviderError::new("scripted", self.kind, self.message.clone())
        }
    }
}

impl Expect {
    /// Whether a request is as expected.
    ///
    /// # Errors
    /// The first thing that is not, in words.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        if let Some(wanted) = &self.user {
            contains(
                "the last message of the person",
                &check::last_user_text(request),
                wanted,
            )?;
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
                return Err(format!("`{found}` stands in the request"));
            }
        }
        Ok(())
    }
}

fn contains(what: &str, text: &str, wanted: &str) -> Result<(), String> {
    if text.contains(wanted) {
        Ok(())
    } else {
        Err(format!("{what} does not contain {wanted:?}; it is {text:?}"))
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {wanted:?} is expected and {found:?} was sent"))
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
