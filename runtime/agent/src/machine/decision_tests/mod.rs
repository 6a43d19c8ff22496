//! Unit tests of the transitions after one answer and its calls: checks, refusals, starts and counters.

mod approvals;
mod repeats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use toolcell_core::event::{DataFlow, ReminderKind, TurnOutcome};
use toolcell_core::message::CallRequest;
use toolcell_core::place::PlaceKind;
use toolcell_core::provider::{Completion, ProviderInfo, StopReason, Usage};
use toolcell_core::{ArgumentPlace, Content, Event, Limit, Message, Part, Receipt, ToolError};

use super::*;
use crate::approval::{ApprovalRule, FlowGuard, Verdict};
use crate::budget::Budget;
use crate::policy::{ErrorVisibility, OnLimit, Repeats};

/// A machine with the state of one session.
struct Session {
    machine: Machine,
    state: LoopState,
}

impl Session {
    fn new(machine: Machine) -> Self {
        let mut session = Self {
            machine,
            state: LoopState::new("s"),
        };
        session.step(Input::Begin {
            message: Message::user("go"),
            provider: ProviderInfo {
                provider: "p".into(),
                model: "m".into(),
            },
            unanswered: false,
            flow: DataFlow::default(),
        });
        session.step(Input::Prompted {
            message: None,
            instructions: String::new(),
        });
        session
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.machine.step(&mut self.state, input)
    }

    /// Inputs an answer with these calls, as identifier, tool and arguments.
    fn answer(&mut self, calls: &[(&str, &str, &str)], stop: StopReason, cut: &[&str]) -> Vec<Effect> {
        let parts = calls.iter().map(|(id, name, arguments)| {
            Part::Call(CallRequest {
                id: (*id).into(),
                name: (*name).into(),
                arguments: (*arguments).into(),
                opaque: Value::Null,
            })
        });
        let completion = Completion {
            parts: parts.collect(),
            stop,
            usage: Some(Usage {
                input: 1_000,
                ..Usage::default()
            }),
        };
        let cut = cut.iter().map(|&name| name.to_owned()).collect();
        self.step(Input::Answered { completion, cut })
    }

    fn prepared(&mut self, id: &str, arguments: Value) -> Vec<Effect> {
        self.step(Input::Prepared {
            id: id.into(),
            arguments: Ok(arguments),
            places: None,
        })
    }

    fn returned(&mut self, id: &str, result: CallResult) -> Vec<Effect> {
        let id = id.into();
        self.step(Input::Returned { id, result })
    }
}

fn with_policy(policy: LoopPolicy) -> Session {
    Session::new(Machine {
        policy,
        ..Machine::default()
    })
}

fn denying(tool: &str) -> Approvals {
    Approvals {
        rules: vec![ApprovalRule::tool(tool, Verdict::Deny)],
        flow: FlowGuard::Off,
        ..Approvals::default()
    }
}

fn succeeded(text: &str) -> CallResult {
    CallResult {
        content: vec![Content::text(text)],
        ..CallResult::default()
    }
}

fn failed(text: &str) -> CallResult {
    CallResult {
        error: Some(ToolError::Failed { message: text.into() }),
        ..CallResult::default()
    }
}

/// Identifiers of the calls that effects check, run and end.
fn of_calls(effects: &[Effect]) -> Vec<String> {
    let of_call = |effect: &Effect| match effect {
        Effect::Prepare { id, .. } => Some(format!("prepare {id}")),
        Effect::Run { id, .. } => Some(format!("run {id}")),
        Effect::Emit(Event::CallFinished { id, result, .. }) => {
            Some(format!("{} {id}", if result.not_run { "refuse" } else { "end" }))
        }
        _ => None,
    };
    effects.iter().filter_map(of_call).collect()
}

fn events(effects: Vec<Effect>) -> impl Iterator<Item = Event> {
    effects.into_iter().filter_map(|effect| match effect {
        Effect::Emit(event) => Some(event),
        _ => None,
    })
}

#[test]
fn only_last_call_of_a_truncated_answer_is_refused() {
    let calls = [("a", "t", "{\"x\":"), ("b", "t", "{\"x\":")];
    for (stop, cut, expected) in [
        (StopReason::MaxTokens, &[][..], ["refuse b", "prepare a"]),
        (StopReason::MaxTokens, &["c"][..], ["prepare a", "prepare b"]),
        (StopReason::Complete, &[][..], ["prepare a", "prepare b"]),
    ] {
        let mut found = of_calls(&with_policy(LoopPolicy::default()).answer(&calls, stop, cut));
        let mut expected = expected.map(str::to_owned);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
    let whole = [("a", "t", "{}")];
    let effects = with_policy(LoopPolicy::default()).answer(&whole, StopReason::MaxTokens, &[]);
    assert_eq!(of_calls(&effects), ["prepare a"]);
}

#[test]
fn identifiers_are_unique_in_a_session() {
    let mut session = with_policy(LoopPolicy::default());
    session.answer(&[("a", "t", "{}"), ("a", "t", "{}")], StopReason::Complete, &[]);
    let ids: Vec<String> = session.state.call_ids.iter().cloned().collect();
    assert_eq!((ids.len(), ids[0].as_str()), (2, "a"));
    for id in &ids {
        session.prepared(id, json!({}));
    }
    for id in &ids {
        session.returned(id, succeeded("x"));
    }
    session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
    assert_eq!(session.state.call_ids.len(), 3);
}

#[test]
fn only_successful_plan_calls_change_the_plan() {
    let planner = ToolFacts {
        control: Some(Control::UpdatePlan),
        ..ToolFacts::default()
    };
    let plan = Some(json!({"goal": "g", "steps": []}));
    for (tool, error, is_changed) in [
        ("update_plan", None, true),
        ("update_plan", Some(ToolError::invalid("no")), false),
        ("other", None, false),
    ] {
        let mut session = Session::new(Machine {
            tools: BTreeMap::from([("update_plan".to_owned(), planner)]),
            ..Machine::default()
        });
        session.answer(&[("a", tool, "{}")], StopReason::Complete, &[]);
        session.prepared("a", json!({}));
        let outcome = CallResult {
            structured: plan.clone(),
            error,
            ..CallResult::default()
        };
        session.returned("a", outcome);
        assert_eq!(session.state.plan.is_some(), is_changed, "{tool}");
    }
}

#[test]
fn session_use_includes_time_of_the_open_turn() {
    let mut session = with_policy(LoopPolicy::default());
    session.state.turn.as_mut().unwrap().wall_ms = 70;
    assert_eq!(session.state.spent().wall_ms, 70);
}

#[test]
fn request_overhead_counts_until_a_provider_count() {
    let mut session = with_policy(LoopPolicy::default());
    let before = session.state.tokens();
    assert_eq!(session.state.request_tokens(100), before + 100);
    session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
    let after = session.state.tokens();
    assert!(after >= 1_000, "{after}");
    assert_eq!(session.state.request_tokens(100), after);
}

#[test]
fn unstarted_calls_keep_their_arguments() {
    let policy = LoopPolicy {
        concurrency: 2,
        ..LoopPolicy::default()
    };
    let mut session = with_policy(policy);
    let calls = [
        ("a", "t", "{}"),
        ("b", "t", "{}"),
        ("c", "t", "{}"),
        ("d", "t", "{\"raw\":1}"),
    ];
    session.answer(&calls, StopReason::Complete, &[]);
    for (id, n) in [("a", 1), ("b", 2), ("c", 3)] {
        session.prepared(id, json!({ "n": n }));
    }
    let effects = session.step(Input::Stop {
        outcome: TurnOutcome::Cancelled,
        partial: String::new(),
        ended: BTreeMap::new(),
    });
    let started: Vec<(String, Value)> = events(effects)
        .filter_map(|event| match event {
            Event::CallStarted { id, arguments, .. } => Some((id, arguments)),
            _ => None,
        })
        .collect();
    let expected = [
        ("c".to_owned(), json!({"n": 3})),
        ("d".to_owned(), json!("{\"raw\":1}")),
    ];
    assert_eq!(started, expected);
}

#[test]
fn stopped_request_names_its_reason() {
    for (outcome, expected) in [
        (TurnOutcome::Cancelled, "cancelled"),
        (TurnOutcome::Deadline { ms: 7 }, "not finished after 7 ms"),
        (
            TurnOutcome::HostFailed {
                message: "disk".into(),
            },
            "disk",
        ),
        (
            TurnOutcome::Budget {
                reason: "fuel".into(),
            },
            "fuel",
        ),
        (TurnOutcome::ToolsFailed, "stopped"),
    ] {
        let mut session = with_policy(LoopPolicy::default());
        let effects = session.step(Input::Stop {
            outcome,
            partial: String::new(),
            ended: BTreeMap::new(),
        });
        let reason = events(effects).find_map(|event| match event {
            Event::StepInterrupted { reason, .. } => Some(reason),
            _ => None,
        });
        assert_eq!(reason.as_deref(), Some(expected));
    }
}

#[test]
fn new_identifier_is_none_that_was_used() {
    let mut session = with_policy(LoopPolicy::default());
    let used = ["a", "a-3"];
    session.answer(&used.map(|id| (id, "t", "{}")), StopReason::Complete, &[]);
    for id in used {
        session.prepared(id, json!({}));
    }
    for id in used {
        session.returned(id, succeeded("x"));
    }
    let effects = session.answer(
        &[("a", "t", "{}"), ("a-4", "t", "{}"), ("a", "t", "{}")],
        StopReason::Complete,
        &[],
    );
    assert_eq!(of_calls(&effects).len(), 3);
    assert_eq!(session.state.call_ids.len(), 5);
}

#[test]
fn model_reads_why_it_gets_no_more_calls() {
    let mut session = with_policy(LoopPolicy {
        repeats: Repeats { warn: 0, stop: 1 },
        ..LoopPolicy::default()
    });
    session.answer(&[("1", "t", "{}")], StopReason::Complete, &[]);
    session.prepared("1", json!({}));
    let effects = session.returned("1", succeeded("same"));
    let text = events(effects).find_map(|event| match event {
        Event::Reminder { text, .. } => Some(text),
        _ => None,
    });
    let text = text.unwrap();
    assert!(text.contains("You called `t` 1 times"), "{text}");

    let mut session = Session::new(Machine {
        approvals: denying("t"),
        ..Machine::default()
    });
    session.answer(&[("1", "t", "{}")], StopReason::Complete, &[]);
    let effects = session.prepared("1", json!({}));
    let error = events(effects).find_map(|event| match event {
        Event::CallFinished { result, .. } => result.error,
        _ => None,
    });
    let text = error.unwrap().for_model();
    assert!(text.contains("this call of `t` is not allowed"), "{text}");
}

#[test]
fn user_is_told_that_a_budget_ends_the_turn() {
    for (outcome, is_told) in [
        (
            TurnOutcome::Budget {
                reason: "no fuel".into(),
            },
            true,
        ),
        (TurnOutcome::Cancelled, false),
    ] {
        let mut session = with_policy(LoopPolicy::default());
        let effects = session.step(Input::Stop {
            outcome,
            partial: String::new(),
            ended: BTreeMap::new(),
        });
        let told = |event| matches!(event, Event::Notice { text, .. } if text == "the turn ends: no fuel");
        assert_eq!(events(effects).any(told), is_told);
    }
}

#[test]
fn call_that_the_rest_of_a_budget_ended_ends_the_turn() {
    for (limit, ends) in [(Limit::Fuel(100), true), (Limit::Memory(100), false)] {
        let mut session = with_policy(LoopPolicy {
            budget: Budget {
                fuel: Some(100),
                ..Budget::default()
            },
            ..LoopPolicy::default()
        });
        session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
        session.prepared("a", json!({}));
        let effects = session.returned(
            "a",
            CallResult {
                error: Some(ToolError::Limit { limit }),
                receipt: Some(Receipt {
                    fuel: 90,
                    ..Receipt::default()
                }),
                ..CallResult::default()
            },
        );
        let is_end = |event| match event {
            Event::TurnFinished { outcome, .. } => matches!(outcome, TurnOutcome::Budget { .. }),
            _ => false,
        };
        assert_eq!(events(effects).any(is_end), ends, "{limit:?}");
    }
}

#[test]
fn answer_without_the_model_lists_at_most_fifty_findings() {
    let ids: Vec<String> = (0..51).map(|n| format!("c{n}")).collect();
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "t", "{}")).collect();
    let mut session = with_policy(LoopPolicy {
        max_steps: 1,
        on_limit: OnLimit::BestEffort,
        concurrency: 51,
        repeats: Repeats { warn: 0, stop: 0 },
        ..LoopPolicy::default()
    });
    session.answer(&calls, StopReason::Complete, &[]);
    let mut effects = Vec::new();
    for id in &ids {
        effects.extend(session.prepared(id, json!({})));
    }
    for id in &ids {
        effects.extend(session.returned(id, succeeded("found")));
    }
    let answer = events(effects).find_map(|event| match event {
        Event::TurnFinished { text, .. } => Some(text),
        _ => None,
    });
    assert_eq!(answer.unwrap().matches("- t: found").count(), 50);
}
