//! Agents as tools of other agents.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{DataFlow, TurnOutcome};
use toolcell_core::{BoxFuture, Event, Message, Schema, ToolError};

use super::{RecordedEvents, agent};
use crate::testing::{Say, Script, call, slow_tool, text_of};
use toolcell_agent::Agent;
use toolcell_agent::approval::{
    ApprovalCause, ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, Verdict,
};
use toolcell_agent::budget::{Budget, Prices};
use toolcell_agent::policy::LoopPolicy;

#[tokio::test]
async fn agent_as_tool_reports_progress_and_one_receipt() {
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
    let recorded = RecordedEvents::default();
    let mut session = agent(&outer).tool(researcher).build().unwrap().session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(text_of(&report.calls[0].result.content), "Found it.");
    assert_eq!(report.calls[0].result.receipt.as_ref().unwrap().fuel, 14);
    assert_eq!(inner.requests()[0].messages[0].text(), "Find it");
    // The inner session's use counts in the outer one: two steps of 15 tokens each, and two calls.
    let spent = session.state().spent();
    assert_eq!((spent.calls, spent.fuel, spent.tokens()), (3, 14, 60));
    // The conversation is in the next request, beside the definition of the agent.
    let text: usize = session
        .messages()
        .iter()
        .map(|message| message.text().len())
        .sum();
    assert!(session.request_tokens() > u64::try_from(text / 4).unwrap().max(10));
    assert_eq!(spent.bytes, "Found it.".len() as u64 + 2 * "earth".len() as u64);
    assert_eq!((report.usage.input, report.usage.output), (40, 20));
    let progress = recorded
        .all()
        .iter()
        .filter(|event| matches!(event, Event::CallProgress { .. }))
        .count();
    assert_eq!(progress, 2);
}

#[tokio::test]
async fn agent_with_an_answer_schema_answers_with_its_value() {
    let inner = Script::new([Say::Text(r#"{"n": 42}"#)]);
    let outer = Script::new([call("1", "counter", &json!({"task": "Count"})), Say::Text("")]);
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let counter = agent(&inner)
        .answer_schema(Schema::parse(schema).unwrap())
        .build()
        .unwrap()
        .as_tool("counter", "Counts")
        .unwrap();
    let mut session = agent(&outer).tool(counter).build().unwrap().session();
    let report = session.ask("Go").await.unwrap();
    let result = &report.calls[0].result;
    assert_eq!(
        (text_of(&result.content), &result.structured),
        (r#"{"n": 42}"#.to_owned(), &Some(json!({"n": 42})))
    );
}

#[tokio::test]
async fn end_of_an_agents_own_budget_is_a_call_error() {
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
    let error = report.calls[0].result.error.as_ref().unwrap().to_string();
    assert!(
        error.starts_with("it stopped: the budget of 1 call is used up"),
        "{error}"
    );
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "A pity.")
    );
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_outer_agent_drops_inner_calls() {
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
    assert_eq!(report.calls[0].result.error, Some(ToolError::Cancelled));
    assert!(report.calls[0].result.receipt.is_some());
}

/// An agent that never stops making calls.
fn digger() -> Agent {
    let answers = (0..50).map(|i| call(["a", "b"][i % 2], "dig", &json!({"at": i})));
    let dig = slow_tool("dig", Duration::from_millis(1), |_| Ok("earth".into()));
    agent(&Script::new(answers)).tool(dig).build().unwrap()
}

fn budgeted(budget: Budget) -> LoopPolicy {
    LoopPolicy {
        budget,
        ..LoopPolicy::default()
    }
}

#[tokio::test]
async fn agent_ends_with_the_budget_of_its_caller() {
    for (budget, reason) in [
        (
            Budget {
                calls: Some(4),
                ..Budget::default()
            },
            "the budget of 3 calls is used up",
        ),
        (
            Budget {
                tokens: Some(400),
                ..Budget::default()
            },
            // The outer session has used 15 itself.
            "the budget of 385 tokens",
        ),
        (
            Budget {
                fuel: Some(20),
                ..Budget::default()
            },
            "the budget of 20 units of fuel is used up",
        ),
    ] {
        let outer = Script::new([
            call("1", "digger", &json!({"task": "Dig"})),
            Say::Text("not reached"),
        ]);
        let mut session = agent(&outer)
            .agent("digger", "Digs", &digger())
            .unwrap()
            .policy(budgeted(budget))
            .build()
            .unwrap()
            .session();
        let report = session.ask("Go").await.unwrap();
        let error = report.calls[0].result.error.as_ref().unwrap().to_string();
        assert!(error.starts_with(&format!("it stopped: {reason}")), "{error}");
        assert!(
            matches!(report.outcome, TurnOutcome::Budget { .. }),
            "{:?}",
            report.outcome
        );
        outer.assert_asked(1);
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_agents_share_the_remaining_budget() {
    let outer = Script::new([Say::Calls(
        "",
        vec![
            ("1", "digger", json!({"task": "Dig here"}).to_string()),
            ("2", "digger", json!({"task": "Dig there"}).to_string()),
        ],
    )]);
    let budget = Budget {
        calls: Some(10),
        ..Budget::default()
    };
    let mut session = agent(&outer)
        .agent("digger", "Digs", &digger())
        .unwrap()
        .policy(budgeted(budget))
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    assert_eq!(session.state().spent().calls, 10);
}

#[tokio::test]
async fn agent_cost_is_counted_by_its_own_prices() {
    let prices = |input| {
        Some(Prices {
            input,
            ..Prices::default()
        })
    };
    for (own, cost) in [(prices(5_000_000), 20 * 5 + 20), (None, 20 + 20)] {
        let inner = Script::new([call("a", "dig", &json!({})), Say::Text("Found it.")]);
        let dig = slow_tool("dig", Duration::from_millis(1), |_| Ok("earth".into()));
        let policy = budgeted(Budget {
            prices: own,
            ..Budget::default()
        });
        let researcher = agent(&inner).tool(dig).policy(policy).build().unwrap();
        let outer = Script::new([
            call("1", "researcher", &json!({"task": "Find it"})),
            Say::Text("Thanks."),
        ]);
        let mut session = agent(&outer)
            .agent("researcher", "Finds things", &researcher)
            .unwrap()
            .build()
            .unwrap()
            .session();
        session.ask("Go").await.unwrap();
        let spent = session.state().spent();
        assert_eq!(spent.cost_micros(&prices(1_000_000).unwrap()), cost);
    }
}

/// Denies every request and records it.
#[derive(Default)]
struct Strict(Mutex<Vec<ApprovalRequest>>);

impl Approver for Strict {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        self.0.lock().unwrap().push(request.clone());
        Box::pin(std::future::ready(Decision::Deny {
            reason: Some("not here".into()),
        }))
    }
}

#[tokio::test]
async fn agent_events_and_approvals_are_forwarded_to_the_caller() {
    let inner = Script::new([call("a", "dig", &json!({"at": 1})), Say::Text("Nothing.")]);
    let outer = Script::new([
        call("1", "researcher", &json!({"task": "Find it"})),
        Say::Text("A pity."),
    ]);
    let dig = slow_tool("dig", Duration::from_millis(1), |_| Ok("earth".into()));
    let approvals = Approvals {
        rules: vec![ApprovalRule::tool("dig", Verdict::Ask)],
        ..Approvals::default()
    };
    let researcher = agent(&inner).tool(dig).approvals(approvals).build().unwrap();
    let strict = Arc::new(Strict::default());
    let recorded = RecordedEvents::default();
    let mut session = agent(&outer)
        .agent("researcher", "Finds things", &researcher)
        .unwrap()
        .approver(strict.clone())
        .build()
        .unwrap()
        .session();
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    let asked = strict.0.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].tool.as_str(), asked[0].cause),
        ("dig", ApprovalCause::Rule)
    );
    assert_eq!(asked[0].reason, "the rule `ask for dig`, inside `researcher`");
    let sent = inner.requests()[1].messages.last().unwrap().text();
    assert!(sent.contains("the call was not approved: not here"), "{sent}");
    let nested: Vec<String> = recorded
        .all()
        .iter()
        .filter_map(|event| match event {
            Event::Nested { id, event } if id == "1" => Some(event),
            _ => None,
        })
        .map(|event| {
            serde_json::to_value(event).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        nested,
        [
            "turn_started",
            "step_started",
            "step_finished",
            "approval_requested",
            "approval_decided",
            "call_started",
            "call_finished",
            "step_started",
            "step_finished",
            "turn_finished",
        ]
    );
}

#[tokio::test]
async fn agent_has_the_data_flow_of_its_tools() {
    let flow = DataFlow {
        reads_private: true,
        ..DataFlow::default()
    };
    let dig = slow_tool("dig", Duration::from_millis(1), |_| Ok("earth".into()));
    let inner = Script::new([call("a", "dig", &json!({})), Say::Text("Found it.")]);
    let researcher = agent(&inner).tool(dig).flow("dig", flow).build().unwrap();
    let outer = Script::new([
        call("1", "researcher", &json!({"task": "Find it"})),
        Say::Text("Thanks."),
    ]);
    let mut session = agent(&outer)
        .agent("researcher", "Finds things", &researcher)
        .unwrap()
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    assert_eq!(session.state().flow, flow);
}
