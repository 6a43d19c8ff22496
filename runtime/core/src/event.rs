//! The third seam: everything that happens in a turn. What is not an event did not happen.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::provider::{ProviderError, StopReason, Usage};
use crate::tool::{LogLine, Progress};
use crate::{Content, Message, Receipt, ToolError};

/// Version of the JSON form of [`Event`], as [`Event::TurnStarted`] states it. It grows when a reader of the old form
/// could misread the new one; new kinds of events and new fields may come without that.
pub const EVENT_VERSION: u32 = 1;

/// Receives events, in order.
pub trait EventSink: Send + Sync {
    /// One event. Called from the loop's own task; must not block for long.
    fn event(&self, event: &Event);
}

/// Something that happened in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A turn begins.
    TurnStarted {
        /// Version of the events, [`EVENT_VERSION`].
        version: u32,
        /// Identifier of the session.
        session: String,
        /// Name of the provider.
        provider: String,
        /// Name of the model.
        model: String,
        /// What the person said.
        message: Message,
    },
    /// A request goes to the model.
    StepStarted {
        /// Number of the step in this turn, from 1.
        step: u32,
    },
    /// More text from the model.
    TextDelta {
        /// The next piece.
        text: String,
    },
    /// More reasoning from the model.
    ReasoningDelta {
        /// The next piece.
        text: String,
    },
    /// A request to the model failed and is sent again.
    Retry {
        /// Which attempt comes next.
        attempt: u32,
        /// How long the pause is, in milliseconds.
        delay_ms: u64,
        /// Why.
        reason: String,
    },
    /// The model's answer is complete.
    StepFinished {
        /// Number of the step.
        step: u32,
        /// The whole answer.
        message: Message,
        /// Why the model stopped.
        stop: StopReason,
        /// What it cost, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A call begins.
    CallStarted {
        /// Identifier of the call.
        id: String,
        /// Name of the tool, as the model wrote it.
        tool: String,
        /// The arguments that will be executed; a JSON string holding the model's own words where they are no JSON.
        arguments: Value,
    },
    /// A tool wrote to its log.
    CallLog {
        /// Identifier of the call.
        id: String,
        /// What it wrote.
        #[serde(flatten)]
        line: LogLine,
    },
    /// A tool says how far it is.
    CallProgress {
        /// Identifier of the call.
        id: String,
        /// How far.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A call has ended. Each started call ends exactly once.
    CallFinished {
        /// Identifier of the call.
        id: String,
        /// Name of the tool, as the model wrote it.
        tool: String,
        /// What the model reads.
        content: Vec<Content>,
        /// The answer in structured form, if the tool gave one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<Value>,
        /// Why there is no answer; absent when there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolError>,
        /// What the call used; absent when it never reached a cell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Receipt>,
    },
    /// Something that a person should know.
    Notice {
        /// How much it matters.
        level: NoticeLevel,
        /// What it is.
        text: String,
    },
    /// The turn is over.
    TurnFinished {
        /// How it ended.
        outcome: TurnOutcome,
        /// The final answer; what there was of it when the turn ended early.
        text: String,
        /// Steps taken.
        steps: u32,
        /// Tokens of all steps together.
        usage: Usage,
    },
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    /// Good to know.
    Info,
    /// Something is not as it should be.
    Warning,
    /// Something failed.
    Error,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnOutcome {
    /// The model gave its answer.
    Completed,
    /// The limit of steps was reached; the answer was given without further tools.
    StepLimit {
        /// The limit.
        steps: u32,
    },
    /// The deadline passed.
    Deadline {
        /// The deadline in milliseconds.
        ms: u64,
    },
    /// A person cancelled it.
    Cancelled,
    /// The model refused or was stopped by its provider.
    Stopped {
        /// Why.
        stop: StopReason,
    },
    /// The provider failed.
    ProviderFailed {
        /// How.
        error: ProviderError,
    },
    /// The host failed.
    HostFailed {
        /// The chain of causes.
        message: String,
    },
}

impl<F: Fn(&Event) + Send + Sync> EventSink for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}
