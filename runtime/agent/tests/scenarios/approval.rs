//! Calls that wait for a decision.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{Flow, TurnOutcome};
use toolcell_core::{BoxFuture, Event, Message, Tool};

use super::{RecordedEvents, agent, timeless};
use crate::testing::{Say, Script, call, text_of, tool};
use toolcell_agent::LoopState;
use toolcell_agent::NullSink;
use toolcell_agent::TurnStart;
use toolcell_agent::approval::{
    ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FlowGuard, Verdict,
};

/// Answers with what it was told, and remembers what it was asked.
struct Person {
    answer: Decision,
    asked: Mutex<Vec<ApprovalRequest>>,
}

fn person(answer: Decision) -> Arc<Person> {
    Arc::new(Person {
        answer,
        asked: Mutex::default(),
    })
}

impl Approver for Person {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        self.asked.lock().unwrap().push(request.clone());
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

fn counted(name: &str) -> (Arc<dyn Tool>, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    let tool = tool(name, move |arguments| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Object(arguments.clone()).to_string())
    });
    (tool, count)
}

fn ask_for(pattern: &str) -> Approvals {
    Approvals {
        rules: vec![ApprovalRule::tool(pattern, Verdict::Ask)],
        ..Approvals::default()
    }
}

fn write_once() -> Arc<Script> {
    Script::new([
        call("1", "write", &json!({"path": "a", "text": "\u{1b}[2Jé"})),
        Say::Text("Done."),
    ])
}

#[tokio::test]
async fn the_arguments_that_run_are_byte_for_byte_those_that_were_approved() {
    let (write, count) = counted("write");
    let person = person(Decision::Approve);
    let heard = RecordedEvents::default();
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(ask_for("wri*"))
        .approver(person.clone())
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &heard, CancellationToken::new())
        .await
        .unwrap();
    let asked = person.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].reason, "the rule `ask for wri*`");
    assert_eq!(text_of(&report.calls[0].content), asked[0].arguments.to_string());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let names = heard.names();
    let at = names
        .iter()
        .position(|name| name == "approval_requested")
        .unwrap();
    assert_eq!(
        names[at..at + 4],
        [
            "approval_requested",
            "approval_decided",
            "call_started",
            "call_finished"
        ]
    );
}

#[tokio::test]
async fn a_call_that_is_declined_does_not_run_and_the_model_reads_why() {
    let (write, count) = counted("write");
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(ask_for("*"))
        .approver(person(Decision::Deny {
            reason: Some("wrong folder".into()),
        }))
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    assert!(text_of(&report.calls[0].content).contains("declined this call: wrong folder"));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn without_an_approver_a_question_is_a_no_that_names_the_rule() {
    let (write, count) = counted("write");
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(ask_for("write"))
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let read = text_of(&report.calls[0].content);
    assert!(
        read.contains("nobody is there to decide on it, and the rule `ask for write` asks"),
        "{read}"
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_denied_call_does_not_run_and_the_person_is_told_the_rule_but_not_the_model() {
    let (write, count) = counted("write");
    let approvals = Approvals {
        rules: vec![ApprovalRule::tool("write", Verdict::Deny).with_argument("/path", "a")],
        ..Approvals::default()
    };
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(approvals)
        .approver(person(Decision::Approve))
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let error = report.calls[0].error.as_ref().unwrap();
    assert_eq!(
        error.hint(),
        Some("refused by the rule `deny write where /path is a`")
    );
    assert!(!error.for_model().contains("rule"));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_turn_that_waits_for_a_decision_is_taken_up_by_another_process() {
    let script = Script::new([
        Say::Calls(
            "",
            vec![
                ("1", "write", r#"{"path":"a"}"#.into()),
                ("2", "read", "{}".into()),
            ],
        ),
        Say::Text("Done."),
    ]);
    let (write, written) = counted("write");
    let (read, was_read) = counted("read");
    let make = |answer: Decision| {
        agent(&script)
            .tools([write.clone(), read.clone()])
            .approvals(ask_for("write"))
            .approver(person(answer))
            .build()
            .unwrap()
    };
    let heard = RecordedEvents::default();
    let mut session = make(Decision::Later).session_from(LoopState::new("s"));
    let report = session
        .run(Message::user("Go"), &heard, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        report.outcome,
        TurnOutcome::AwaitingApproval {
            calls: vec!["1".into()]
        }
    );
    assert_eq!(
        (written.load(Ordering::SeqCst), was_read.load(Ordering::SeqCst)),
        (0, 1)
    );
    assert!(session.is_open());

    // As a state, and as a journal.
    let text = serde_json::to_string(session.state()).unwrap();
    let state: LoopState = serde_json::from_str(&text).unwrap();
    assert_eq!(
        timeless(&state),
        timeless(&LoopState::from_events("s", &heard.all()))
    );

    let mut elsewhere = make(Decision::Approve).session_from(state);
    let report = elsewhere
        .run(TurnStart::Resume, &NullSink, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str()),
        (TurnOutcome::Completed, "Done.")
    );
    assert_eq!(
        (written.load(Ordering::SeqCst), was_read.load(Ordering::SeqCst)),
        (1, 1)
    );
    assert_eq!(report.calls[0].arguments, json!({"path": "a"}));
}

#[tokio::test]
async fn questions_come_one_at_a_time_while_other_calls_run() {
    struct OneAtATime(AtomicU32);
    impl Approver for OneAtATime {
        fn decide<'a>(&'a self, _: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
            Box::pin(async {
                assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two questions at once");
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                self.0.fetch_sub(1, Ordering::SeqCst);
                Decision::Approve
            })
        }
    }
    let calls = ["1", "2", "3", "4"]
        .map(|id| (id, "write", "{}".to_owned()))
        .into();
    let script = Script::new([Say::Calls("", calls), Say::Text("Done.")]);
    let (write, count) = counted("write");
    let mut session = agent(&script)
        .tool(write)
        .approvals(ask_for("write"))
        .approver(Arc::new(OneAtATime(AtomicU32::new(0))))
        .build()
        .unwrap()
        .session();
    session.ask("Go").await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

fn leaky(
    guard: FlowGuard,
    answer: Decision,
) -> (toolcell_agent::Agent, Arc<Script>, Arc<Person>, Arc<AtomicU32>) {
    let script = Script::new([
        call("1", "mail", &json!({})),
        call("2", "web", &json!({})),
        call("3", "web", &json!({"again": true})),
        Say::Text("Done."),
    ]);
    let (mail, _) = counted("mail");
    let (web, count) = counted("web");
    let person = person(answer);
    let private = Flow {
        reads_private: true,
        ..Flow::default()
    };
    let outside = Flow {
        untrusted_content: true,
        can_send_out: true,
        ..Flow::default()
    };
    let agent = agent(&script)
        .tools([mail, web])
        .flow("mail", private)
        .flow("web", outside)
        .approvals(Approvals {
            flow: guard,
            ..Approvals::default()
        })
        .approver(person.clone())
        .build()
        .unwrap();
    (agent, script, person, count)
}

#[tokio::test]
async fn the_call_that_would_let_private_data_out_is_asked_for_once() {
    let (agent, _, person, count) = leaky(FlowGuard::Ask, Decision::Approve);
    let heard = RecordedEvents::default();
    let mut session = agent.session();
    session
        .run(Message::user("Go"), &heard, CancellationToken::new())
        .await
        .unwrap();
    let asked = person.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["2"]);
    assert!(asked[0].reason.contains("send data outside"));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let flows = heard.all();
    let last = flows.iter().rev().find_map(|event| match event {
        Event::FlowChanged { id, flow } => Some((id.as_str(), flow.is_complete())),
        _ => None,
    });
    assert_eq!(last, Some(("2", true)));
}

#[tokio::test]
async fn a_flow_that_is_declined_or_refused_stays_incomplete_and_is_asked_for_again() {
    let no = Decision::Deny { reason: None };
    let (agent, _, person, count) = leaky(FlowGuard::Ask, no);
    let mut session = agent.session();
    session.ask("Go").await.unwrap();
    assert_eq!(person.asked.lock().unwrap().len(), 2);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert!(!session.state().flow.is_complete());

    let (agent, _, person, count) = leaky(FlowGuard::Refuse, Decision::Approve);
    agent.session().ask("Go").await.unwrap();
    assert_eq!(person.asked.lock().unwrap().len(), 0);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_flow_of_a_session_is_remembered_over_its_turns() {
    let script = Script::new([
        call("1", "mail", &json!({})),
        Say::Text("Read."),
        call("2", "web", &json!({})),
        Say::Text("Done."),
    ]);
    let (web, count) = counted("web");
    let mut session = agent(&script)
        .tools([counted("mail").0, web])
        .flow(
            "mail",
            Flow {
                reads_private: true,
                ..Flow::default()
            },
        )
        .flow(
            "web",
            Flow {
                untrusted_content: true,
                can_send_out: true,
                ..Flow::default()
            },
        )
        .build()
        .unwrap()
        .session();
    session.ask("Read my mail").await.unwrap();
    session.ask("Now look at the web").await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0, "nobody is there to decide");
}
