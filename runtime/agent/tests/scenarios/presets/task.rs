//! Preset `task` (design W): a session that works on a task until the model calls `task_complete`.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{ReminderKind, TurnOutcome};
use toolcell_core::provider::{ProviderErrorKind, Request, ToolChoice};
use toolcell_core::{Event, Message};

use crate::testing::{Say, Script, call, tool};
use crate::{RecordedEvents, agent};
use toolcell_agent::LoopState;
use toolcell_agent::NullSink;
use toolcell_agent::TurnStart;
use toolcell_agent::policy::{ContextPolicy, LoopPolicy};
use toolcell_agent::preset;

fn complete(result: i32) -> Say {
    call(
        "end",
        "task_complete",
        &json!({"summary": "Analysed.", "result": {"findings": [result]}}),
    )
}

#[tokio::test]
async fn w01_w04_w05_w07_session_ends_when_its_task_is_complete() {
    let script = Script::new([
        Say::Calls(
            "I search.",
            vec![("1", "search", json!({"query": "x"}).to_string())],
        ),
        complete(7),
    ]);
    let recorded = RecordedEvents::default();
    let search = tool("search", |_| Ok("two results".into()));
    let agent = agent(&script)
        .tool(search)
        .policy(preset::task())
        .build()
        .unwrap();
    let running = agent
        .session_from(LoopState::new("session-1"))
        .spawn(Message::user("Begin."), Arc::new(recorded.clone()));
    assert_eq!(running.id(), "session-1");
    let (session, report) = running.await;
    let report = report.unwrap();
    assert_eq!(
        (session.id(), report.session.as_str()),
        ("session-1", "session-1")
    );
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert_eq!((report.text.as_str(), report.steps), ("Analysed.", 2));
    assert_eq!(report.result, Some(json!({"findings": [7]})));
    assert_eq!(report.messages.len(), 5);
    assert_eq!(
        recorded.names(),
        [
            "turn_started",
            "step_started",
            "step_finished",
            "call_started",
            "call_finished",
            "step_started",
            "step_finished",
            "call_started",
            "call_finished",
            "turn_finished",
        ]
    );
}

#[tokio::test]
async fn w04_cancelled_is_an_outcome_of_its_own() {
    let script = Script::new([Say::Hang("Thinking")]);
    let agent = agent(&script).policy(preset::task()).build().unwrap();
    let (shown, hearing) = tokio::sync::oneshot::channel();
    let shown = std::sync::Mutex::new(Some(shown));
    let sink = move |event: &Event| {
        if let Event::TextDelta { .. } = event
            && let Some(shown) = shown.lock().unwrap().take()
        {
            let _ = shown.send(());
        }
    };
    let running = agent.session().spawn(Message::user("Begin."), Arc::new(sink));
    hearing.await.unwrap();
    running.cancel();
    let (_, report) = running.await;
    let report = report.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Cancelled, "Thinking")
    );
}

#[tokio::test]
async fn w04_step_limit_after_50_steps_is_the_outcome() {
    let script = Script::new((0..50).map(|i| call("", "t", &json!({"i": i}))));
    let echo = tool("t", |arguments| Ok(format!("{arguments:?}")));
    let mut session = agent(&script)
        .tool(echo)
        .policy(preset::task())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        (report.outcome, report.steps),
        (TurnOutcome::StepLimit { steps: 50 }, 50)
    );
    // None of the steps is kept for an answer without tools.
    let ran = report.calls.iter().filter(|call| call.result.error.is_none());
    assert_eq!(ran.count(), 50);
    script.assert_played();
}

#[tokio::test]
async fn w08_saved_messages_continue_under_the_same_id() {
    let saved = [
        Message::user("Find the bug."),
        Message::assistant("I looked at half of the files."),
    ];
    let script = Script::new([complete(1)]);
    let agent = agent(&script)
        .tool(tool("idle", |_| Ok(String::new())))
        .policy(preset::task())
        .build()
        .unwrap();
    let mut session = agent.session_from(LoopState::with_messages("session-123", saved));
    let report = session
        .run(TurnStart::Proceed, &NullSink, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!((report.session.as_str(), report.steps), ("session-123", 1));
    let sent: Vec<String> = script.requests()[0].messages.iter().map(|m| m.text()).collect();
    assert_eq!(
        sent,
        [
            "Find the bug.",
            "I looked at half of the files.",
            "Please continue."
        ]
    );
}

#[tokio::test]
async fn w03_w08_proceed_answers_a_message_or_starts_the_task() {
    for (saved, sent) in [
        (vec![Message::user("Find the bug.")], "Find the bug."),
        (vec![], "Begin with your task."),
    ] {
        let script = Script::new([complete(1)]);
        let agent = agent(&script).policy(preset::task()).build().unwrap();
        agent
            .session_from(LoopState::with_messages("s", saved))
            .run(TurnStart::Proceed, &NullSink, CancellationToken::new())
            .await
            .unwrap();
        let texts: Vec<String> = script.requests()[0].messages.iter().map(|m| m.text()).collect();
        assert_eq!(texts, [sent]);
    }
}

#[tokio::test]
async fn w09_long_conversation_is_replaced_by_a_summary() {
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Text("Goal: find it. Open: everything."),
        complete(1),
    ]);
    let long = tool("t", |_| Ok("x".repeat(8_000)));
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(2_000),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..preset::task()
    };
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(long)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    let requests = script.requests();
    let asked: Vec<String> = requests[1].messages.iter().map(|m| m.text()).collect();
    assert!(
        asked[0] == "Go" && asked[3].starts_with("Summarise this conversation"),
        "{asked:?}"
    );
    // Other instructions, and the same tools, none of which may be called.
    let (turn, summary) = (&requests[0], &requests[1]);
    assert_ne!(summary.instructions, turn.instructions);
    assert!(
        summary.instructions.contains("summar"),
        "{}",
        summary.instructions
    );
    let names = |request: &Request| -> Vec<String> {
        request.tools.iter().map(|tool| tool.name.to_string()).collect()
    };
    assert!(names(summary).contains(&"t".to_owned()));
    assert_eq!(names(summary), names(turn));
    assert_eq!(summary.tool_choice, ToolChoice::None);
    assert!(summary.session.is_some() && summary.session == turn.session);
    let sent: Vec<String> = requests[2].messages.iter().map(|m| m.text()).collect();
    assert_eq!(
        sent,
        [
            "Summary of the conversation so far:",
            "Goal: find it. Open: everything.",
            "Please continue."
        ]
    );
    // The summary is not shown to the user as an answer.
    assert!(
        !recorded
            .all()
            .iter()
            .any(|event| matches!(event, Event::TextDelta { text } if text.contains("Goal")))
    );
}

#[tokio::test]
async fn w09_failed_summary_is_reported_and_the_session_continues() {
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Fail("", ProviderErrorKind::Unavailable),
        complete(1),
    ]);
    let long = tool("t", |_| Ok("x".repeat(8_000)));
    let policy = LoopPolicy {
        context: ContextPolicy {
            summarise_at: Some(2_000),
            keep_rounds: 0,
            ..ContextPolicy::default()
        },
        ..preset::task()
    };
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(long)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert_eq!(script.requests()[2].messages.len(), 3);
    assert!(
        recorded
            .all()
            .iter()
            .any(|event| matches!(event, Event::SummaryFailed { .. }))
    );
}

#[tokio::test]
async fn w10_provider_error_is_reported_to_the_model_and_retried() {
    let script = Script::new([Say::Fail("", ProviderErrorKind::Unavailable), complete(1)]);
    let mut session = agent(&script)
        .tool(tool("idle", |_| Ok(String::new())))
        .policy(preset::task())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!((report.outcome, report.steps), (TurnOutcome::Completed, 2));
    let told = script.requests()[1].messages.last().unwrap().text();
    assert!(
        told.contains("failed") && told.ends_with("Please try again."),
        "{told}"
    );
}

#[tokio::test]
async fn w10_repeated_provider_errors_end_the_turn() {
    let script = Script::new((0..6).map(|_| Say::Fail("", ProviderErrorKind::Unavailable)));
    let mut session = agent(&script)
        .tool(tool("idle", |_| Ok(String::new())))
        .policy(preset::task())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert!(matches!(report.outcome, TurnOutcome::ProviderFailed { .. }));
    script.assert_played();
}

#[tokio::test]
async fn w10_tool_and_argument_errors_are_sent_to_the_model() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![("1", "search", "{not json".into()), ("2", "broken", "{}".into())],
        ),
        complete(1),
    ]);
    let broken = tool("broken", |_| {
        Err(toolcell_core::ToolError::Failed {
            message: "no such file".into(),
        })
    });
    let search = tool("search", |_| Ok(String::new()));
    let mut session = agent(&script)
        .tools([broken, search])
        .policy(preset::task())
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    let messages = &script.requests()[1].messages;
    assert!(messages[2].text().contains("the arguments were not accepted"));
    assert_eq!(messages[3].text(), "Error: no such file");
}

#[tokio::test]
async fn w11_two_answers_without_a_call_get_a_reminder() {
    let script = Script::new([
        Say::Text("Let me think."),
        Say::Text("Still thinking."),
        Say::Text("Hm."),
        complete(1),
    ]);
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(tool("idle", |_| Ok(String::new())))
        .policy(preset::task())
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    let kinds: Vec<ReminderKind> = recorded
        .all()
        .iter()
        .filter_map(|event| match event {
            Event::Reminder { kind, .. } => Some(*kind),
            _ => None,
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ReminderKind::Continue,
            ReminderKind::NoToolCall,
            ReminderKind::Continue
        ]
    );
    let reminder = script.requests()[2].messages.last().unwrap().text();
    assert!(reminder.contains("call `task_complete` now"), "{reminder}");
}

#[tokio::test]
async fn w11_end_after_many_answers_without_a_call_counts_them() {
    let script = Script::new((0..12).map(|_| Say::Text("Let me think.")));
    let agent = agent(&script).tool(tool("idle", |_| Ok(String::new())));
    let mut session = agent.policy(preset::task()).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    assert!(
        matches!(&report.outcome, TurnOutcome::Failing { times: 10, error } if error == "an answer without a call"),
        "{:?}",
        report.outcome
    );
    // Five reminders, each after two answers.
    script.assert_asked(10);
}

#[tokio::test]
async fn w14_session_can_be_restored_after_every_event() {
    let script = Script::new([call("1", "t", &json!({})), complete(1)]);
    let echo = || tool("t", |_| Ok("ok".into()));
    let builder = agent(&script)
        .tool(echo())
        .policy(preset::task())
        .build()
        .unwrap();
    let recorded = RecordedEvents::default();
    let mut session = builder.session_from(LoopState::new("s"));
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    // The events are sufficient to restore the session.
    let again = toolcell_agent::LoopState::from_events("s", &recorded.all());
    assert_eq!(&again, session.state());
    assert_eq!(again.messages, report.messages);
}
