//! Unit tests of the transitions after one answer and its calls: checks, refusals, starts and counters.

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
fn reminders_are_stored_if_errors_are() {
    for (error_visibility, expected) in [
        (ErrorVisibility::Stored, true),
        (ErrorVisibility::Ephemeral, false),
    ] {
        let mut session = with_policy(LoopPolicy {
            error_visibility,
            ..LoopPolicy::default()
        });
        let effects = session.answer(&[], StopReason::Complete, &[]);
        let stored = events(effects).find_map(|event| match event {
            Event::Reminder {
                kind: ReminderKind::EmptyAnswer,
                stored,
                ..
            } => Some(stored),
            _ => None,
        });
        assert_eq!(stored, Some(expected));
    }
}

#[test]
fn only_equal_errors_in_a_row_are_counted() {
    let mut session = with_policy(LoopPolicy::default());
    let times = |session: &Session| {
        let turn = session.state.turn.as_ref().unwrap();
        turn.failing.as_ref().map(|(_, times)| *times)
    };
    session.answer(
        &[
            ("a", "t", "{}"),
            ("b", "t", "{}"),
            ("c", "t", "{}"),
            ("d", "t", "{}"),
        ],
        StopReason::Complete,
        &[],
    );
    for id in ["a", "b", "c", "d"] {
        session.prepared(id, json!({}));
    }
    session.returned("a", failed("one"));
    session.returned("b", failed("one"));
    assert_eq!(times(&session), Some(2));
    session.returned("c", failed("other"));
    assert_eq!(times(&session), Some(1));
    session.returned("d", succeeded("fine"));
    assert_eq!(times(&session), None);
}

#[test]
fn refused_call_does_not_block_the_next_one() {
    let one_at_a_time = LoopPolicy {
        concurrency: 1,
        ..LoopPolicy::default()
    };
    let mut session = Session::new(Machine {
        policy: one_at_a_time,
        approvals: denying("no"),
        ..Machine::default()
    });
    let calls = [("a", "no", "{}"), ("b", "yes", "{}")];
    let effects = session.answer(&calls, StopReason::Complete, &[]);
    assert_eq!(of_calls(&effects), ["prepare a"]);
    let effects = session.prepared("a", json!({}));
    assert_eq!(of_calls(&effects), ["refuse a", "prepare b"]);
}

#[test]
fn exclusive_call_starts_after_earlier_calls_have_ended() {
    let exclusive = ToolFacts {
        exclusive: true,
        ..ToolFacts::default()
    };
    let machine = |approvals| Machine {
        approvals,
        tools: BTreeMap::from([("alone".to_owned(), exclusive)]),
        ..Machine::default()
    };
    let calls = [("a", "plain", "{}"), ("b", "alone", "{}"), ("c", "plain", "{}")];
    let mut session = Session::new(machine(Approvals::default()));
    session.answer(&calls, StopReason::Complete, &[]);
    assert!(of_calls(&session.prepared("c", json!({}))).is_empty());
    assert!(of_calls(&session.prepared("b", json!({}))).is_empty());
    assert_eq!(of_calls(&session.prepared("a", json!({}))), ["run a"]);
    assert_eq!(
        of_calls(&session.returned("a", succeeded("x"))),
        ["end a", "run b"]
    );
    assert_eq!(
        of_calls(&session.returned("b", succeeded("x"))),
        ["end b", "run c"]
    );
    // A refused call does not block others.
    let mut session = Session::new(machine(denying("plain")));
    session.answer(&calls, StopReason::Complete, &[]);
    session.prepared("b", json!({}));
    let effects = session.prepared("a", json!({}));
    assert_eq!(of_calls(&effects), ["refuse a", "run b"]);
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
fn repeated_calls_end_a_turn_only_if_configured() {
    for (stop, ends) in [(0, false), (3, true)] {
        let mut session = with_policy(LoopPolicy {
            repeats: Repeats { warn: 0, stop },
            ..LoopPolicy::default()
        });
        let mut has_closed = false;
        for n in 0..3 {
            let id = format!("c{n}");
            session.answer(&[(&id, "t", "{}")], StopReason::Complete, &[]);
            session.prepared(&id, json!({}));
            let effects = session.returned(&id, succeeded("same"));
            has_closed |= events(effects).any(|event| matches!(event, Event::Closing { .. }));
        }
        assert_eq!(has_closed, ends, "{stop}");
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
fn rule_applies_to_resolved_arguments() {
    let rule = ApprovalRule::tool("*", Verdict::Deny).with_argument("/path", "private/*");
    let places = Places::new(|_, arguments| {
        let path = arguments["path"].as_str().unwrap_or_default();
        vec![ArgumentPlace {
            pointer: "/path".into(),
            kind: PlaceKind::Path,
            plain: format!("/{path}"),
            named: Some(format!("/work/{path}")),
            real: Some(format!("/work/{}", path.replace("link", "private"))),
            is_unresolved: false,
        }]
    });
    for (path, expected) in [("link/key", "refuse a"), ("notes/key", "run a")] {
        let mut session = Session::new(Machine {
            approvals: Approvals {
                rules: vec![rule.clone()],
                flow: FlowGuard::Off,
                base: Some("/work".into()),
            },
            places: places.clone(),
            ..Machine::default()
        });
        session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
        let effects = session.prepared("a", json!({ "path": path }));
        assert_eq!(of_calls(&effects)[0], expected, "{path}");
    }
}

/// A machine that asks for every call, and a switch for where `way` leads.
fn asking_about_a_link() -> (Machine, Arc<AtomicBool>) {
    let is_changed = Arc::new(AtomicBool::new(false));
    let changed = is_changed.clone();
    let places = Places::new(move |_, _| vec![way(changed.load(Ordering::Relaxed))]);
    let machine = Machine {
        approvals: Approvals {
            rules: vec![ApprovalRule::tool("*", Verdict::Ask)],
            flow: FlowGuard::Off,
            base: None,
        },
        places,
        ..Machine::default()
    };
    (machine, is_changed)
}

fn way(is_changed: bool) -> ArgumentPlace {
    let target = if is_changed { "private" } else { "notes" };
    ArgumentPlace {
        pointer: "/path".into(),
        kind: PlaceKind::Path,
        plain: "/way".into(),
        named: Some("/work/way".into()),
        real: Some(format!("/work/{target}")),
        is_unresolved: false,
    }
}

fn approve(id: &str) -> Input {
    Input::Decided {
        id: id.into(),
        decision: Decision::Approve,
    }
}

#[test]
fn approved_call_runs_only_if_its_target_is_as_shown() {
    for (changes, expected) in [(false, "run a"), (true, "refuse a")] {
        let (machine, is_changed) = asking_about_a_link();
        let mut session = Session::new(machine);
        session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
        session.prepared("a", json!({"path": "way"}));
        is_changed.store(changes, Ordering::Relaxed);
        let effects = session.step(approve("a"));
        assert_eq!(of_calls(&effects)[0], expected);
        if !changes {
            let judged = effects.iter().find_map(|effect| match effect {
                Effect::Run { places, .. } => Some(places.clone()),
                _ => None,
            });
            assert_eq!(judged, Some(vec![way(false)]));
        }
    }
}

#[test]
fn question_of_a_resumed_session_shows_the_present_target() {
    let (machine, is_changed) = asking_about_a_link();
    let mut session = Session::new(machine);
    session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
    session.prepared("a", json!({"path": "way"}));
    is_changed.store(true, Ordering::Relaxed);
    let effects = session.step(Input::Resume);
    let shown = effects.iter().find_map(|effect| match effect {
        Effect::Ask(request) => Some(request.places.clone()),
        _ => None,
    });
    assert_eq!(shown, Some(vec![way(true)]));
    assert_eq!(of_calls(&session.step(approve("a")))[0], "run a");
}

#[test]
fn call_that_hooks_judged_by_another_target_is_refused() {
    for (judged, expected) in [(way(true), "refuse a"), (way(false), "run a")] {
        let (machine, _) = asking_about_a_link();
        let mut session = Session::new(Machine {
            approvals: Approvals::default(),
            ..machine
        });
        session.answer(&[("a", "t", "{}")], StopReason::Complete, &[]);
        let effects = session.step(Input::Prepared {
            id: "a".into(),
            arguments: Ok(json!({"path": "way"})),
            places: Some(vec![judged]),
        });
        assert_eq!(of_calls(&effects)[0], expected);
    }
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
fn repeated_calls_are_reported_to_the_model_only_if_configured() {
    for (warn, is_warned) in [(0, false), (2, true), (3, false)] {
        let mut session = with_policy(LoopPolicy {
            repeats: Repeats { warn, stop: 0 },
            ..LoopPolicy::default()
        });
        let mut warned = false;
        for id in ["1", "2"] {
            session.answer(&[(id, "t", "{}")], StopReason::Complete, &[]);
            session.prepared(id, json!({}));
            let effects = session.returned(id, succeeded("same"));
            warned |= events(effects).any(|event| match event {
                Event::Reminder { kind, text, .. } => kind == ReminderKind::Repeating && text.contains("`t`"),
                _ => false,
            });
        }
        assert_eq!(warned, is_warned, "{warn}");
    }
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
fn resumed_calls_start_one_at_a_time_if_configured() {
    for (concurrency, prepared) in [(1, &["prepare a"][..]), (2, &["prepare a", "prepare b"])] {
        let mut session = with_policy(LoopPolicy {
            concurrency,
            ..LoopPolicy::default()
        });
        session.answer(&[("a", "t", "{}"), ("b", "t", "{}")], StopReason::Complete, &[]);
        let effects = session.step(Input::Resume);
        assert_eq!(of_calls(&effects), prepared, "{concurrency}");
    }
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
fn equal_errors_end_a_turn_only_if_configured() {
    for (error_breaker, ends) in [(0, false), (3, false), (2, true)] {
        let mut session = with_policy(LoopPolicy {
            error_breaker,
            ..LoopPolicy::default()
        });
        let mut has_ended = false;
        for id in ["1", "2"] {
            session.answer(&[(id, "t", "{}")], StopReason::Complete, &[]);
            session.prepared(id, json!({}));
            let effects = session.returned(id, failed("broken"));
            has_ended |= events(effects).any(|event| match event {
                Event::TurnFinished { outcome, .. } => {
                    matches!(outcome, TurnOutcome::Failing { .. })
                }
                _ => false,
            });
        }
        assert_eq!(has_ended, ends, "{error_breaker}");
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
