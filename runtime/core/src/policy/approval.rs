//! Approval of calls by the user.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ArgumentPlace;

/// A call that needs the user's approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Identifier of the call.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The exact arguments of the call.
    pub arguments: Value,
    /// Cause of the request.
    #[serde(default)]
    pub cause: ApprovalCause,
    /// Reason for the request, for the user.
    pub reason: String,
    /// Files and URLs that the arguments refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ArgumentPlace>,
}

/// Cause of an approval request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalCause {
    /// A rule that matches the call.
    Rule,
    /// The data-flow guard: after this call the session would have read private data and untrusted content, and could
    /// send data out. The request concerns the state at this point, so a decision on it never covers later calls.
    Flow,
    /// Both. Also the default for requests that state no cause, as in sessions written by earlier versions.
    #[default]
    RuleAndFlow,
    /// The tool is one of the client's: the client runs it, and approves the call with its result.
    Client,
}

/// Decision of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// Run the call with exactly the arguments shown.
    Approve,
    /// Do not run the call.
    Deny {
        /// Reason; the model may read it.
        reason: Option<String>,
    },
    /// Undecided: the turn pauses and can be resumed, also by another process.
    Later,
}
