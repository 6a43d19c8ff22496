//! The third seam: everything that happens in a turn. What is not an event did not happen.

#[cfg(test)]
mod docs;
pub mod plan;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::provider::{ProviderError, StopReason, Usage};
use crate::tool::{LogLine, Progress};
use crate::{ApprovalCause, Content, Message, Plan, Receipt, ToolError};

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
        /// `true` when the message stands at the end of the conversation already, and nobody answered it; absent otherwise.
        #[serde(default, skip_serializing_if = "is_false")]
        unanswered: bool,
    },
    /// The session begins with a conversation from elsewhere. Comes before the first turn.
    Imported {
        /// The conversation.
        messages: Vec<Message>,
    },
    /// Hooks changed what goes to the model in this turn.
    PromptChanged {
        /// What stands for the person's message in the conversation from now on.
        message: Message,
        /// Text added to the system prompt for this turn; empty means none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        instructions: String,
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
        /// Tokens that the provider counted, or an estimate where it counted none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A request ended without a complete answer.
    StepInterrupted {
        /// Number of the step.
        step: u32,
        /// What there was of the answer, without calls and without reasoning that was cut off; absent when there was
        /// nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Message>,
        /// Why.
        reason: String,
        /// Estimated tokens, where an answer had begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The loop itself says something to the model.
    Reminder {
        /// What made it necessary.
        kind: ReminderKind,
        /// What the model reads.
        text: String,
        /// Whether it stays in the conversation; otherwise it goes into the next request alone.
        stored: bool,
    },
    /// The turn will end with this outcome; one last request without tools comes first.
    Closing {
        /// The outcome.
        outcome: TurnOutcome,
    },
    /// A call waits for a decision.
    ApprovalRequested {
        /// Identifier of the call.
        id: String,
        /// Name of the tool.
        tool: String,
        /// Exactly what will be executed when it is approved.
        arguments: Value,
        /// What asks.
        #[serde(default)]
        cause: ApprovalCause,
        /// What asks, in words for a person.
        reason: String,
    },
    /// A decision on a call that waited for one.
    ApprovalDecided {
        /// Identifier of the call.
        id: String,
        /// Whether it may run.
        approved: bool,
        /// Why, in words that the model may read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
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
    /// A call failed and is run again, because its tool claims to be idempotent.
    CallRetried {
        /// Identifier of the call.
        id: String,
        /// Which attempt comes next; the first retry is 2.
        attempt: u32,
        /// How long the pause is, in milliseconds.
        delay_ms: u64,
        /// Why.
        reason: String,
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
        /// Absent when the tool ran; `true` when the call was refused or cancelled before.
        #[serde(default, skip_serializing_if = "is_false")]
        not_run: bool,
    },
    /// Something happened in the session of an agent that runs as a call. Pieces of its answers are left out.
    Nested {
        /// Identifier of the call.
        id: String,
        /// What happened.
        event: Box<Event>,
    },
    /// The session has touched more kinds of data and ways out than before.
    FlowChanged {
        /// Identifier of the call that did it.
        id: String,
        /// All kinds together, this call included.
        flow: Flow,
    },
    /// Hooks share other values than before.
    ValuesShared {
        /// All of them.
        values: Map<String, Value>,
    },
    /// The model changed its plan.
    PlanUpdated {
        /// The whole plan.
        plan: Plan,
    },
    /// The older part of the conversation is being summarised.
    SummaryStarted {
        /// How many messages will be replaced.
        messages: usize,
        /// Tokens of the conversation, as far as known.
        tokens: u64,
    },
    /// Messages at the beginning of the conversation were replaced. The journal keeps the originals.
    Compacted {
        /// How many messages were replaced, from the first.
        removed: usize,
        /// What stands for them.
        replacement: Vec<Message>,
        /// What the request for the summary cost, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// No summary could be made, and the conversation stays as it is.
    SummaryFailed {
        /// Why.
        reason: String,
        /// What the request for it cost, if there was one and that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// The results of old calls were taken out of the conversation. The journal keeps them.
    ResultsPruned {
        /// Identifiers of the calls.
        calls: Vec<String>,
        /// Bytes saved.
        bytes: u64,
    },
    /// Something that a person should know.
    Notice {
        /// How much it matters.
        level: NoticeLevel,
        /// What it is.
        text: String,
    },
    /// A hook that runs in a cell was asked at one moment.
    HookFinished {
        /// Name of the hook.
        hook: String,
        /// The moment, such as `before_call`.
        moment: String,
        /// What it used.
        receipt: Receipt,
    },
    /// The turn is over.
    TurnFinished {
        /// How it ended.
        outcome: TurnOutcome,
        /// The final answer; what there was of it when the turn ended early.
        text: String,
        /// What the model handed over as data: through a tool that ends the turn, or as an answer that fits a schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// Steps taken.
        steps: u32,
        /// Tokens of all steps together, those of agents that ran as calls included.
        usage: Usage,
        /// Milliseconds that it took, without the time in which it was paused.
        #[serde(default)]
        wall_ms: u64,
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

/// Why the loop reminds the model of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReminderKind {
    /// It answered without calling a tool, and the turn ends through a tool alone.
    NoToolCall,
    /// It answered without calling a tool and is asked to go on.
    Continue,
    /// Its answer was empty.
    EmptyAnswer,
    /// Its answer does not fit the schema that was asked for.
    AnswerMismatch,
    /// A call was cut off by the limit of tokens and was not executed.
    CallCut,
    /// All calls of a step failed; it shall answer from what it knows.
    AllToolsFailed,
    /// It repeats the same call with the same result.
    Repeating,
    /// The limit of steps is reached; it shall answer without tools.
    StepLimit,
    /// The provider failed; the request is made again.
    ProviderFailed,
    /// The plan, after a summary took it out of sight.
    Plan,
}

/// Kinds of data and ways out that a session has touched. All three together are what an attack on a model needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    /// Private data was read.
    pub reads_private: bool,
    /// Content that strangers can write was read.
    pub untrusted_content: bool,
    /// Data could be sent outside.
    pub can_send_out: bool,
}

impl Flow {
    /// Both together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            reads_private: self.reads_private || other.reads_private,
            untrusted_content: self.untrusted_content || other.untrusted_content,
            can_send_out: self.can_send_out || other.can_send_out,
        }
    }

    /// Whether all three are there.
    pub fn is_complete(self) -> bool {
        self.reads_private && self.untrusted_content && self.can_send_out
    }
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
    /// Calls wait for a decision and nothing else is left to do. The turn is not over: it goes on, in this process or in
    /// another one, when it is resumed. Never in [`Event::TurnFinished`].
    AwaitingApproval {
        /// Identifiers of the calls.
        calls: Vec<String>,
    },
    /// The model asks the person; the next message is the answer.
    Asked {
        /// The question.
        question: String,
        /// Answers to choose from; perhaps none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        suggestions: Vec<String>,
    },
    /// All calls of a step failed; the answer was given without tools.
    ToolsFailed,
    /// The model repeated one call with one result.
    Repeating {
        /// Name of the tool.
        tool: String,
        /// How often.
        times: u32,
    },
    /// The same error came again and again.
    Failing {
        /// The error.
        error: String,
        /// How often, without a success in between.
        times: u32,
    },
    /// A budget of the run is used up.
    Budget {
        /// Which one, with its value.
        reason: String,
    },
    /// A hook ended the turn.
    Aborted {
        /// Name of the hook.
        by: String,
        /// Why.
        reason: String,
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

impl Event {
    /// Whether a later event holds all that this one says: pieces of an answer and the progress of a call. A journal
    /// leaves them out.
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
                content: vec![Content::text("x")],
                structured: Some(json!({"n": 1})),
                error: Some(ToolError::Limit {
                    limit: crate::Limit::Fuel(7),
                }),
                receipt: Some(Receipt::default()),
                not_run: true,
            },
            Event::Nested {
                id: id(),
                event: Box::new(Event::StepStarted { step: 2 }),
            },
            Event::FlowChanged {
                id: id(),
                flow: Flow {
                    reads_private: true,
                    ..Flow::default()
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
    fn every_event_comes_back_from_json_as_it_was() {
        for event in all() {
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
        }
    }

    #[test]
    fn a_field_that_a_newer_version_added_does_not_disturb_an_older_reader() {
        let text = r#"{"type":"step_started","step":3,"added_later":{"x":1}}"#;
        assert_eq!(
            serde_json::from_str::<Event>(text).unwrap(),
            Event::StepStarted { step: 3 }
        );
    }

    #[test]
    fn only_pieces_and_progress_are_transient() {
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
    fn a_flow_is_complete_when_all_three_kinds_are_in_it() {
        let of = |reads_private, untrusted_content, can_send_out| Flow {
            reads_private,
            untrusted_content,
            can_send_out,
        };
        assert!(!of(true, true, false).union(of(true, false, false)).is_complete());
        assert!(of(true, true, false).union(of(false, false, true)).is_complete());
    }

    #[test]
    fn a_flow_without_one_of_its_kinds_is_not_complete() {
        for bits in 0..8 {
            let flow = Flow {
                reads_private: bits & 1 != 0,
                untrusted_content: bits & 2 != 0,
                can_send_out: bits & 4 != 0,
            };
            assert_eq!(flow.is_complete(), bits == 7, "{flow:?}");
        }
    }

    #[test]
    fn a_nested_event_is_transient_as_the_event_inside() {
        let nested = |event| Event::Nested {
            id: "c1".into(),
            event: Box::new(event),
        };
        assert!(nested(Event::TextDelta { text: "x".into() }).is_transient());
        assert!(!nested(Event::StepStarted { step: 1 }).is_transient());
    }

    #[test]
    fn a_closure_and_a_shared_sink_receive_each_event() {
        let seen = std::sync::Mutex::new(Vec::new());
        let sink = |event: &Event| seen.lock().unwrap().push(event.clone());
        let event = Event::StepStarted { step: 1 };
        sink.event(&event);
        Arc::new(sink).event(&event);
        assert_eq!(*seen.lock().unwrap(), [event.clone(), event]);
    }
}
