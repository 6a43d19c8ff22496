//! What a hook is given at each point.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::event::TurnOutcome;
use crate::{ArgumentPlace, Content, Message, Receipt, ToolError};

/// A turn that is about to begin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// Message of the user, as the hooks before this one left it.
    pub message: Vec<Content>,
    /// Message of the user, whatever hooks made of it.
    pub original: Vec<Content>,
    /// The conversation so far, without the message.
    pub history: Vec<Arc<Message>>,
    /// Length of the conversation in tokens, as far as known.
    pub tokens: u64,
    /// Length in tokens at which the conversation will be summarised.
    pub token_limit: Option<u64>,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments, as the hooks before this one left them; they were checked against the tool's schema.
    pub arguments: Map<String, Value>,
    /// Files and URLs that these arguments lead to.
    pub places: Vec<ArgumentPlace>,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments that were executed.
    pub arguments: Value,
    /// What the model reads.
    pub content: Vec<Content>,
    /// Error of the call; `None` when it succeeded.
    pub error: Option<ToolError>,
    /// What the call used, if the tool ran in a cell.
    pub receipt: Option<Receipt>,
    /// Duration in milliseconds, retries included.
    pub duration_ms: u64,
}

/// The older part of a conversation and what will replace it.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Messages that will be replaced.
    pub replaced: Vec<Message>,
    /// Messages that take their place, as the hooks before this one left them.
    pub messages: Vec<Message>,
}

/// A turn that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnd {
    /// How the turn ended.
    pub outcome: TurnOutcome,
    /// The final answer.
    pub text: String,
    /// Number of requests to the model.
    pub steps: u32,
}

/// A failure of a request to the model, of a call, or of the arguments of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureReport {
    /// Part of the turn that failed.
    pub phase: FailurePhase,
    /// The error.
    pub message: String,
}

/// Part of a turn that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePhase {
    /// A request to the model.
    Model,
    /// The arguments of a call.
    CallArguments,
    /// A call.
    Call,
}

impl FailurePhase {
    /// Name in the contract of hooks: `model`, `call_arguments` or `call`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::CallArguments => "call_arguments",
            Self::Call => "call",
        }
    }
}
