//! What can go wrong around the loop. What goes wrong inside a turn is its outcome, not an error.

use toolcell_core::ToolName;

/// Why an agent cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools have the same name. Rename one, or leave one out.
    #[error("two tools have the name `{name}`")]
    DuplicateTool {
        /// The name.
        name: ToolName,
    },
    /// A tool has the name of one of the loop's own, which the model could take it for.
    #[error("the name `{name}` is reserved for a tool of the loop itself")]
    ReservedName {
        /// The name.
        name: ToolName,
    },
    /// A list of tools to offer names one that is not there.
    #[error("there is no tool `{}` to offer", name.escape_debug())]
    UnknownTool {
        /// The name.
        name: String,
    },
    /// Two hooks have the same name.
    #[error("two hooks have the name `{name}`")]
    DuplicateHook {
        /// The name.
        name: String,
    },
    /// Each of these hooks wants to run before another one of them.
    #[error("the order of these hooks forms a circle: {}", names.join(", "))]
    HookCycle {
        /// Their names.
        names: Vec<String>,
    },
    /// The policy ends turns through tools alone, and none of its control tools ends one.
    #[error("turns end through a tool alone, and no tool that ends a turn is among the control tools")]
    NoWayToFinish,
    /// A limit is zero where nothing could be done.
    #[error("`{setting}` must be at least 1")]
    Zero {
        /// Name of the setting.
        setting: &'static str,
    },
    /// A budget of money without prices could never be used up.
    #[error("a budget of money needs prices")]
    NoPrices,
}

/// Why a turn could not be run. Nothing of the session is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The last turn is still open: it was paused, or its future was dropped. Resume it first.
    #[error("the last turn of session `{session}` is still open; resume it first")]
    TurnOpen {
        /// Identifier of the session.
        session: String,
    },
    /// A turn begins with a message of the person, and this is another one.
    #[error("a turn of session `{session}` can only begin with a message of the person")]
    NotAPerson {
        /// Identifier of the session.
        session: String,
    },
    /// The journal failed. The turn stays open; what the journal has acknowledged is not lost.
    #[error("session `{session}` could not be stored")]
    Store {
        /// Identifier of the session.
        session: String,
        /// Why.
        #[source]
        source: toolcell_core::StoreError,
    },
    /// There is no open turn to resume.
    #[error("session `{session}` has no open turn")]
    NoTurn {
        /// Identifier of the session.
        session: String,
    },
}
