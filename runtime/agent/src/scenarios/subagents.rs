//! An agent as a tool of another one.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{Event, Message, ToolError};

use super::{Heard, agent};
use crate::budget::Budget;
use crate::policy::LoopPolicy;
use crate::testing::{Say, Script, call, slow_tool, text_of};

#[tokio::test]
async fn an_agent_answers_as_a_tool_with_progress_and_one_receipt_for_all_its_calls() {
    let inner = Script::new([
        Say::Calls("", vec![("a", "dig", "{}".into()), ("b", "dig", "{}".into())]),
        Say::Text("Found it."),
    ]);
    let outer = Script::new([
        call("1", "researcher", &json!({"task": "Find it"})),
        Say::Text("Thanks."),
    ]);
    let dig = slow_tool("dig", Duration::from_millis(1), |_| Ok("earth".into()));
    let researcher = agent(&inner)
        .tool(dig)
        .build()
        .unwrap()
        .as_tool("researcher", "Finds things")
        .unwrap();
    let heard = Heard::default();
    let mut session = agent(&outer).tool(researcher).build().unwrap().session();
    let report = session
        .run(Message::user("Go"), &heard, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(text_of(&report.calls[0].content), "Found it.");
    assert_eq!(report.calls[0].receipt.as_ref().unwrap().fuel, 14);
    assert_eq!(inner.requests()[0].messages[0].text(), "Find it");
    let progress = heard
        .all()
        .iter()
        .filter(|event| matches!(event, Event::CallProgress { .. }))
        .count();
    assert_eq!(progress, 2);
}

#[tokio::test]
async fn an_agent_has_its_own_budget_and_its_end_is_an_answer_for_the_outer_one() {
    let inner = Script::new([call("a", "dig", &json!({}))]);
    let outer = Script::new([
        call("1", "researcher", &json!({"task": "Find it"})),
        Say::Text("A pity."),
    ]);
    let dig = slow_tool("dig", Duration::from_millis(1), |_| Ok("earth".into()));
    let policy = LoopPolicy {
        budget: Budget {
            calls: Some(1),
            ..Budget::default()
        },
        ..LoopPolicy::default()
    };
    let researcher = agent(&inner).tool(dig).policy(policy).build().unwrap();
    let researcher = researcher.as_tool("researcher", "Finds things").unwrap();
    let mut session = agent(&outer).tool(researcher).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    let error = report.calls[0].error.as_ref().unwrap().to_string();
    assert!(
        error.starts_with("it stopped: the budget of 1 calls is used up"),
        "{error}"
    );
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "A pity.")
    );
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_outer_agent_drops_the_calls_of_the_inner_one() {
    let inner = Script::new([call("a", "dig", &json!({}))]);
    let outer = Script::new([call("1", "researcher", &json!({"task": "Find it"}))]);
    let dig = slow_tool("dig", Duration::from_secs(3600), |_| Ok("earth".into()));
    let researcher = agent(&inner)
        .tool(dig)
        .build()
        .unwrap()
        .as_tool("researcher", "Finds things")
        .unwrap();
    let policy = LoopPolicy {
        deadline_ms: Some(1_000),
        ..LoopPolicy::default()
    };
    let mut session = agent(&outer)
        .tool(researcher)
        .policy(policy)
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(report.outcome, TurnOutcome::Deadline { ms: 1_000 });
    assert_eq!(report.calls[0].error, Some(ToolError::Cancelled));
    assert!(report.calls[0].receipt.is_some());
}
