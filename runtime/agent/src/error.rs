//! Errors of building an agent or a tool, and of running a session. Failures inside a turn are its outcome, not an error.

use toolcell_core::ToolName;
use toolcell_core::schema::SchemaError;
use toolcell_core::tool::InvalidToolName;

use crate::approval::{ApprovalRule, InvalidRule};

/// Reason why an agent cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools have the same name.
    #[error("two tools have the name `{name}`")]
    DuplicateTool {
        /// Name of both tools.
        name: ToolName,
    },
    /// A tool has the reserved name of a control tool.
    #[error("the tool name `{name}` is reserved for a control tool")]
    ReservedName {
        /// Name of the tool.
        name: ToolName,
    },
    /// The list of tools to offer contains an unknown name.
    #[error("cannot offer unknown tool `{}`", name.escape_debug())]
    UnknownTool {
        /// The unknown name.
        name: String,
    },
    /// Two hooks have the same name.
    #[error("two hooks have the name `{name}`")]
    DuplicateHook {
        /// Name of both hooks.
        name: String,
    },
    /// The ordering constraints of these hooks form a cycle.
    #[error("the ordering constraints of hooks form a cycle: {}", names.join(", "))]
    HookCycle {
        /// Names of the hooks in the cycle.
        names: Vec<String>,
    },
    /// A hook panicked when its description was read.
    #[error("hook {number} of the agent panicked when its description was read: {}", cause.escape_debug())]
    HookPanicked {
        /// Position of the hook in the order in which hooks were added, from 1.
        number: usize,
        /// First line of the panic's message.
        cause: String,
    },
    /// The policy ends turns by tools only, and none of its control tools ends one.
    #[error("the policy ends turns by tools only, but no control tool that ends a turn is enabled")]
    NoWayToFinish,
    /// A limit that must be at least 1 is 0.
    #[error("`{setting}` must be at least 1")]
    Zero {
        /// Name of the setting.
        setting: &'static str,
    },
    /// An approval rule could never match, or is too long.
    #[error("the approval rule `{rule}` cannot be used")]
    InvalidRule {
        /// The refused rule.
        rule: Box<ApprovalRule>,
        /// Reason of the refusal.
        #[source]
        reason: InvalidRule,
    },
    /// A cost budget without prices can never be reached.
    #[error("a cost budget needs token prices")]
    NoPrices,
}

/// Reason why a turn could not be run. No session data is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The last turn is still open: it was paused, or its future was dropped. Resume it first.
    #[error("the last turn of session `{session}` is still open; resume it first")]
    TurnOpen {
        /// Identifier of the session.
        session: String,
    },
    /// A turn must start with a user message.
    #[error("a turn of session `{session}` must start with a user message")]
    NotAUserMessage {
        /// Identifier of the session.
        session: String,
    },
    /// The journal failed. The turn stays open; acknowledged events are not lost.
    #[error("session `{session}` could not be stored")]
    Store {
        /// Identifier of the session.
        session: String,
        /// Error of the store.
        #[source]
        source: toolcell_core::StoreError,
    },
    /// No turn has messages in the conversation: there was none, or a summary has replaced them.
    #[error("session `{session}` has no turn that could be undone")]
    NothingToUndo {
        /// Identifier of the session.
        session: String,
    },
    /// The conversation is too short for a summary.
    #[error("the conversation of session `{session}` is too short to be summarised")]
    TooShort {
        /// Identifier of the session.
        session: String,
    },
    /// There is no open turn to resume.
    #[error("session `{session}` has no open turn")]
    NoTurn {
        /// Identifier of the session.
        session: String,
    },
}

/// Reason why a function cannot be a tool.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FnToolError {
    /// The name is not a valid tool name.
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// The schema is not a valid JSON Schema of an object.
    #[error("invalid schema of the arguments")]
    Schema(#[from] SchemaError),
}

#[cfg(test)]
mod tests {
    use toolcell_core::error_chain;

    use super::*;
    use crate::approval::Verdict;

    #[test]
    fn refused_rule_keeps_its_reason_as_source() {
        let rule = ApprovalRule::tool("a b", Verdict::Deny);
        let error = BuildError::InvalidRule {
            reason: rule.check().unwrap_err(),
            rule: Box::new(rule),
        };
        assert!(error_chain(&error).starts_with(
            "the approval rule `deny a b` cannot be used: no tool has a name that matches `a b`"
        ));
    }
}
