//! Limits of repetition, budgets, and the length of the conversation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{ReminderKind, TurnOutcome};
use toolcell_core::provider::{ProviderErrorKind, ToolChoice};
use toolcell_core::{Event, Message};

use super::{RecordedEvents, agent};
use crate::testing::{Say, Script, call, slow_tool, tool};
use toolcell_agent::budget::{Budget, Prices};
use toolcell_agent::policy::{ContextPolicy, LoopPolicy, Prune, Repeats};

fn same() -> Say {
    call("", "status", &json!({"of": "job"}))
}

fn reminders(recorded: &RecordedEvents) -> Vec<ReminderKind> {
    recorded
        .all()
        .iter()
        .filter_map(|event| match event {
            Event::Reminder { kind, .. } => Some(*kind),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn identical_calls_are_warned_at_three_and_end_the_turn_at_five() {
    for (times, outcome) in [
        (4, TurnOutcome::Completed),
        (
            5,
            TurnOutcome::Repeating {
                tool: "status".into(),
                times: 5,
            },
        ),
    ] {
        let script = Script::new((0..times).map(|_| same()).chain([Say::Text("It is not done.")]));
        let recorded = RecordedEvents::default();
        let mut session = agent(&script)
            .tool(tool("status", |_| Ok("not yet".into())))
            .build()
            .unwrap()
            .session();
        let report = session
            .run(Message::user("Go"), &recorded, CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(
            (report.outcome, report.text.as_str()),
            (outcome, "It is not done.")
        );
        let sent = script.requests()[3].messages.last().unwrap().text();
        assert!(sent.contains("`status` for the 3rd time"), "{sent}");
        assert_eq!(script.requests()[2].messages.last().unwrap().text(), "not yet");
        if times == 5 {
            assert_eq!(script.requests()[5].tool_choice, ToolChoice::None);
        }
        script.assert_played();
    }
}

#[tokio::test]
async fn alternating_calls_with_reordered_arguments_are_repetitions() {
    let other = || call("", "other", &json!({}));
    let turned = Say::Calls("", vec![("", "status", r#"{"b":2,"a":1}"#.into())]);
    let first = || Say::Calls("", vec![("", "status", r#"{"a":1,"b":2}"#.into())]);
    let script = Script::new([first(), other(), turned, other(), first(), Say::Text("Done.")]);
    let recorded = RecordedEvents::default();
    let number = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tools = [
        tool("status", |_| Ok("same".into())),
        tool("other", move |_| {
            Ok(number
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
                .to_string())
        }),
    ];
    let mut session = agent(&script).tools(tools).build().unwrap().session();
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(reminders(&recorded), [ReminderKind::Repeating]);
}

#[tokio::test]
async fn changing_result_is_no_repetition() {
    let script = Script::new((0..7).map(|_| same()).chain([Say::Text("Done.")]));
    let number = std::sync::atomic::AtomicU32::new(0);
    let counting = tool("status", move |_| {
        Ok(number
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
            .to_string())
    });
    let mut session = agent(&script).tool(counting).build().unwrap().session();
    assert_eq!(session.ask("Go").await.unwrap().outcome, TurnOutcome::Completed);
}

fn spending(budget: Budget) -> LoopPolicy {
    LoopPolicy {
        budget,
        repeats: Repeats { warn: 0, stop: 0 },
        ..LoopPolicy::default()
    }
}

#[tokio::test]
async fn call_budget_refuses_the_next_call_and_ends_the_turn() {
    let three = vec![
        ("1", "t", "{}".into()),
        ("2", "t", "{}".into()),
        ("3", "t", "{}".into()),
    ];
    let script = Script::new([Say::Calls("On it.", three)]);
    let policy = LoopPolicy {
        concurrency: 1,
        ..spending(Budget {
            calls: Some(2),
            ..Budget::default()
        })
    };
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let errors: Vec<bool> = report
        .calls
        .iter()
        .map(|call| call.result.error.is_some())
        .collect();
    assert_eq!(errors, [false, false, true]);
    let read = report.calls[2].result.error.as_ref().unwrap().for_model();
    assert!(
        read.contains("the budget of 2 calls is used up (2 were used); no more calls are made"),
        "{read}"
    );
    assert_eq!(report.text, "On it.");
    let TurnOutcome::Budget { reason } = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert!(reason.starts_with("the budget of 2 calls"), "{reason}");
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn token_and_cost_budgets_span_turns() {
    // Each request costs 10 tokens in and 5 out. The rest after two requests is too small for a third.
    let prices = Prices {
        input: 1_000_000,
        output: 2_000_000,
        ..Prices::default()
    };
    for budget in [
        Budget {
            tokens: Some(60),
            ..Budget::default()
        },
        Budget {
            cost_micros: Some(80),
            prices: Some(prices),
            ..Budget::default()
        },
    ] {
        let script = Script::new([Say::Text("One."), Say::Text("Two."), Say::Text("Three.")]);
        let mut session = agent(&script).policy(spending(budget)).build().unwrap().session();
        assert_eq!(session.ask("1").await.unwrap().outcome, TurnOutcome::Completed);
        assert_eq!(session.ask("2").await.unwrap().outcome, TurnOutcome::Completed);
        let report = session.ask("3").await.unwrap();
        assert!(
            matches!(report.outcome, TurnOutcome::Budget { .. }),
            "{:?}",
            report.outcome
        );
        assert_eq!(script.requests().len(), 2, "nothing is sent once it is used up");
    }
}

#[tokio::test(start_paused = true)]
async fn time_budget_spans_turns_and_ends_running_calls() {
    let script = Script::new([
        call("1", "slow", &json!({})),
        Say::Text("One."),
        Say::Calls("Again.", vec![("2", "slow", "{}".into())]),
    ]);
    let slow = slow_tool("slow", Duration::from_secs(6), |_| Ok("ok".into()));
    let policy = spending(Budget {
        wall_ms: Some(10_000),
        ..Budget::default()
    });
    let mut session = agent(&script)
        .tool(slow)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    assert_eq!(session.ask("1").await.unwrap().outcome, TurnOutcome::Completed);
    let spent = session.state().spent().wall_ms;
    assert!((6_000..6_100).contains(&spent), "{spent}");
    let report = session.ask("2").await.unwrap();
    assert_eq!(
        report.outcome,
        TurnOutcome::Budget {
            reason: "the budget of 10000 ms of time is used up".into()
        }
    );
    assert_eq!((report.text.as_str(), report.calls.len()), ("Again.", 1));
    // Nothing is sent once it is used up.
    assert!(matches!(
        session.ask("3").await.unwrap().outcome,
        TurnOutcome::Budget { .. }
    ));
    assert_eq!(script.requests().len(), 3);
}

#[tokio::test]
async fn too_long_conversation_is_summarised_and_resent() {
    let script = Script::new([
        call("1", "t", &json!({})),
        call("2", "t", &json!({})),
        Say::Fail("", ProviderErrorKind::ContextLength),
        Say::Text("The summary."),
        Say::Text("Done."),
    ]);
    let policy = LoopPolicy {
        context: ContextPolicy {
            keep_rounds: 1,
            ..ContextPolicy::default()
        },
        ..LoopPolicy::default()
    };
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    let last: Vec<String> = script.requests()[4].messages.iter().map(|m| m.text()).collect();
    assert_eq!(
        last,
        [
            "Summary of the conversation so far:",
            "The summary.",
            "Please continue.",
            "",
            "ok"
        ]
    );
}

#[tokio::test]
async fn conversation_that_stays_too_long_ends_the_turn() {
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Fail("", ProviderErrorKind::ContextLength),
        Say::Text("The summary."),
        Say::Fail("", ProviderErrorKind::ContextLength),
    ]);
    let policy = LoopPolicy {
        context: ContextPolicy {
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..LoopPolicy::default()
    };
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert!(
        matches!(report.outcome, TurnOutcome::ProviderFailed { error } if error.kind == ProviderErrorKind::ContextLength)
    );
}

#[tokio::test]
async fn plan_is_repeated_after_a_summary_removed_it() {
    let plan = json!({"goal": "Win", "steps": [{"description": "Play"}]});
    let script = Script::new([
        call("1", "update_plan", &plan),
        call("2", "t", &json!({})),
        Say::Text("The summary."),
        call("3", "task_completion", &json!({"result": "Won."})),
    ]);
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(500),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..toolcell_agent::preset::stepwise()
    };
    let long = tool("t", |_| Ok("x".repeat(4_000)));
    let mut session = agent(&script)
        .tool(long)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.text, "Won.");
    let sent = script.requests()[3].messages.last().unwrap().text();
    assert_eq!(sent, "The current plan:\nGoal: Win\n1. [>] Play");
}

#[tokio::test]
async fn old_results_are_pruned_at_once_and_stay_in_the_events() {
    let script = Script::new(
        (0..6)
            .map(|i| call("", "t", &json!({"i": i})))
            .chain([Say::Text("Done.")]),
    );
    let policy = LoopPolicy {
        context: ContextPolicy {
            prune: Some(Prune {
                protect: 210,
                at_least: 300,
            }),
            ..ContextPolicy::default()
        },
        ..LoopPolicy::default()
    };
    let long = tool("t", |arguments| {
        Ok(format!("{}{}", arguments["i"], "x".repeat(399)))
    });
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(long)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    let left: Vec<bool> = session
        .messages()
        .iter()
        .filter(|message| matches!(message.as_ref(), Message::Tool { .. }))
        .map(|message| message.text().starts_with("[old result left out"))
        .collect();
    // Three of five results are pruned; the sixth is added afterwards.
    assert_eq!(left, [true, true, true, false, false, false]);
    let prunings = recorded
        .names()
        .iter()
        .filter(|name| *name == "results_pruned")
        .count();
    assert_eq!(prunings, 1);
    let kept = recorded
        .all()
        .iter()
        .filter(|event| matches!(event, Event::CallFinished { result, .. } if result.byte_len() == 400))
        .count();
    assert_eq!(kept, 6);
}

#[tokio::test]
async fn calls_of_an_answer_have_a_limit_of_memory_together() {
    use toolcell_core::json::{MAX_ARGUMENT_MEMORY, memory_of_text};

    let objects = |count| format!(r#"{{"a":[{}]}}"#, vec![r#"{"":0}"#; count].join(","));
    let counts: Vec<usize> = (0..30_000).collect();
    let most = counts.partition_point(|n| memory_of_text(&objects(*n)) <= MAX_ARGUMENT_MEMORY) - 1;
    let most = objects(most);
    // The second call has no room beside the first ones, and one that is too large alone takes none.
    let too_large = objects(30_000);
    let calls = [&most, &too_large, &most, &most, "{}"];
    for concurrency in [8, 1] {
        let script = Script::new([
            Say::Calls(
                "",
                calls
                    .iter()
                    .map(|text| ("", "keep", (*text).to_owned()))
                    .collect(),
            ),
            Say::Text("Done."),
        ]);
        let mut session = agent(&script)
            .tool(tool("keep", |_| Ok("kept".into())))
            .policy(LoopPolicy {
                concurrency,
                ..LoopPolicy::default()
            })
            .build()
            .unwrap()
            .session();
        let recorded = RecordedEvents::default();
        session
            .run(Message::user("Go"), &recorded, CancellationToken::new())
            .await
            .unwrap();
        let sent = script.requests().pop().unwrap().messages;
        let results: Vec<String> = sent[2..].iter().map(|message| message.text()).collect();
        for (result, expected) in results.iter().zip([
            "kept",
            "so many values",
            "kept",
            "the calls of this answer",
            "the calls of this answer",
        ]) {
            assert!(result.contains(expected), "{concurrency}: {results:?}");
        }
        assert_eq!(results.len(), calls.len());
    }
}
