//! Preset `stepwise` (design F): one call per step until a control tool ends the turn.

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{ReminderKind, TurnOutcome};
use toolcell_core::{Event, Message, ToolError};

use crate::testing::{Say, Script, assert_paired, call, text_of, tool};
use crate::{RecordedEvents, agent};
use toolcell_agent::policy::{ContextPolicy, LoopPolicy};
use toolcell_agent::preset;

fn done() -> Say {
    call("", "task_completion", &json!({"result": "It is sunny."}))
}

/// A tool that is not called: without tools a turn is one request.
fn idle() -> std::sync::Arc<dyn toolcell_core::Tool> {
    tool("idle", |_| Ok(String::new()))
}

#[tokio::test]
async fn f02_f06_f09_f10_planned_task_is_completed_by_a_tool() {
    let plan = |completed: bool| {
        json!({"goal": "Weather", "steps": [
            {"description": "Look it up", "completed": completed, "result": completed.then_some("sunny")},
            {"description": "Report"},
        ]})
    };
    let script = Script::new([
        call("1", "update_plan", &plan(false)),
        Say::Calls(
            "I look it up.",
            vec![("2", "web_search", json!({"query": "weather"}).to_string())],
        ),
        call("3", "update_plan", &plan(true)),
        done(),
    ]);
    let recorded = RecordedEvents::default();
    let search = tool("web_search", |_| Ok("sunny".into()));
    let mut session = agent(&script)
        .tool(search)
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    let message = Message::user("What is the weather?");
    let report = session
        .run(message, &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "It is sunny.")
    );
    let plan = report.plan.unwrap();
    assert_eq!((plan.goal.as_str(), plan.current()), ("Weather", Some(1)));
    assert_eq!(plan.steps[0].result.as_deref(), Some("sunny"));
    let updates = recorded
        .names()
        .iter()
        .filter(|name| *name == "plan_updated")
        .count();
    assert_eq!(updates, 2);
    script.assert_played();
}

#[tokio::test]
async fn f02_question_ends_the_turn_and_the_next_message_answers_it() {
    let script = Script::new([
        call(
            "1",
            "ask_question",
            &json!({"question": "Which city?", "suggestions": ["Bern", "Rome"]}),
        ),
        done(),
    ]);
    let mut session = agent(&script)
        .tool(idle())
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Weather?").await.unwrap();
    assert_eq!(
        report.outcome,
        TurnOutcome::Asked {
            question: "Which city?".into(),
            suggestions: vec!["Bern".into(), "Rome".into()]
        }
    );
    assert_eq!(report.text, "Which city?");
    let report = session.ask("Bern").await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert_eq!(script.requests()[1].messages.last().unwrap().text(), "Bern");
}

#[tokio::test]
async fn f02_converse_shows_a_message_and_ends_the_turn() {
    let script = Script::new([call("1", "converse", &json!({"message": "Hello yourself."}))]);
    let mut session = agent(&script)
        .tool(idle())
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Hello").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Hello yourself.")
    );
}

#[tokio::test]
async fn f06_answer_without_a_call_gets_a_transient_reminder() {
    let script = Script::new([Say::Text("It is sunny."), done()]);
    let recorded = RecordedEvents::default();
    let mut session = agent(&script)
        .tool(idle())
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    session
        .run(Message::user("Weather?"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    let reminder = recorded.all().into_iter().find_map(|event| match event {
        Event::Reminder {
            kind: ReminderKind::NoToolCall,
            text,
            stored,
        } => Some((text, stored)),
        _ => None,
    });
    let (text, stored) = reminder.unwrap();
    assert!(
        !stored && text.contains("`ask_question` or `converse` or `task_completion`"),
        "{text}"
    );
    assert_eq!(script.requests()[1].messages.last().unwrap().text(), text);
    assert!(!session.messages().iter().any(|message| message.text() == text));
}

#[tokio::test]
async fn f06_five_equal_errors_in_a_row_end_the_turn() {
    for times in [4, 5] {
        let answers = (0..times)
            .map(|_| Say::Text("I will do it soon."))
            .chain([done()]);
        let script = Script::new(answers);
        let mut session = agent(&script)
            .tool(idle())
            .policy(preset::stepwise())
            .build()
            .unwrap()
            .session();
        let outcome = session.ask("Go").await.unwrap().outcome;
        if times == 4 {
            assert_eq!(outcome, TurnOutcome::Completed);
        } else {
            assert_eq!(
                outcome,
                TurnOutcome::Failing {
                    error: "an answer without a call".into(),
                    times: 5
                }
            );
        }
    }
}

#[tokio::test]
async fn f06_fifth_identical_failure_of_a_call_ends_the_turn() {
    let failing = || {
        tool("search", |_| {
            Err(ToolError::Failed {
                message: "no connection".into(),
            })
        })
    };
    let script = Script::new((0..6).map(|_| call("", "search", &json!({}))));
    let mut session = agent(&script)
        .tool(failing())
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    let outcome = session.ask("Go").await.unwrap().outcome;
    assert!(
        matches!(outcome, TurnOutcome::Failing { times: 5, .. }),
        "{outcome:?}"
    );
    script.assert_asked(5);
}

#[tokio::test]
async fn f06_different_error_or_success_resets_the_count() {
    let bad = |i: u32| call("", "flaky", &json!({"i": i, "fail": true}));
    let good = |i: u32| call("", "flaky", &json!({"i": i}));
    let script = Script::new([
        bad(1),
        bad(2),
        bad(3),
        bad(4),
        good(5),
        bad(6),
        bad(7),
        bad(8),
        bad(9),
        done(),
    ]);
    let flaky = tool("flaky", |arguments| {
        if arguments.contains_key("fail") {
            return Err(ToolError::Failed {
                message: "broken".into(),
            });
        }
        Ok("ok".into())
    });
    let mut session = agent(&script)
        .tool(flaky)
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    assert_eq!(session.ask("Go").await.unwrap().outcome, TurnOutcome::Completed);
}

#[tokio::test]
async fn f06_errors_are_shown_once_and_then_shortened() {
    let script = Script::new([
        call("1", "no_such_tool", &json!({})),
        call("2", "t", &json!({})),
        done(),
    ]);
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    let requests = script.requests();
    assert!(
        requests[1].messages[2]
            .text()
            .contains("there is no tool `no_such_tool`")
    );
    assert_eq!(requests[2].messages[2].text(), "Error.");
}

#[tokio::test]
async fn f07_only_the_first_of_several_calls_is_executed() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("1", "t", json!({"n": 1}).to_string()),
                ("2", "t", json!({"n": 2}).to_string()),
            ],
        ),
        done(),
    ]);
    let echo = tool("t", |arguments| Ok(format!("ran {}", arguments["n"])));
    let mut session = agent(&script)
        .tool(echo)
        .policy(preset::stepwise())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let mut calls: Vec<(String, String)> = report
        .calls
        .iter()
        .map(|c| (c.id.clone(), text_of(&c.result.content)))
        .collect();
    calls.sort();
    assert_eq!(calls[0], ("1".into(), "ran 1".into()));
    assert!(
        calls[1]
            .1
            .contains("only the first call of an answer is executed")
    );
    assert_eq!(script.requests()[0].parallel_calls, Some(false));
}

#[tokio::test]
async fn f08_message_limit_keeps_calls_and_results_together() {
    let script = Script::new((0..20).map(|i| call("", "t", &json!({"i": i}))).chain([done()]));
    let policy = LoopPolicy {
        context: ContextPolicy {
            max_messages: Some(8),
            ..ContextPolicy::default()
        },
        ..preset::stepwise()
    };
    let echo = tool("t", |arguments| Ok(format!("{arguments:?}")));
    let mut session = agent(&script)
        .tool(echo)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    for request in script.requests() {
        // The user's message is always included.
        assert!(request.messages.len() <= 9);
        assert_eq!(request.messages[0].text(), "Go");
        assert_paired(&request.messages);
    }
    assert_eq!(session.messages().len(), 1 + 21 * 2);
}
