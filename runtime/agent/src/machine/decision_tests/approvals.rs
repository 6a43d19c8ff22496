//! Rules, questions and the order in which calls start.

use super::*;
use crate::approval::ApprovalCause;

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
fn call_of_a_tool_of_the_client_waits_whatever_the_rules_are() {
    let of_client = ToolFacts {
        of_client: true,
        flow: DataFlow {
            can_send_out: true,
            ..DataFlow::default()
        },
        ..ToolFacts::default()
    };
    for verdict in [Verdict::Allow, Verdict::Ask, Verdict::Deny] {
        let mut session = Session::new(Machine {
            approvals: Approvals {
                rules: vec![ApprovalRule::tool("*", verdict)],
                flow: FlowGuard::Refuse,
                ..Approvals::default()
            },
            tools: BTreeMap::from([("theirs".to_owned(), of_client)]),
            ..Machine::default()
        });
        session.answer(&[("a", "theirs", "{}")], StopReason::Complete, &[]);
        let asked = session.prepared("a", json!({}));
        let [Effect::Ask(request)] = asked
            .iter()
            .filter(|effect| matches!(effect, Effect::Ask(_)))
            .collect::<Vec<_>>()[..]
        else {
            panic!("{asked:?}")
        };
        assert_eq!(
            (request.cause, request.tool.as_str()),
            (ApprovalCause::Client, "theirs")
        );
        let effects = session.step(approve("a"));
        assert_eq!(of_calls(&effects), ["run a"], "{verdict:?}");
    }
}
