//! Input of hooks.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::event::TurnOutcome;
use crate::{ArgumentPlace, CallResult, Content, Message};

/// A turn that is about to begin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// Message of the user, as the hooks before this one left it.
    pub message: Vec<Content>,
    /// Original message of the user.
    pub original: Vec<Content>,
    /// The conversation so far, without the message.
    pub history: Vec<Arc<Message>>,
    /// Length of the conversation in tokens, as far as known.
    pub tokens: u64,
    /// Length in tokens at which the conversation is summarised.
    pub token_limit: Option<u64>,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingCall {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments, as the hooks before this one left them; validated against the tool's schema.
    pub arguments: Map<String, Value>,
    /// Files and URLs that these arguments refer to.
    pub places: Vec<ArgumentPlace>,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Executed arguments.
    pub arguments: Value,
    /// Result of the call.
    pub result: CallResult,
    /// Duration in milliseconds, including retries.
    pub duration_ms: u64,
}

/// The older part of a conversation and what will replace it.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Messages that will be replaced.
    pub replaced: Vec<Message>,
    /// Messages that replace them, as the hooks before this one left them.
    pub messages: Vec<Message>,
}

/// A turn that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnd {
    /// Outcome of the turn.
    pub outcome: TurnOutcome,
    /// Final response.
    pub text: String,
    /// Number of requests to the model.
    pub steps: u32,
}

/// A failure of a request to the model, of a call, or of the arguments of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureReport {
    /// Part of the turn that failed.
    pub phase: FailurePhase,
    /// Error message.
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
    /// Returns the name used in the WIT interface of hooks: `model`, `call_arguments` or `call`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::CallArguments => "call_arguments",
            Self::Call => "call",
        }
    }
}
