//! Events: everything that happens in a turn.

#[cfg(test)]
mod docs;
pub mod plan;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::provider::{ProviderError, StopReason, Usage};
use crate::tool::{LogLine, Progress};
use crate::{ApprovalCause, CallResult, Message, Plan, Receipt};

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
    /// An event of an agent's session that runs as a call. Streamed fragments of its responses are omitted.
    Nested {
        /// Identifier of the call.
        id: String,
        /// Event of the inner session.
        event: Box<Event>,
    },
    /// The session has accessed new kinds of data or egress.
    FlowChanged {
        /// Identifier of the call that caused it.
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

/// Kinds of data and egress that a session has accessed. The combination of all three allows data theft by prompt
/// injection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DataFlow {
    /// Private data was read.
    pub reads_private: bool,
    /// Untrusted content, which third parties can write, was read.
    pub untrusted_content: bool,
    /// Data could be sent to external systems.
    pub can_send_out: bool,
}

impl DataFlow {
    /// Returns the union of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            reads_private: self.reads_private || other.reads_private,
            untrusted_content: self.untrusted_content || other.untrusted_content,
            can_send_out: self.can_send_out || other.can_send_out,
        }
    }

    /// Returns `true` if all three are set.
    pub fn is_complete(self) -> bool {
        self.reads_private && self.untrusted_content && self.can_send_out
    }
}

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
    /// also by another process. Never part of [`Event::TurnFinished`].
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::PlanStep;
    use crate::provider::ProviderErrorKind;
    use crate::tool::{LogLevel, LogSource};
    use crate::{Content, ToolError};
    use serde_json::json;

    pub(crate) fn all() -> Vec<Event> {
        let id = || "c1".to_owned();
        let message = || Message::user("hello");
        vec![
            Event::Imported {
                messages: vec![message(), Message::assistant("hi")],
            },
            Event::TurnStarted {
                version: EVENT_VERSION,
                session: "s".into(),
                provider: "p".into(),
                model: "m".into(),
                message: message(),
                unanswered: true,
            },
            Event::PromptChanged {
                message: message(),
                instructions: String::new(),
            },
            Event::StepStarted { step: 1 },
            Event::TextDelta { text: "x".into() },
            Event::ReasoningDelta { text: "x".into() },
            Event::Retry {
                attempt: 2,
                delay_ms: 500,
                reason: "busy".into(),
            },
            Event::StepFinished {
                step: 1,
                message: Message::assistant("hi"),
                stop: StopReason::Other("odd".into()),
                usage: Some(Usage::default()),
            },
            Event::StepInterrupted {
                step: 1,
                message: None,
                reason: "cut".into(),
                usage: Some(Usage::default()),
            },
            Event::Reminder {
                kind: ReminderKind::NoToolCall,
                text: "go on".into(),
                stored: false,
            },
            Event::Closing {
                outcome: TurnOutcome::StepLimit { steps: 5 },
            },
            Event::ApprovalRequested {
                id: id(),
                tool: "t".into(),
                arguments: json!({"a": [1, null]}),
                cause: ApprovalCause::Flow,
                reason: "rule".into(),
            },
            Event::ApprovalDecided {
                id: id(),
                approved: false,
                reason: Some("no".into()),
            },
            Event::CallStarted {
                id: id(),
                tool: "t".into(),
                arguments: json!("{broken"),
            },
            Event::CallLog {
                id: id(),
                line: LogLine {
                    level: LogLevel::Warn,
                    source: LogSource::Stderr,
                    message: "careful".into(),
                },
            },
            Event::CallProgress {
                id: id(),
                progress: Progress {
                    done: 1,
                    total: Some(2),
                    message: None,
                },
            },
            Event::CallRetried {
                id: id(),
                attempt: 2,
                delay_ms: 0,
                reason: "again".into(),
            },
            Event::CallFinished {
                id: id(),
                tool: "t".into(),
                result: CallResult {
                    content: vec![Content::text("x")],
                    structured: Some(json!({"n": 1})),
                    error: Some(ToolError::Limit {
                        limit: crate::Limit::Fuel(7),
                    }),
                    receipt: Some(Receipt::default()),
                    not_run: true,
                },
            },
            Event::Nested {
                id: id(),
                event: Box::new(Event::StepStarted { step: 2 }),
            },
            Event::FlowChanged {
                id: id(),
                flow: DataFlow {
                    reads_private: true,
                    ..DataFlow::default()
                },
            },
            Event::ValuesShared {
                values: Map::from_iter([("k".to_owned(), json!(1))]),
            },
            Event::PlanUpdated {
                plan: Plan {
                    goal: "g".into(),
                    steps: vec![PlanStep {
                        description: "d".into(),
                        completed: true,
                        result: None,
                    }],
                },
            },
            Event::SummaryStarted {
                messages: 4,
                tokens: 100,
            },
            Event::Compacted {
                removed: 4,
                replacement: vec![message()],
                usage: None,
            },
            Event::SummaryFailed {
                reason: "the model wrote none".into(),
                usage: Some(Usage::default()),
            },
            Event::ResultsPruned {
                calls: vec![id()],
                bytes: 10,
            },
            Event::Notice {
                level: NoticeLevel::Info,
                text: "so".into(),
            },
            Event::HookFinished {
                hook: "guard".into(),
                moment: "before_call".into(),
                receipt: Receipt::default(),
            },
            Event::TurnFinished {
                outcome: TurnOutcome::ProviderFailed {
                    error: ProviderError::new("p", ProviderErrorKind::Timeout, "late"),
                },
                text: String::new(),
                result: Some(json!([1])),
                steps: 1,
                usage: Usage::default(),
                wall_ms: 12,
            },
        ]
    }

    #[test]
    fn every_event_round_trips_through_json() {
        for event in all() {
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
        }
    }

    #[test]
    fn fields_of_newer_versions_are_ignored_by_older_readers() {
        let text = r#"{"type":"step_started","step":3,"added_later":{"x":1}}"#;
        assert_eq!(
            serde_json::from_str::<Event>(text).unwrap(),
            Event::StepStarted { step: 3 }
        );
    }

    #[test]
    fn only_fragments_and_progress_are_transient() {
        let transient: Vec<Event> = all().into_iter().filter(Event::is_transient).collect();
        assert_eq!(transient.len(), 4);
        assert!(transient.iter().all(|event| matches!(
            event,
            Event::TextDelta { .. }
                | Event::ReasoningDelta { .. }
                | Event::Retry { .. }
                | Event::CallProgress { .. }
        )));
    }

    #[test]
    fn flow_is_complete_with_all_three_kinds() {
        let of = |reads_private, untrusted_content, can_send_out| DataFlow {
            reads_private,
            untrusted_content,
            can_send_out,
        };
        assert!(!of(true, true, false).union(of(true, false, false)).is_complete());
        assert!(of(true, true, false).union(of(false, false, true)).is_complete());
    }

    #[test]
    fn flow_without_one_of_its_kinds_is_not_complete() {
        for bits in 0..8 {
            let flow = DataFlow {
                reads_private: bits & 1 != 0,
                untrusted_content: bits & 2 != 0,
                can_send_out: bits & 4 != 0,
            };
            assert_eq!(flow.is_complete(), bits == 7, "{flow:?}");
        }
    }

    #[test]
    fn nested_event_is_transient_as_the_event_inside() {
        let nested = |event| Event::Nested {
            id: "c1".into(),
            event: Box::new(event),
        };
        assert!(nested(Event::TextDelta { text: "x".into() }).is_transient());
        assert!(!nested(Event::StepStarted { step: 1 }).is_transient());
    }

    #[test]
    fn closure_and_a_shared_sink_receive_each_event() {
        let seen = std::sync::Mutex::new(Vec::new());
        let sink = |event: &Event| seen.lock().unwrap().push(event.clone());
        let event = Event::StepStarted { step: 1 };
        sink.event(&event);
        Arc::new(sink).event(&event);
        assert_eq!(*seen.lock().unwrap(), [event.clone(), event]);
    }
}
