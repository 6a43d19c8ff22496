//! Tests of the events: their JSON form, and which of them journals omit.

use serde_json::json;

use super::*;
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::tool::{LogLevel, LogSource};
use crate::{Content, PlaceKind, PlanStep, ToolError};

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
            places: vec![ArgumentPlace {
                pointer: "/a".into(),
                kind: PlaceKind::Path,
                plain: "/x".into(),
                named: Some("/work/x".into()),
                real: Some("/work/y".into()),
                is_unresolved: false,
            }],
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
        Event::CallSuspended {
            id: id(),
            state: json!({"messages": []}),
            receipt: Some(Receipt::default()),
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
        Event::TurnUndone { removed: 2 },
        Event::ResultsPruned {
            calls: vec![id()],
            bytes: 10,
        },
        Event::Notice {
            level: NoticeLevel::Info,
            hook: None,
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
            cost_micros: Some(7),
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
        ..DataFlow::default()
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
            ..DataFlow::default()
        };
        assert_eq!(flow.is_complete(), bits == 7, "{flow:?}");
    }
}

#[test]
fn data_of_a_service_leaks_if_it_can_be_sent_elsewhere() {
    let service = DataFlow {
        reads_service: true,
        untrusted_content: true,
        can_send_out: true,
        ..DataFlow::default()
    };
    let elsewhere = DataFlow {
        can_send_elsewhere: true,
        ..DataFlow::default()
    };
    assert!(!service.is_complete());
    assert!(service.union(elsewhere).is_complete());
    let trusted = DataFlow {
        untrusted_content: false,
        ..service.union(elsewhere)
    };
    assert!(!trusted.is_complete());
    // Files may not be sent to a service either.
    let files = DataFlow {
        reads_private: true,
        ..DataFlow::default()
    };
    assert!(service.union(files).is_complete());
    assert!(!elsewhere.union(files).is_complete());
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
