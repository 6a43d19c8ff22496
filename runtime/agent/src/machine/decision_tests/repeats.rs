//! Equal errors and repeated calls.

use super::*;

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
