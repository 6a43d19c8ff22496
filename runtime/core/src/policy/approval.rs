//! A question to a person: may this call run?

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ArgumentPlace;

/// A call that a person decides on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// Exactly what will be executed.
    pub arguments: Value,
    /// What asks.
    #[serde(default)]
    pub cause: ApprovalCause,
    /// What asks, in words for a person.
    pub reason: String,
    /// What the arguments lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ArgumentPlace>,
}

/// What asks a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalCause {
    /// A rule for calls like this one.
    Rule,
    /// The guard over the flow of data: with this call the session would have read private data, read what strangers can
    /// write, and be able to send data outside. It asks about this moment, so no answer holds for later calls.
    Flow,
    /// Both. Also what a question is taken for that does not say what asks, as in sessions of before.
    #[default]
    RuleAndFlow,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// It runs, with exactly the arguments that were shown.
    Approve,
    /// It does not run.
    Deny {
        /// Why, in words that the model may read.
        reason: Option<String>,
    },
    /// Not now: the turn pauses, and another process may take it up.
    Later,
}
