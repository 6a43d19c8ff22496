//! Outcome of a turn.

use serde::{Deserialize, Serialize};

use crate::provider::{ProviderError, StopReason};

/// Outcome of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnOutcome {
    /// The model gave its final response.
    Completed,
    /// The step limit was reached; the final response was given without further tools.
    StepLimit {
        /// Maximum number of steps.
        steps: u32,
    },
    /// Calls wait for a decision and nothing else is left to do. The turn is paused and continues when it is resumed,
    /// also by another process. Never part of [`Event::TurnFinished`](super::Event::TurnFinished).
    AwaitingApproval {
        /// Identifiers of the waiting calls.
        calls: Vec<String>,
    },
    /// The model asks the user; the next message is the answer.
    Asked {
        /// Text of the question.
        question: String,
        /// Suggested answers; may be empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        suggestions: Vec<String>,
    },
    /// All calls of a step failed; the final response was given without tools.
    ToolsFailed,
    /// The model repeated one call with one result.
    Repeating {
        /// Name of the tool.
        tool: String,
        /// Number of repetitions.
        times: u32,
    },
    /// The same error occurred repeatedly.
    Failing {
        /// Text of the error.
        error: String,
        /// Number of occurrences without a success in between.
        times: u32,
    },
    /// A budget of the run is exhausted.
    Budget {
        /// The exhausted budget, with its value.
        reason: String,
    },
    /// A hook ended the turn.
    Aborted {
        /// Name of the hook.
        by: String,
        /// Reason given by the hook.
        reason: String,
    },
    /// The deadline was exceeded.
    Deadline {
        /// Deadline in milliseconds.
        ms: u64,
    },
    /// The user cancelled the turn.
    Cancelled,
    /// The model refused, or its provider stopped it.
    Stopped {
        /// Stop reason of the response.
        stop: StopReason,
    },
    /// The provider failed.
    ProviderFailed {
        /// Error of the provider.
        error: ProviderError,
    },
    /// Internal error of the host.
    HostFailed {
        /// Chain of causes.
        message: String,
    },
}
