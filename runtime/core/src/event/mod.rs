//! Events: everything that happens in a turn.

mod data_flow;
#[cfg(test)]
mod docs;
mod outcome;
pub mod plan;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::data_flow::DataFlow;
pub use self::outcome::TurnOutcome;
use crate::provider::{StopReason, Usage};
use crate::tool::{LogLine, Progress};
use crate::{ApprovalCause, ArgumentPlace, CallResult, Message, Plan, Receipt};

/// Version of the JSON form of [`Event`], included in [`Event::TurnStarted`]. Incremented when a reader of an earlier
/// form could misinterpret the new one; new kinds of events and new fields do not increment it.
pub const EVENT_VERSION: u32 = 1;

/// Receives events, in order.
pub trait EventSink: Send + Sync {
    /// Handles one event. Called from the loop's own task; must not block for long.
    fn event(&self, event: &Event);
}

/// Something that happened in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A turn begins.
    TurnStarted {
        /// Version of the event format, [`EVENT_VERSION`].
        version: u32,
        /// Identifier of the session.
        session: String,
        /// Name of the provider.
        provider: String,
        /// Name of the model.
        model: String,
        /// Message of the user.
        message: Message,
        /// `true` if the message is already at the end of the conversation, without a response; absent otherwise.
        #[serde(default, skip_serializing_if = "is_false")]
        unanswered: bool,
    },
    /// The session begins with an imported conversation. Precedes the first turn.
    Imported {
        /// Imported messages.
        messages: Vec<Message>,
    },
    /// Hooks changed the prompt of this turn.
    PromptChanged {
        /// Message that replaces the user's message in the conversation.
        message: Message,
        /// Text added to the system prompt for this turn; empty means none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        instructions: String,
    },
    /// A request is sent to the model.
    StepStarted {
        /// Number of the step in this turn, starting at 1.
        step: u32,
    },
    /// Streamed text from the model.
    TextDelta {
        /// Next fragment of the text.
        text: String,
    },
    /// Streamed reasoning from the model.
    ReasoningDelta {
        /// Next fragment of the reasoning.
        text: String,
    },
    /// A request to the model failed and is retried.
    Retry {
        /// Number of the next attempt.
        attempt: u32,
        /// Delay in milliseconds.
        delay_ms: u64,
        /// Reason of the failure.
        reason: String,
    },
    /// The model's response is complete.
    StepFinished {
        /// Number of the step.
        step: u32,
        /// The complete response.
        message: Message,
        /// Reason why the model stopped.
        stop: StopReason,
        /// Tokens counted by the provider, or an estimate if it counted none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A request ended without a complete response.
    StepInterrupted {
        /// Number of the step.
        step: u32,
        /// Partial response, without calls and without truncated reasoning; absent if empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Message>,
        /// Reason of the interruption.
        reason: String,
        /// Estimated tokens, if a response had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The loop adds a reminder for the model.
    Reminder {
        /// Kind of the reminder.
        kind: ReminderKind,
        /// Text for the model.
        text: String,
        /// True if it stays in the conversation; otherwise it is part of the next request only.
        stored: bool,
    },
    /// The turn will end with this outcome, after one last request without tools.
    Closing {
        /// Outcome of the turn.
        outcome: TurnOutcome,
    },
    /// A call waits for approval.
    ApprovalRequested {
        /// Identifier of the call.
        id: String,
        /// Name of the tool.
        tool: String,
        /// Exact arguments to be executed if the call is approved.
        arguments: Value,
        /// Cause of the request.
        #[serde(default)]
        cause: ApprovalCause,
        /// Reason for the request, for the user.
        reason: String,
        /// Resolved targets of the arguments, as the question shows them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        places: Vec<ArgumentPlace>,
    },
    /// A pending call was approved or denied.
    ApprovalDecided {
        /// Identifier of the call.
        id: String,
        /// True if the call may run.
        approved: bool,
        /// Reason; the model may read it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A call starts.
    CallStarted {
        /// Identifier of the call.
        id: String,
        /// Name of the tool, as written by the model.
        tool: String,
        /// Arguments to be executed; a JSON string with the original text if it is not valid JSON.
        arguments: Value,
    },
    /// A tool wrote a log line.
    CallLog {
        /// Identifier of the call.
        id: String,
        /// The log line.
        #[serde(flatten)]
        line: LogLine,
    },
    /// A tool reports progress.
    CallProgress {
        /// Identifier of the call.
        id: String,
        /// Progress of the call.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A call failed and is retried, because its tool is declared idempotent.
    CallRetried {
        /// Identifier of the call.
        id: String,
        /// Number of the next attempt; the first retry is 2.
        attempt: u32,
        /// Delay in milliseconds.
        delay_ms: u64,
        /// Reason of the failure.
        reason: String,
    },
    /// A call ended. Each started call ends exactly once.
    CallFinished {
        /// Identifier of the call.
        id: String,
        /// Name of the tool, as written by the model.
        tool: String,
        /// Result of the call.
        #[serde(flatten)]
        result: CallResult,
    },
    /// A call waits for a decision about a call inside it, and the turn is paused. [`Event::CallStarted`] follows when the
    /// turn is resumed.
    CallSuspended {
        /// Identifier of the call.
        id: String,
        /// State from which the tool continues the call, in a form of its own.
        state: Value,
        /// Resources that the call used since it started or was resumed. The receipt of its result has those used later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Receipt>,
    },
    /// An event of an agent's session that runs as a call. Streamed fragments of its responses are omitted.
    Nested {
        /// Identifier of the call.
        id: String,
        /// Event of the inner session.
        event: Box<Event>,
    },
    /// The session has accessed new kinds of data or egress.
    FlowChanged {
        /// Identifier of the call that caused it; empty if it is what was attached to the message.
        id: String,
        /// All kinds so far, including this call.
        flow: DataFlow,
    },
    /// Hooks changed the shared values.
    ValuesShared {
        /// All shared values.
        values: Map<String, Value>,
    },
    /// The model changed its plan.
    PlanUpdated {
        /// The complete plan.
        plan: Plan,
    },
    /// Compaction of the older part of the conversation starts.
    SummaryStarted {
        /// Number of messages that will be replaced.
        messages: usize,
        /// Tokens of the conversation, as far as known.
        tokens: u64,
    },
    /// The messages of the last turn were removed from the conversation. The journal keeps them.
    TurnUndone {
        /// Number of messages removed, counted from the last.
        removed: usize,
    },
    /// Messages at the beginning of the conversation were replaced by a summary. The journal keeps the originals.
    Compacted {
        /// Number of messages replaced, counted from the first.
        removed: usize,
        /// Messages that replace them.
        replacement: Vec<Message>,
        /// Tokens of the request for the summary, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// Compaction failed, and the conversation is unchanged.
    SummaryFailed {
        /// Reason of the failure.
        reason: String,
        /// Tokens of the request for the summary, if one was made and they are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// Results of old calls were removed from the conversation. The journal keeps them.
    ResultsPruned {
        /// Identifiers of the calls.
        calls: Vec<String>,
        /// Number of bytes removed.
        bytes: u64,
    },
    /// Information for the user.
    Notice {
        /// Severity of the notice.
        level: NoticeLevel,
        /// Hook whose words the text is; `None` if it is a notice of Toolcell itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hook: Option<String>,
        /// Text of the notice.
        text: String,
    },
    /// A component hook ran.
    HookFinished {
        /// Name of the hook.
        hook: String,
        /// Hook point, such as `before_call`.
        moment: String,
        /// Receipt of the hook.
        receipt: Receipt,
    },
    /// The turn ended.
    TurnFinished {
        /// Outcome of the turn.
        outcome: TurnOutcome,
        /// Final response; the partial response if the turn ended early.
        text: String,
        /// Structured result of the turn: from a tool that ends the turn, or from a response that matches a schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// Number of steps.
        steps: u32,
        /// Tokens of all steps, including those of agents that ran as calls.
        usage: Usage,
        /// Duration in milliseconds, without the time during which the turn was paused.
        #[serde(default)]
        wall_ms: u64,
        /// Cost of the turn in millionths of the currency unit of the prices, if prices of the model are set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_micros: Option<u64>,
    },
}

/// Severity of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeLevel {
    /// Nothing is wrong.
    Info,
    /// Something is wrong and the turn continues.
    Warning,
    /// Something failed.
    Error,
}

/// Kind of a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReminderKind {
    /// The response contains no call, and the turn ends only through a tool.
    NoToolCall,
    /// The response contains no call, and the model is prompted to continue.
    Continue,
    /// The response is empty.
    EmptyAnswer,
    /// The response does not match the requested schema.
    AnswerMismatch,
    /// A call was truncated by the token limit and was not executed.
    CallCut,
    /// The model wrote a call that the provider could not read.
    MalformedCall,
    /// All calls of a step failed; the model is to answer from what it knows.
    AllToolsFailed,
    /// The model repeats the same call with the same result.
    Repeating,
    /// The step limit is reached; the model is to answer without tools.
    StepLimit,
    /// The provider failed; the request is repeated.
    ProviderFailed,
    /// The plan, repeated because a summary replaced the messages that contained it.
    Plan,
}

impl Event {
    /// Returns `true` if later events contain the same information: streamed fragments and progress of calls. Journals
    /// omit these events.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::TextDelta { .. }
            | Self::ReasoningDelta { .. }
            | Self::CallProgress { .. }
            | Self::Retry { .. } => true,
            Self::Nested { event, .. } => event.is_transient(),
            _ => false,
        }
    }
}

impl<F: Fn(&Event) + Send + Sync> EventSink for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

impl<S: EventSink + ?Sized> EventSink for Arc<S> {
    fn event(&self, event: &Event) {
        (**self).event(event);
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
