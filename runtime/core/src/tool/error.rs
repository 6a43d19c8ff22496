//! Why a call has no answer, sorted by what the receiver can do about it.

use serde::{Deserialize, Serialize};

/// Why a call has no answer.
///
/// All cases but [`ToolError::Host`] are values for the model: the loop turns them into a tool result and goes on. A
/// `Host` error is ours, not the tool's, and ends the run.
///
/// [`ToolError::for_model`] holds every word that a model reads of an error; it never contains a configuration line.
/// [`ToolError::hint`] is for people and may.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments do not fit the schema, or the tool says that they make no sense. Other arguments may help.
    #[error("the arguments were not accepted: {message}")]
    InvalidArguments {
        /// What is wrong and where.
        message: String,
    },
    /// There is no such tool.
    #[error("there is no tool `{name}`")]
    UnknownTool {
        /// The name that was asked for.
        name: String,
        /// Names of tools that look like it, best first, at most three.
        near: Vec<String>,
    },
    /// The policy, a hook or a person does not allow it. Calling again does not help.
    #[error("not allowed: {message}")]
    Denied {
        /// What was refused, in words for the model.
        message: String,
        /// For people: the configuration that would allow it. Never shown to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// A system outside did not answer or asked to wait. The same call may work later.
    #[error("not available at the moment: {message}")]
    Unavailable {
        /// What did not answer.
        message: String,
    },
    /// The tool did its work and the result is a failure.
    #[error("{message}")]
    Failed {
        /// What the tool says.
        message: String,
    },
    /// A limit of the policy ended the call.
    #[error("stopped by a limit: {limit}")]
    Limit {
        /// Which limit, with its value.
        limit: Limit,
    },
    /// The tool broke: a trap, or data that breaks the rules of the component model.
    #[error("the tool crashed: {cause}")]
    Crashed {
        /// The cause in the engine's words, one line.
        cause: String,
    },
    /// The call was cancelled before it ended.
    #[error("the call was cancelled")]
    Cancelled,
    /// Something broke in the host. Only this ends a run.
    #[error("internal error of the host: {message}")]
    Host {
        /// The chain of causes.
        message: String,
    },
}

/// A limit that ended a call, with the value that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "limit", content = "value", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// Units of fuel; one is about one WebAssembly instruction.
    Fuel(u64),
    /// Wall time, in milliseconds.
    WallTimeMs(u64),
    /// Bytes of memory: linear memories, tables, and what the host holds for the call.
    Memory(u64),
    /// Elements of all tables together.
    TableElements(u64),
    /// Core instances, memories or tables of one call.
    Instances(u64),
    /// Handles to resources that a guest holds.
    Handles(u64),
    /// Bytes of an answer, and of all data that passes between host and guest in one host call.
    Output(u64),
    /// Bytes of WebAssembly stack.
    Stack(u64),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Fuel(n) => write!(f, "{n} units of fuel used up"),
            Self::WallTimeMs(n) => write!(f, "not finished after {n} ms"),
            Self::Memory(n) => write!(f, "more than {n} bytes of memory"),
            Self::TableElements(n) => write!(f, "more than {n} table elements"),
            Self::Instances(n) => write!(f, "more than {n} instances, memories or tables"),
            Self::Handles(n) => write!(f, "more than {n} handles"),
            Self::Output(n) => write!(f, "more than {n} bytes of output"),
            Self::Stack(n) => write!(f, "recursion deeper than a stack of {n} bytes"),
        }
    }
}

impl ToolError {
    /// Arguments that cannot be used.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArguments {
            message: message.into(),
        }
    }

    /// A refusal; `hint` is for people only.
    pub fn denied(message: impl Into<String>, hint: Option<String>) -> Self {
        Self::Denied {
            message: message.into(),
            hint,
        }
    }

    /// A failure of ours, with its chain of causes.
    pub fn host(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::Host { message }
    }

    /// A short word for logs, JSON and metrics: `invalid_arguments`, `denied`, …
    pub fn kind(&self) -> &'static str {
        match self {
            Self::InvalidArguments { .. } => "invalid_arguments",
            Self::UnknownTool { .. } => "unknown_tool",
            Self::Denied { .. } => "denied",
            Self::Unavailable { .. } => "unavailable",
            Self::Failed { .. } => "failed",
            Self::Limit { .. } => "limit",
            Self::Crashed { .. } => "crashed",
            Self::Cancelled => "cancelled",
            Self::Host { .. } => "host",
        }
    }

    /// Every word that a model reads of this error.
    ///
    /// It says what happened and what may help, and never how to widen a grant.
    pub fn for_model(&self) -> String {
        match self {
            Self::InvalidArguments { message } => {
                format!("Error: the arguments were not accepted: {message}. Correct them and call again.")
            }
            Self::UnknownTool { name, near } if near.is_empty() => {
                format!("Error: there is no tool `{name}`. Use only the tools that are listed.")
            }
            Self::UnknownTool { name, near } => {
                let names: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
                format!(
                    "Error: there is no tool `{name}`. Similar names: {}.",
                    names.join(", ")
                )
            }
            Self::Denied { message, .. } => {
                format!("Error: not allowed: {message}. Calling again does not help; go on without it.")
            }
            Self::Unavailable { message } => {
                format!("Error: not available at the moment: {message}. The same call may work later.")
            }
            Self::Failed { message } => format!("Error: {message}"),
            Self::Limit { limit } => {
                format!("Error: the tool was stopped by a limit: {limit}. Ask it for less at once.")
            }
            Self::Crashed { cause } => {
                format!("Error: the tool crashed ({cause}). The same arguments will crash it again.")
            }
            Self::Cancelled => {
                "Error: the call was cancelled before it ended; its effects are unknown.".into()
            }
            Self::Host { .. } => "Error: the tool could not be run because of an internal error.".into(),
        }
    }

    /// For people: what would allow it, if that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Denied { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(near: &[&str]) -> ToolError {
        ToolError::UnknownTool {
            name: "raed".into(),
            near: near.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn each_error_has_its_kind_and_words_for_the_model() {
        let message = || "why".to_owned();
        for (error, kind, words) in [
            (
                ToolError::invalid("why"),
                "invalid_arguments",
                "Error: the arguments were not accepted: why. Correct them and call again.",
            ),
            (
                unknown(&[]),
                "unknown_tool",
                "Error: there is no tool `raed`. Use only the tools that are listed.",
            ),
            (
                unknown(&["read", "red"]),
                "unknown_tool",
                "Error: there is no tool `raed`. Similar names: `read`, `red`.",
            ),
            (
                ToolError::denied("why", Some("add read=x".into())),
                "denied",
                "Error: not allowed: why. Calling again does not help; go on without it.",
            ),
            (
                ToolError::Unavailable { message: message() },
                "unavailable",
                "Error: not available at the moment: why. The same call may work later.",
            ),
            (ToolError::Failed { message: message() }, "failed", "Error: why"),
            (
                ToolError::Limit {
                    limit: Limit::Memory(5),
                },
                "limit",
                "Error: the tool was stopped by a limit: more than 5 bytes of memory. Ask it for less at once.",
            ),
            (
                ToolError::Crashed { cause: message() },
                "crashed",
                "Error: the tool crashed (why). The same arguments will crash it again.",
            ),
            (
                ToolError::Cancelled,
                "cancelled",
                "Error: the call was cancelled before it ended; its effects are unknown.",
            ),
            (
                ToolError::Host { message: message() },
                "host",
                "Error: the tool could not be run because of an internal error.",
            ),
        ] {
            assert_eq!((error.kind(), error.for_model().as_str()), (kind, words));
        }
    }

    #[test]
    fn only_a_denial_carries_a_hint() {
        let hint = Some("add read=x".to_owned());
        assert_eq!(ToolError::denied("why", hint).hint(), Some("add read=x"));
        assert_eq!(ToolError::denied("why", None).hint(), None);
        assert_eq!(ToolError::invalid("why").hint(), None);
    }
}
