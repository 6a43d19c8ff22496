//! Early ends of a turn: step limit, deadline, cancellation, a dropped future.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::provider::{ProviderErrorKind, ToolChoice};
use toolcell_core::tool::Hints;
use toolcell_core::{Message, Tool, ToolError};

use super::{RecordedEvents, agent};
use crate::testing::{Say, Script, call, slow_tool, tool, tool_with};
use toolcell_agent::AgentError;
use toolcell_agent::TurnStart;
use toolcell_agent::policy::LoopPolicy;

fn echo() -> Arc<dyn Tool> {
    tool("echo", |arguments| {
        Ok(Value::Object(arguments.clone()).to_string())
    })
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

#[tokio::test]
async fn last_request_at_the_step_limit_is_without_tools() {
    let ask = |i: u32| call(["1", "2", "3"][i as usize], "echo", &json!({"i": i}));
    for (limit, outcome) in [
        (4, TurnOutcome::Completed),
        (3, TurnOutcome::StepLimit { steps: 3 }),
    ] {
        let script = Script::new([ask(0), ask(1), Say::Text("So far so good.")]);
        let policy = LoopPolicy {
            max_steps: limit,
            ..LoopPolicy::default()
        };
        let mut session = agent(&script)
            .tool(echo())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(
            (report.outcome, report.text.as_str()),
            (outcome, "So far so good.")
        );
        let last = script.requests().pop().unwrap();
        let choice = if limit == 4 {
            ToolChoice::Auto
        } else {
            ToolChoice::None
        };
        assert_eq!(last.tool_choice, choice);
        script.assert_played();
    }
}

#[tokio::test]
async fn calls_in_the_last_answer_are_not_executed() {
    let script = Script::new([
        call("1", "echo", &json!({})),
        Say::Calls("I try again.", vec![("2", "echo", "{}".into())]),
        Say::Text("Next turn."),
    ]);
    let policy = LoopPolicy {
        max_steps: 2,
        ..LoopPolicy::default()
    };
    let mut session = agent(&script)
        .tool(echo())
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.text, "I try again.");
    assert!(report.calls[1].result.error.is_some());
    // The scripted provider checks the conversation of the next turn.
    assert_eq!(session.ask("More").await.unwrap().text, "Next turn.");
}

#[tokio::test(start_paused = true)]
async fn cancelled_calls_have_results_and_receipts() {
    let script = Script::new([
        Say::Calls(
            "Working.",
            vec![
                ("1", "quick", "{}".into()),
                ("2", "slow", "{}".into()),
                ("3", "slow", "{}".into()),
            ],
        ),
        Say::Text("Next."),
    ]);
    let recorded = RecordedEvents::default();
    let cancel = never();
    let policy = LoopPolicy {
        concurrency: 2,
        ..LoopPolicy::default()
    };
    let tools = [
        tool("quick", |_| Ok("ok".into())),
        slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into())),
    ];
    let mut session = agent(&script)
        .tools(tools)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let token = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        token.cancel();
    });
    let report = session.run(Message::user("Go"), &recorded, cancel).await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Cancelled);
    assert_eq!(report.text, "Working.");
    let ended: Vec<_> = report
        .calls
        .iter()
        .map(|c| {
            (
                c.id.as_str(),
                c.result.error.as_ref().map(ToolError::kind),
                c.result.receipt.as_ref().map(|r| r.fuel),
            )
        })
        .collect();
    assert_eq!(
        ended,
        [
            ("1", None, None),
            ("2", Some("cancelled"), Some(7)),
            ("3", Some("cancelled"), Some(7))
        ]
    );
    let events = recorded.names();
    assert_eq!(events.iter().filter(|name| *name == "call_started").count(), 3);
    assert_eq!(events.iter().filter(|name| *name == "call_finished").count(), 3);
    assert_eq!(events.last().unwrap(), "turn_finished");
    assert_eq!(session.ask("And now?").await.unwrap().text, "Next.");
}

#[tokio::test(start_paused = true)]
async fn one_call_is_cancelled_and_the_turn_goes_on() {
    let script = Script::new([
        Say::Calls(
            "Working.",
            vec![
                ("1", "slow", "{}".into()),
                ("2", "slow", "{}".into()),
                ("3", "slow", "{}".into()),
            ],
        ),
        Say::Text("Done."),
    ]);
    let mut session = agent(&script)
        .tools([slow_tool("slow", Duration::from_secs(60), |_| {
            Ok("in time".into())
        })])
        .policy(LoopPolicy {
            concurrency: 2,
            ..LoopPolicy::default()
        })
        .build()
        .unwrap()
        .session();
    let calls = session.calls();
    assert!(!calls.cancel("1"), "nothing runs");
    let running = calls.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The first runs, the last has not begun, and there is no other.
        assert!(running.cancel("1"));
        assert!(!running.cancel("x"));
    });
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    let ended: Vec<_> = report
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.result.error.as_ref().map(ToolError::kind)))
        .collect();
    assert_eq!(ended, [("1", Some("cancelled")), ("2", None), ("3", None)]);
    // The receipt of what it did is there, and the model reads what happened.
    assert_eq!(
        report.calls[0]
            .result
            .receipt
            .as_ref()
            .map(|receipt| receipt.fuel),
        Some(7)
    );
    let told = script.requests()[1]
        .messages
        .iter()
        .map(|message| message.text())
        .collect::<String>();
    assert!(told.contains("cancelled"), "{told}");
    assert!(!calls.cancel("1") && !calls.cancel("2"), "nothing runs");
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_turn_waiting_for_the_model_or_a_call() {
    let slow = || slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    for say in [
        Say::Hang("So I thi"),
        Say::Calls("So I thi", vec![("1", "slow", "{}".into())]),
    ] {
        let script = Script::new([say]);
        let policy = LoopPolicy {
            deadline_ms: Some(5_000),
            ..LoopPolicy::default()
        };
        let mut session = agent(&script)
            .tool(slow())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        assert_eq!(report.outcome, TurnOutcome::Deadline { ms: 5_000 });
        assert_eq!(report.text, "So I thi");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_and_calls_have_their_own_timeouts() {
    let script = Script::new([call("1", "slow", &json!({})), Say::Hang("So")]);
    let policy = LoopPolicy {
        request_timeout_ms: Some(2_000),
        call_timeout_ms: Some(1_000),
        ..LoopPolicy::default()
    };
    let slow = slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    let mut session = agent(&script)
        .tool(slow)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        report.calls[0].result.error.as_ref().unwrap().to_string(),
        "stopped by a limit: not finished after 1 s"
    );
    assert_eq!(report.calls[0].result.receipt.as_ref().unwrap().fuel, 7);
    assert!(
        matches!(report.outcome, TurnOutcome::ProviderFailed { error } if error.kind == ProviderErrorKind::Timeout)
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_turn_resumes_and_nothing_runs_twice() {
    let script = Script::new([
        Say::Calls("", vec![("1", "count", "{}".into()), ("2", "slow", "{}".into())]),
        Say::Text("Done."),
    ]);
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let counting = tool_with(
        "count",
        r#"{"type":"object"}"#,
        Hints {
            idempotent: true,
            ..Hints::default()
        },
        move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok("ok".into())
        },
    );
    let slow = slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    let mut session = agent(&script).tools([counting, slow]).build().unwrap().session();
    let dropped = tokio::time::timeout(Duration::from_secs(1), session.ask("Go")).await;
    assert!(dropped.is_err() && session.is_open());
    assert!(matches!(
        session.ask("Hello?").await,
        Err(AgentError::TurnOpen { .. })
    ));
    let report = session
        .run(TurnStart::Resume, &toolcell_agent::NullSink, never())
        .await
        .unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(
        report.calls[0]
            .result
            .error
            .as_ref()
            .unwrap()
            .to_string()
            .contains("outcome is unknown")
    );
    assert!(matches!(
        session
            .run(TurnStart::Resume, &toolcell_agent::NullSink, never())
            .await,
        Err(AgentError::NoTurn { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn cancelling_at_any_point_leaves_every_call_with_a_result() {
    let tools = || {
        [
            slow_tool("short", Duration::from_millis(3), |_| Ok("short".into())),
            slow_tool("long", Duration::from_millis(11), |_| Ok("long".into())),
        ]
    };
    for moment in 0..30 {
        let round = || {
            Say::Calls(
                "",
                vec![
                    ("", "short", "{}".into()),
                    ("", "long", "{}".into()),
                    ("", "short", "{}".into()),
                ],
            )
        };
        let script = Script::new([round(), round(), Say::Text("Done."), Say::Text("Done.")]);
        let policy = LoopPolicy {
            concurrency: 2,
            ..LoopPolicy::default()
        };
        let mut session = agent(&script)
            .tools(tools())
            .policy(policy)
            .build()
            .unwrap()
            .session();
        let cancel = never();
        let token = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(moment)).await;
            token.cancel();
        });
        let report = session
            .run(Message::user("Go"), &toolcell_agent::NullSink, cancel)
            .await
            .unwrap();
        crate::testing::assert_paired(&report.messages);
        // Two rounds take 11 ms each.
        if moment != 22 {
            let cancelled = report.outcome == TurnOutcome::Cancelled;
            assert_eq!(cancelled, moment < 22, "at {moment} ms: {:?}", report.outcome);
        }
        assert_eq!(session.ask("Next").await.unwrap().outcome, TurnOutcome::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_turn_can_be_abandoned() {
    let script = Script::new([
        Say::Calls("", vec![("1", "slow", "{}".into())]),
        Say::Text("New."),
    ]);
    let slow = slow_tool("slow", Duration::from_secs(3600), |_| Ok("late".into()));
    let mut session = agent(&script).tool(slow).build().unwrap().session();
    let _ = tokio::time::timeout(Duration::from_secs(1), session.ask("Go")).await;
    let report = session
        .run(
            TurnStart::Abandon,
            &toolcell_agent::NullSink,
            CancellationToken::new(),
        )
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Cancelled);
    assert_eq!(report.calls[0].result.error, Some(ToolError::Cancelled));
    assert_eq!(session.ask("Something else").await.unwrap().text, "New.");
    assert!(matches!(
        session
            .run(
                TurnStart::Abandon,
                &toolcell_agent::NullSink,
                CancellationToken::new()
            )
            .await,
        Err(AgentError::NoTurn { .. })
    ));
}
