//! Errors of calls, grouped by what the receiver can do about them.

use serde::{Deserialize, Serialize};

use crate::units;

/// Error of a call.
///
/// All variants but [`ToolError::Host`] are results for the model: the loop converts them into a tool result and
/// continues. A `Host` error is an internal error and ends the run.
///
/// [`ToolError::for_model`] is the only text of an error that a model reads; it never contains a configuration line.
/// [`ToolError::hint`] is for the user and may contain one.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments do not match the schema, or the tool rejects them. Other arguments may succeed.
    #[error("the arguments were not accepted: {message}")]
    InvalidArguments {
        /// Reason and location.
        message: String,
    },
    /// The tool does not exist.
    #[error("there is no tool `{name}`")]
    UnknownTool {
        /// Requested name.
        name: String,
        /// Similar names of existing tools, best first, at most three.
        near: Vec<String>,
    },
    /// Denied by the policy, a hook or the user. Repeating the call does not help.
    #[error("not allowed: {message}")]
    Denied {
        /// Denied operation, in words for the model.
        message: String,
        /// Configuration that would allow the call, for the user. Never shown to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// An external system did not answer or requested a delay. The same call may succeed later.
    #[error("not available at the moment: {message}")]
    Unavailable {
        /// Description of the unavailable system.
        message: String,
    },
    /// The tool ran and reports a failure.
    #[error("{message}")]
    Failed {
        /// Message of the tool.
        message: String,
    },
    /// A limit of the policy ended the call.
    #[error("stopped by a limit: {limit}")]
    Limit {
        /// The exceeded limit and its value.
        limit: Limit,
    },
    /// The tool crashed: a trap, or a violation of the component model.
    #[error("the tool crashed: {cause}{}", after(.output.as_deref()))]
    Crashed {
        /// Cause reported by the engine, one line.
        cause: String,
        /// Last message on standard error, one line: that of an exception which the tool did not catch. Of a program, what it wrote
        /// follows on further lines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
    },
    /// The call was cancelled before it ended.
    #[error("the call was cancelled")]
    Cancelled,
    /// Internal error of the host. Only this variant ends a run.
    #[error("internal error of the host: {message}")]
    Host {
        /// Chain of causes.
        message: String,
    },
}

/// The last message of a tool that crashed, as the end of a sentence.
fn after(output: Option<&str>) -> String {
    output.map_or_else(String::new, |output| format!(", after the message: {output}"))
}

/// A limit that ended a call, with its configured value.
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
    /// Table elements, in total over all tables.
    TableElements(u64),
    /// Core instances, memories or tables of one call.
    Instances(u64),
    /// Resource handles held by a guest.
    Handles(u64),
    /// Bytes of a result, and of all data exchanged in one host call.
    Output(u64),
    /// Bytes of WebAssembly stack.
    Stack(u64),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Fuel(n) => write!(f, "{} units of fuel used up", units::count(n)),
            Self::WallTimeMs(n) => write!(f, "not finished after {}", units::time(n)),
            Self::Memory(n) => write!(f, "more than {} of memory", units::size(n)),
            Self::TableElements(n) => write!(f, "more than {n} table elements"),
            Self::Instances(n) => write!(f, "more than {n} instances, memories or tables"),
            Self::Handles(1) => write!(f, "more than 1 handle"),
            Self::Handles(n) => write!(f, "more than {n} handles"),
            Self::Output(n) => write!(f, "more than {} of output", units::size(n)),
            Self::Stack(n) => write!(f, "recursion deeper than a stack of {}", units::size(n)),
        }
    }
}

impl ToolError {
    /// Creates an error for invalid arguments.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArguments {
            message: message.into(),
        }
    }

    /// Creates a denial; `hint` is for the user only.
    pub fn denied(message: impl Into<String>, hint: Option<String>) -> Self {
        Self::Denied {
            message: message.into(),
            hint,
        }
    }

    /// Creates the error of a crash without output.
    pub fn crashed(cause: impl Into<String>) -> Self {
        Self::Crashed {
            cause: cause.into(),
            output: None,
        }
    }

    /// Creates an internal error with its chain of causes.
    pub fn host(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Host {
            message: crate::error_chain(error),
        }
    }

    /// Returns a short identifier for logs, JSON and metrics: `invalid_arguments`, `denied`, …
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

    /// Returns the text of this error for the model.
    ///
    /// It states what happened and what may help, and never how to extend a grant.
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
                format!("Error: not allowed: {message}. The same call will not be allowed either.")
            }
            Self::Unavailable { message } => {
                format!("Error: not available at the moment: {message}. The same call may work later.")
            }
            Self::Failed { message } => format!("Error: {message}"),
            Self::Limit { limit } => {
                format!("Error: the tool was stopped by a limit: {limit}. Ask it for less at once.")
            }
            Self::Crashed { cause, output: None } => {
                format!("Error: the tool crashed ({cause}). The same arguments will crash it again.")
            }
            // An exception says itself what was wrong, which may pass.
            Self::Crashed { cause, output } => {
                format!("Error: the tool crashed ({cause}){}", after(output.as_deref()))
            }
            Self::Cancelled => {
                "Error: the call was cancelled before it ended; its effects are unknown.".into()
            }
            Self::Host { .. } => "Error: the tool could not be run because of an internal error.".into(),
        }
    }

    /// Returns the configuration that would allow the call, for the user, if known.
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
                "Error: not allowed: why. The same call will not be allowed either.",
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
                ToolError::crashed("why"),
                "crashed",
                "Error: the tool crashed (why). The same arguments will crash it again.",
            ),
            (
                ToolError::Crashed {
                    cause: message(),
                    output: Some("ValueError: boom".into()),
                },
                "crashed",
                "Error: the tool crashed (why), after the message: ValueError: boom",
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
