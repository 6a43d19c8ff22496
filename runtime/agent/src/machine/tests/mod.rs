//! Property tests of interleavings: for inputs in any order, duplicated or unexpected, each call has exactly one
//! result, and a state that was stored and loaded continues as if it had not been.

mod recovery;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcell_core::event::{DataFlow, TurnOutcome};
use toolcell_core::message::CallRequest;
use toolcell_core::provider::{
    Completion, ProviderError, ProviderErrorKind, ProviderInfo, StopReason, Usage,
};
use toolcell_core::{Content, Event, Message, Part, ToolError};

use super::*;
use crate::approval::{ApprovalRule, FlowGuard, Verdict};
use crate::policy::{AllFailed, CallsPerStep, ContextPolicy, ErrorVisibility, Finish, NoCall, OnLimit};
use crate::preset;
use crate::testing::assert_paired;

/// Choices of the simulated environment; each number picks one of the possible inputs.
#[derive(Debug, Clone)]
struct Plot {
    policy: LoopPolicy,
    concurrency: usize,
    choices: Vec<u32>,
    /// Steps after which the process ends and another one continues from the journal.
    crashes: Vec<usize>,
}

fn policies() -> impl Strategy<Value = LoopPolicy> {
    let finish = prop::sample::select(vec![Finish::Content, Finish::Tool, Finish::Either]);
    let limit = prop::sample::select(vec![
        OnLimit::FinalAnswer,
        OnLimit::LastContent,
        OnLimit::BestEffort,
        OnLimit::Stop,
    ]);
    let no_call = prop::sample::select(vec![NoCall::End, NoCall::Nudge { after: 2 }, NoCall::Reprompt]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (finish, limit, no_call, flags, 1u32..6).prop_map(|(finish, on_limit, no_call, flags, max_steps)| {
        LoopPolicy {
            finish,
            on_limit,
            no_call,
            max_steps,
            calls_per_step: if flags.0 {
                CallsPerStep::One
            } else {
                CallsPerStep::Many
            },
            all_failed: if flags.1 {
                AllFailed::FallbackAnswer
            } else {
                AllFailed::Continue
            },
            error_visibility: if flags.2 {
                ErrorVisibility::Ephemeral
            } else {
                ErrorVisibility::Stored
            },
            provider_retries: 1,
            context: ContextPolicy {
                summarise_at: flags.3.then_some(60),
                keep_rounds: 1,
                ..ContextPolicy::default()
            },
            ..preset::stepwise()
        }
    })
}

fn plots() -> impl Strategy<Value = Plot> {
    (
        policies(),
        1usize..4,
        prop::collection::vec(any::<u32>(), 1..80),
        prop::collection::vec(0usize..60, 0..3),
    )
        .prop_map(|(policy, concurrency, choices, crashes)| Plot {
            policy,
            concurrency,
            choices,
            crashes,
        })
}

fn machine(plot: &Plot) -> Machine {
    let facts = |idempotent, flow, control| ToolFacts {
        idempotent,
        exclusive: false,
        polling: false,
        flow,
        control,
        of_client: false,
    };
    let flow = |bits: u8| DataFlow {
        reads_private: bits & 1 != 0,
        untrusted_content: bits & 2 != 0,
        can_send_out: bits & 4 != 0,
        ..DataFlow::default()
    };
    Machine {
        policy: LoopPolicy {
            concurrency: plot.concurrency,
            ..plot.policy.clone()
        },
        overhead: 0,
        approvals: Approvals {
            rules: vec![
                ApprovalRule::tool("asks", Verdict::Ask),
                ApprovalRule::tool("denied", Verdict::Deny),
            ],
            flow: FlowGuard::Ask,
            ..Approvals::default()
        },
        places: Places::default(),
        answer: None,
        tools: BTreeMap::from([
            ("again".into(), facts(true, flow(1), None)),
            ("once".into(), facts(false, flow(6), None)),
            (
                "asks".into(),
                ToolFacts {
                    exclusive: true,
                    ..facts(false, flow(0), None)
                },
            ),
            ("denied".into(), facts(false, flow(0), None)),
            (
                "task_completion".into(),
                facts(true, flow(0), Some(Control::TaskCompletion)),
            ),
        ]),
    }
}

/// Simulated environment: operations in progress, and observations.
#[derive(Default)]
struct Simulation {
    pending: Vec<Effect>,
    journal: Vec<Event>,
    folded: LoopState,
    started: BTreeMap<String, u32>,
    finished: BTreeMap<String, u32>,
    runs: BTreeMap<String, u32>,
    ids: u32,
}

impl Simulation {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Emit(event) => {
                    match &event {
                        Event::CallStarted { id, .. } => *self.started.entry(id.clone()).or_default() += 1,
                        Event::CallFinished { id, .. } => {
                            *self.finished.entry(id.clone()).or_default() += 1;
                            assert!(self.started.contains_key(id), "{id} ended before it began");
                        }
                        _ => {}
                    }
                    self.folded.apply(&event);
                    self.journal.push(event);
                }
                Effect::Run {
                    id,
                    tool,
                    arguments,
                    places,
                    suspended,
                } => {
                    let state = (suspended.is_some()).then(|| json!({"of": id}));
                    assert_eq!(suspended, state, "it continues from its own state");
                    assert!(!self.finished.contains_key(&id), "{id} runs again after its end");
                    assert_ne!(tool, "denied");
                    assert_eq!(arguments, json!({"id": id}), "other arguments than were checked");
                    *self.runs.entry(id.clone()).or_default() += 1;
                    self.pending.push(Effect::Run {
                        id,
                        tool,
                        arguments,
                        places,
                        suspended,
                    });
                }
                other => self.pending.push(other),
            }
        }
    }

    /// One of the possible inputs.
    fn next(&mut self, state: &LoopState, choice: u32) -> Input {
        let info = ProviderInfo {
            provider: "p".into(),
            model: "m".into(),
        };
        if state.turn.is_none() {
            self.pending.clear();
            return Input::Begin {
                message: Message::user("hello"),
                provider: info,
                unanswered: false,
                flow: DataFlow::default(),
            };
        }
        // Sometimes an unexpected input.
        match choice % 29 {
            0 => return Input::Resume,
            1 => {
                return Input::Returned {
                    id: "missing".into(),
                    result: CallResult::default(),
                };
            }
            2 => {
                return Input::Stop {
                    outcome: TurnOutcome::Cancelled,
                    partial: "half".into(),
                    ended: BTreeMap::new(),
                };
            }
            _ => {}
        }
        if self.pending.is_empty() {
            return Input::Resume;
        }
        let at = (choice / 29) as usize % self.pending.len();
        // Sometimes an answer is duplicated.
        let effect = if choice.is_multiple_of(7) {
            self.pending[at].clone()
        } else {
            self.pending.remove(at)
        };
        self.answer(&effect, choice)
    }

    fn answer(&mut self, effect: &Effect, choice: u32) -> Input {
        match effect {
            Effect::Emit(_) => unreachable!("events are not kept"),
            Effect::Prompt => Input::Prompted {
                message: None,
                instructions: String::new(),
            },
            Effect::Request { .. } => self.model(choice),
            Effect::Summarise { messages, .. } if choice.is_multiple_of(2) => Input::Summarised {
                removed: *messages,
                replacement: vec![
                    Message::user("Summary:"),
                    Message::assistant("s"),
                    Message::user("Go on"),
                ],
                usage: None,
            },
            Effect::Summarise { .. } => Input::SummaryFailed {
                reason: "no".into(),
                usage: None,
                outcome: choice.is_multiple_of(7).then(|| TurnOutcome::Aborted {
                    by: "h".into(),
                    reason: "no".into(),
                }),
            },
            Effect::Prepare { id, .. } => Input::Prepared {
                places: None,
                id: id.clone(),
                arguments: if choice.is_multiple_of(5) {
                    Err(RefusedCall {
                        arguments: json!("?"),
                        error: ToolError::invalid("no"),
                    })
                } else {
                    Ok(json!({"id": id}))
                },
            },
            Effect::Ask(request) => Input::Decided {
                id: request.id.clone(),
                decision: match choice % 3 {
                    0 => Decision::Approve,
                    1 => Decision::Deny { reason: None },
                    _ => Decision::Later,
                },
            },
            // Only a call of an agent does so.
            Effect::Run { id, tool, .. } if choice.is_multiple_of(6) && tool == "again" => Input::Suspended {
                id: id.clone(),
                state: json!({"of": id}),
                receipt: None,
            },
            Effect::Run { id, .. } => Input::Returned {
                id: id.clone(),
                result: CallResult {
                    content: vec![Content::text(format!("r{}", choice % 3))],
                    error: (choice.is_multiple_of(4)).then(|| ToolError::Failed {
                        message: "broken".into(),
                    }),
                    ..CallResult::default()
                },
            },
        }
    }

    fn model(&mut self, choice: u32) -> Input {
        let tools = ["again", "once", "asks", "denied", "unknown", "task_completion"];
        if choice.is_multiple_of(11) {
            return Input::AnswerFailed {
                error: ProviderError::new("p", ProviderErrorKind::ContextLength, "x"),
                partial: "par".into(),
            };
        }
        let mut parts = Vec::new();
        if choice.is_multiple_of(3) {
            parts.push(Part::text("text"));
        }
        for i in 0..(choice / 3) % 5 {
            self.ids += 1;
            // Sometimes a repeated identifier.
            let id = if choice.is_multiple_of(13) {
                "same".to_owned()
            } else {
                format!("c{}", self.ids)
            };
            parts.push(Part::Call(CallRequest {
                id,
                name: tools[((choice >> 8) + i) as usize % tools.len()].into(),
                arguments: if choice.is_multiple_of(17) {
                    String::new()
                } else {
                    "{}".into()
                },
                opaque: Value::Null,
            }));
        }
        let stop = if choice.is_multiple_of(5) {
            StopReason::MaxTokens
        } else {
            StopReason::Complete
        };
        Input::Answered {
            completion: Completion {
                parts,
                stop,
                usage: Some(Usage {
                    input: u64::from(choice % 100),
                    output: 3,
                    ..Usage::default()
                }),
            },
            cut: if choice.is_multiple_of(19) {
                vec!["once".into()]
            } else {
                Vec::new()
            },
        }
    }
}

/// A state as restored from a journal, which does not contain checked arguments.
fn unprepared(mut state: LoopState) -> LoopState {
    for call in state.turn.iter_mut().flat_map(|turn| &mut turn.calls) {
        if let Stage::Ready { approved: None, .. } = call.stage {
            call.stage = Stage::Accepted;
        }
    }
    state
}

fn play(plot: &Plot) -> Result<(), TestCaseError> {
    let machine = machine(plot);
    let mut state = LoopState::new("s");
    let mut simulation = Simulation {
        folded: LoopState::new("s"),
        ..Simulation::default()
    };
    for (number, choice) in plot.choices.iter().enumerate() {
        let input = simulation.next(&state, *choice);
        if input == Input::Resume {
            simulation.pending.clear();
        }
        // Storing and loading in between makes no difference.
        let text = serde_json::to_string(&state).unwrap();
        let mut loaded: LoopState = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&loaded, &state);
        let effects = machine.step(&mut state, input.clone());
        prop_assert_eq!(&machine.step(&mut loaded, input), &effects);
        prop_assert_eq!(&loaded, &state);
        simulation.take(effects);

        prop_assert_eq!(&unprepared(state.clone()), &simulation.folded);
        if state.turn.as_ref().is_none_or(Turn::settled) {
            assert_paired(&state.messages);
        }
        let running: Vec<&Call> = state
            .turn
            .iter()
            .flat_map(|turn| &turn.calls)
            .filter(|call| matches!(call.stage, Stage::Running { .. }))
            .collect();
        prop_assert!(running.len() <= plot.concurrency);
        let alone = running.iter().any(|call| call.request.name == "asks");
        prop_assert!(
            !alone || running.len() == 1,
            "an exclusive call does not run alone"
        );
        if plot.crashes.contains(&number) {
            state = simulation.folded.clone();
            simulation.pending.clear();
        }
    }
    // Everything open is completed.
    let effects = machine.step(
        &mut state,
        Input::Stop {
            outcome: TurnOutcome::Cancelled,
            partial: String::new(),
            ended: BTreeMap::new(),
        },
    );
    simulation.take(effects);
    prop_assert!(state.turn.is_none());
    assert_paired(&state.messages);
    let asked = simulation.journal.iter().filter_map(|event| match event {
        Event::StepFinished { message, .. } => {
            Some(message.calls().map(|c| c.id.clone()).collect::<Vec<_>>())
        }
        _ => None,
    });
    for id in asked.flatten() {
        prop_assert_eq!(simulation.finished.get(&id), Some(&1), "results of {}", id);
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_interleaving_gives_each_call_exactly_one_result(plot in plots()) {
        play(&plot)?;
    }
}
