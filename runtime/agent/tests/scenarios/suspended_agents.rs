//! Agents as tools whose calls wait for a decision: the whole turn is suspended.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{BoxFuture, Event, Message, Tool, ToolError};

use super::{RecordedEvents, agent};
use crate::testing::{Say, Script, call, slow_tool, text_of};
use toolcell_agent::approval::{ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, Verdict};
use toolcell_agent::machine::LoopState;
use toolcell_agent::{Agent, TurnStart};

/// Puts off all decisions, or approves all.
struct Patient {
    approves: bool,
    asked: Mutex<Vec<ApprovalRequest>>,
}

impl Patient {
    fn new(approves: bool) -> Arc<Self> {
        let asked = Mutex::default();
        Arc::new(Self { approves, asked })
    }
}

impl Approver for Patient {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        self.asked.lock().unwrap().push(request.clone());
        Box::pin(std::future::ready(match self.approves {
            true => Decision::Approve,
            false => Decision::Later,
        }))
    }
}

/// A tool that counts its calls.
fn counted(name: &str) -> (Arc<dyn Tool>, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let tool = slow_tool(name, Duration::from_millis(1), move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok("earth".into())
    });
    (tool, count)
}

/// An agent that calls an agent, whose `dig` needs an approval while its `look` does not.
struct Expedition {
    scripts: [Arc<Script>; 3],
    dig: (Arc<dyn Tool>, Arc<AtomicU32>),
    look: (Arc<dyn Tool>, Arc<AtomicU32>),
    walk: (Arc<dyn Tool>, Arc<AtomicU32>),
}

impl Expedition {
    fn new() -> Self {
        let digger = Script::new([
            Say::Calls(
                "",
                vec![("a", "look", "{}".into()), ("b", "dig", r#"{"at":1}"#.into())],
            ),
            Say::Text("Found it."),
        ]);
        let leader = Script::new([
            call("m", "digger", &json!({"task": "Dig"})),
            Say::Text("It is there."),
        ]);
        let outer = Script::new([
            Say::Calls(
                "",
                vec![
                    ("1", "leader", r#"{"task":"Find it"}"#.into()),
                    ("2", "walk", "{}".into()),
                ],
            ),
            Say::Text("Thanks."),
        ]);
        Self {
            scripts: [digger, leader, outer],
            dig: counted("dig"),
            look: counted("look"),
            walk: counted("walk"),
        }
    }

    /// The agents of a process, with this approver.
    fn agent(&self, approver: Arc<Patient>) -> Agent {
        let [digger, leader, outer] = &self.scripts;
        let approvals = Approvals {
            rules: vec![ApprovalRule::tool("dig", Verdict::Ask)],
            ..Approvals::default()
        };
        let digger = agent(digger).tools([self.dig.0.clone(), self.look.0.clone()]);
        let digger = digger.approvals(approvals).build().unwrap();
        let leader = agent(leader)
            .agent("digger", "Digs", &digger)
            .unwrap()
            .build()
            .unwrap();
        let outer = agent(outer).agent("leader", "Leads", &leader).unwrap();
        outer
            .tool(self.walk.0.clone())
            .approver(approver)
            .build()
            .unwrap()
    }

    /// Calls of `look`, `dig` and `walk` so far.
    fn done(&self) -> [u32; 3] {
        [&self.look, &self.dig, &self.walk].map(|(_, count)| count.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn later_inside_an_agent_suspends_the_whole_turn() {
    let expedition = Expedition::new();
    let recorded = RecordedEvents::default();
    let first = expedition.agent(Patient::new(false));
    let mut session = first.session_from(LoopState::new("s"));
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    let calls = vec!["1".to_owned()];
    assert_eq!(report.outcome, TurnOutcome::AwaitingApproval { calls });
    assert_eq!(expedition.done(), [1, 0, 1], "all that needs no approval is done");
    let spent = session.state().spent();
    // Not yet counted: the calls of the agents themselves, which have not ended.
    assert_eq!((spent.calls, spent.fuel, spent.tokens()), (2, 14, 45));

    // From the journal, by another process, and put off once more.
    let state = LoopState::from_events("s", &recorded.all());
    let again = Patient::new(false);
    let mut session = expedition.agent(again.clone()).session_from(state);
    let report = session
        .run(TurnStart::Resume, &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert!(matches!(report.outcome, TurnOutcome::AwaitingApproval { .. }));
    assert_eq!(again.asked.lock().unwrap().len(), 1);

    let state = LoopState::from_events("s", &recorded.all());
    let asked = Patient::new(true);
    let mut session = expedition.agent(asked.clone()).session_from(state);
    let report = session
        .run(TurnStart::Resume, &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Thanks.")
    );
    assert_eq!(expedition.done(), [1, 1, 1], "nothing runs twice");
    let asked = asked.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].tool.as_str(), &asked[0].arguments),
        ("dig", &json!({"at": 1}))
    );
    assert!(asked[0].reason.contains("`digger`") && asked[0].reason.contains("`leader`"));
    assert_eq!(text_of(&report.calls[0].result.content), "It is there.");
    // Each model answered twice, with 15 tokens, and five calls ended with 7 of fuel for each that is no agent.
    let spent = session.state().spent();
    assert_eq!((spent.calls, spent.fuel, spent.tokens()), (5, 21, 90));
    for script in &expedition.scripts {
        assert_eq!(script.requests().len(), 2);
    }
}

#[tokio::test]
async fn abandoned_turn_ends_a_suspended_call() {
    let expedition = Expedition::new();
    let mut session = expedition.agent(Patient::new(false)).session();
    session.ask("Go").await.unwrap();
    let report = session
        .run(
            TurnStart::Abandon,
            &RecordedEvents::default(),
            CancellationToken::new(),
        )
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Cancelled);
    assert_eq!(expedition.done(), [1, 0, 1]);
    assert!(!session.is_open());
    assert_eq!(report.calls.len(), 1);
    assert_eq!(report.calls[0].result.error, Some(ToolError::Cancelled));
}

#[tokio::test]
async fn state_of_another_version_is_an_error_of_the_call() {
    let expedition = Expedition::new();
    let recorded = RecordedEvents::default();
    let mut session = expedition
        .agent(Patient::new(false))
        .session_from(LoopState::new("s"));
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    for damaged in [json!(null), json!({"session": "x"}), json!({"session": 1})] {
        let mut events = recorded.all();
        for event in &mut events {
            if let Event::CallSuspended { state, .. } = event {
                *state = damaged.clone();
            }
        }
        let state = LoopState::from_events("s", &events);
        let mut session = Expedition::new().agent(Patient::new(true)).session_from(state);
        let report = session
            .run(
                TurnStart::Resume,
                &RecordedEvents::default(),
                CancellationToken::new(),
            )
            .await
            .unwrap();
        let error = report.calls[0].result.error.as_ref().unwrap().for_model();
        assert!(
            error.contains("the paused agent could not be continued"),
            "{error}"
        );
    }
}
