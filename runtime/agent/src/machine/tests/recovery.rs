//! Crashes and stopped turns.

use super::*;

#[test]
fn call_running_at_a_crash_is_repeated_only_if_idempotent() {
    let plot = Plot {
        policy: LoopPolicy::default(),
        concurrency: 4,
        choices: Vec::new(),
        crashes: Vec::new(),
    };
    let machine = machine(&plot);
    let mut state = LoopState::new("s");
    let mut simulation = Simulation::default();
    let call = |id: &str, name: &str| {
        Part::Call(CallRequest {
            id: id.into(),
            name: name.into(),
            arguments: "{}".into(),
            opaque: Value::Null,
        })
    };
    let inputs = [
        Input::Begin {
            message: Message::user("go"),
            provider: ProviderInfo {
                provider: "p".into(),
                model: "m".into(),
            },
            unanswered: false,
            flow: DataFlow::default(),
        },
        Input::Prompted {
            message: None,
            instructions: String::new(),
        },
        Input::Answered {
            completion: Completion {
                parts: vec![call("a", "again"), call("b", "once"), call("c", "again")],
                stop: StopReason::Complete,
                usage: None,
            },
            cut: vec![],
        },
        Input::Prepared {
            id: "a".into(),
            arguments: Ok(json!({"id": "a"})),
            places: None,
        },
        Input::Prepared {
            id: "b".into(),
            arguments: Ok(json!({"id": "b"})),
            places: None,
        },
    ];
    let mut journal = Vec::new();
    for input in inputs {
        let effects = machine.step(&mut state, input);
        journal.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Emit(event) => Some(event.clone()),
            _ => None,
        }));
        simulation.take(effects);
    }
    // "b" completes the flow, so it needs approval; approve it.
    let effects = machine.step(
        &mut state,
        Input::Decided {
            id: "b".into(),
            decision: Decision::Approve,
        },
    );
    journal.extend(effects.iter().filter_map(|effect| match effect {
        Effect::Emit(event) => Some(event.clone()),
        _ => None,
    }));
    let mut state = LoopState::from_events("s", &journal);
    let effects = machine.step(&mut state, Input::Resume);
    let run: Vec<&str> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Run { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(run, ["a"]);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Prepare { id, .. } if id == "c"))
    );
    let unknown = effects.iter().find_map(|effect| match effect {
        Effect::Emit(Event::CallFinished { id, result, .. }) if id == "b" => result.error.clone(),
        _ => None,
    });
    assert!(unknown.unwrap().to_string().contains("outcome is unknown"));
}

#[test]
fn finished_call_keeps_its_result_when_the_turn_is_stopped() {
    let machine = Machine::default();
    let mut state = LoopState::new("s");
    let info = ProviderInfo {
        provider: "p".into(),
        model: "m".into(),
    };
    let call = |id: &str| {
        Part::Call(CallRequest {
            id: id.into(),
            name: "t".into(),
            arguments: "{}".into(),
            opaque: Value::Null,
        })
    };
    let machine = Machine {
        policy: LoopPolicy::default(),
        ..machine
    };
    let prepared = |id: &str| Input::Prepared {
        id: id.into(),
        arguments: Ok(json!({})),
        places: None,
    };
    let inputs = [
        Input::Begin {
            message: Message::user("go"),
            provider: info,
            unanswered: false,
            flow: DataFlow::default(),
        },
        Input::Prompted {
            message: None,
            instructions: String::new(),
        },
        Input::Answered {
            completion: Completion {
                parts: vec![call("done"), call("running"), call("waiting")],
                stop: StopReason::Complete,
                usage: None,
            },
            cut: vec![],
        },
        prepared("done"),
        prepared("running"),
    ];
    for input in inputs {
        machine.step(&mut state, input);
    }
    let done = CallResult {
        content: vec![Content::text("just in time")],
        ..CallResult::default()
    };
    machine.step(
        &mut state,
        Input::Stop {
            outcome: TurnOutcome::Cancelled,
            partial: String::new(),
            ended: BTreeMap::from([("done".into(), done)]),
        },
    );
    let texts: Vec<String> = state.messages.iter().skip(2).map(|m| m.text()).collect();
    assert_eq!(
        texts,
        [
            "just in time",
            "Error: the call was cancelled before it ended; its effects are unknown.",
            "Error: the turn ended before this call began; nothing was done",
        ]
    );
}

#[test]
fn duplicate_event_in_a_journal_counts_once() {
    let started = Event::TurnStarted {
        version: 1,
        session: "s".into(),
        provider: "p".into(),
        model: "m".into(),
        message: Message::user("go"),
        unanswered: false,
    };
    let answered = Event::StepFinished {
        step: 1,
        message: Message::Assistant {
            parts: vec![Part::Call(CallRequest {
                id: "c".into(),
                name: "t".into(),
                arguments: "{}".into(),
                opaque: Value::Null,
            })],
        },
        stop: StopReason::Complete,
        usage: None,
    };
    let finished = |text: &str| Event::CallFinished {
        id: "c".into(),
        tool: "t".into(),
        result: CallResult::text(text),
    };
    let once = [started, answered, finished("first")];
    let twice = [&once[..], &[finished("second")]].concat();
    let state = LoopState::from_events("s", &twice);
    assert_eq!(state, LoopState::from_events("s", &once));
    assert_eq!(state.messages.last().unwrap().text(), "first");
    assert_eq!(state.spent().calls, 1);
}
