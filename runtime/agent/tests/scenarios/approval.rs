//! Calls that need approval.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::event::{DataFlow, TurnOutcome};
use toolcell_core::{
    ArgumentPlace, BoxFuture, CallContext, CallResult, Content, Event, Message, PlaceKind, Tool, ToolCall,
    ToolSpec,
};

use super::{RecordedEvents, agent, timeless};
use crate::testing::{Say, Script, call, text_of, tool};
use toolcell_agent::LoopState;
use toolcell_agent::NullSink;
use toolcell_agent::TurnStart;
use toolcell_agent::approval::{
    ApprovalRequest, ApprovalRule, Approvals, Approver, Decision, FlowGuard, Verdict, is_within,
};

/// Returns a fixed decision and records the requests.
struct User {
    answer: Decision,
    asked: Mutex<Vec<ApprovalRequest>>,
}

fn user(answer: Decision) -> Arc<User> {
    Arc::new(User {
        answer,
        asked: Mutex::default(),
    })
}

impl Approver for User {
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
async fn approved_arguments_run_unchanged() {
    let (write, count) = counted("write");
    let user = user(Decision::Approve);
    let recorded = RecordedEvents::default();
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(ask_for("wri*"))
        .approver(user.clone())
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    let asked = user.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].reason, "the rule `ask for wri*`");
    assert_eq!(
        text_of(&report.calls[0].result.content),
        asked[0].arguments.to_string()
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let names = recorded.names();
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
async fn declined_call_is_not_run_and_the_reason_is_sent() {
    let (write, count) = counted("write");
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(ask_for("*"))
        .approver(user(Decision::Deny {
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
    assert!(text_of(&report.calls[0].result.content).contains("the call was not approved: wrong folder"));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn without_an_approver_the_call_is_refused_with_the_rule() {
    let (write, count) = counted("write");
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(ask_for("write"))
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let read = text_of(&report.calls[0].result.content);
    assert!(
        read.contains("the call was not approved: no user can be asked here, and this needs an approval: the rule `ask for write`"),
        "{read}"
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn denying_rule_is_shown_to_the_user_and_not_the_model() {
    let (write, count) = counted("write");
    let approvals = Approvals {
        rules: vec![ApprovalRule::tool("write", Verdict::Deny).with_argument("/path", "a")],
        ..Approvals::default()
    };
    let mut session = agent(&write_once())
        .tool(write)
        .approvals(approvals)
        .approver(user(Decision::Approve))
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    let error = report.calls[0].result.error.as_ref().unwrap();
    assert_eq!(
        error.hint(),
        Some("refused by the rule `deny write where /path is a`")
    );
    assert!(!error.for_model().contains("rule"));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn turn_awaiting_approval_resumes_in_another_process() {
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
            .approver(user(answer))
            .build()
            .unwrap()
    };
    let recorded = RecordedEvents::default();
    let mut session = make(Decision::Later).session_from(LoopState::new("s"));
    let report = session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        report.outcome,
        TurnOutcome::AwaitingApproval {
            calls: vec!["1".into()]
        }
    );
    assert_eq!(report.steps, 1);
    assert_eq!(
        (written.load(Ordering::SeqCst), was_read.load(Ordering::SeqCst)),
        (0, 1)
    );
    assert!(session.is_open());

    // From a state, and from a journal.
    let text = serde_json::to_string(session.state()).unwrap();
    let state: LoopState = serde_json::from_str(&text).unwrap();
    assert_eq!(
        timeless(&state),
        timeless(&LoopState::from_events("s", &recorded.all()))
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
async fn approvals_are_requested_one_at_a_time() {
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

/// Records how many requests come together, and denies the second of them with words.
struct Together(Mutex<Vec<Vec<String>>>);

impl Approver for Together {
    fn decide<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        self.0.lock().unwrap().push(vec![request.id.clone()]);
        Box::pin(std::future::ready(Decision::Approve))
    }

    fn decide_all<'a>(&'a self, requests: &'a [ApprovalRequest]) -> BoxFuture<'a, Vec<Decision>> {
        let ids = requests.iter().map(|request| request.id.clone()).collect();
        self.0.lock().unwrap().push(ids);
        let reason = Some("the user says: not this".to_owned());
        // The third has no decision, which is a refusal.
        let decisions = vec![Decision::Approve, Decision::Deny { reason }];
        Box::pin(std::future::ready(decisions))
    }
}

#[tokio::test]
async fn calls_of_a_step_are_asked_about_together() {
    let calls = [("1", "write"), ("r", "read"), ("2", "write"), ("3", "write")];
    let calls = calls.map(|(id, tool)| (id, tool, "{}".to_owned())).into();
    let script = Script::new([
        Say::Calls("", calls),
        call("4", "write", &json!({})),
        Say::Text("Done."),
    ]);
    let (write, count) = counted("write");
    let (read, reads) = counted("read");
    let user = Arc::new(Together(Mutex::default()));
    let mut session = agent(&script)
        .tools([write, read])
        .approvals(ask_for("write"))
        .approver(user.clone())
        .build()
        .unwrap()
        .session();
    let report = session.ask("Go").await.unwrap();
    assert_eq!(*user.0.lock().unwrap(), [vec!["1", "2", "3"], vec!["4"]]);
    assert_eq!(
        (count.load(Ordering::SeqCst), reads.load(Ordering::SeqCst)),
        (2, 1)
    );
    let error_of = |id: &str| {
        let call = report.calls.iter().find(|call| call.id == id).unwrap();
        call.result.error.as_ref().map(ToString::to_string)
    };
    assert_eq!((error_of("1"), error_of("4")), (None, None));
    assert!(error_of("2").unwrap().contains("not this"));
    assert!(error_of("3").is_some_and(|error| !error.contains("not this")));
}

fn leaky(
    guard: FlowGuard,
    answer: Decision,
) -> (toolcell_agent::Agent, Arc<Script>, Arc<User>, Arc<AtomicU32>) {
    let script = Script::new([
        call("1", "mail", &json!({})),
        call("2", "web", &json!({})),
        call("3", "web", &json!({"again": true})),
        Say::Text("Done."),
    ]);
    let (mail, _) = counted("mail");
    let (web, count) = counted("web");
    let user = user(answer);
    let private = DataFlow {
        reads_private: true,
        ..DataFlow::default()
    };
    let outside = DataFlow {
        untrusted_content: true,
        can_send_out: true,
        ..DataFlow::default()
    };
    let agent = agent(&script)
        .tools([mail, web])
        .flow("mail", private)
        .flow("web", outside)
        .approvals(Approvals {
            flow: guard,
            ..Approvals::default()
        })
        .approver(user.clone())
        .build()
        .unwrap();
    (agent, script, user, count)
}

#[tokio::test]
async fn call_that_could_leak_private_data_needs_one_approval() {
    let (agent, _, user, count) = leaky(FlowGuard::Ask, Decision::Approve);
    let recorded = RecordedEvents::default();
    let mut session = agent.session();
    session
        .run(Message::user("Go"), &recorded, CancellationToken::new())
        .await
        .unwrap();
    let asked = user.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["2"]);
    assert!(asked[0].reason.contains("the session reads private data"));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let flows = recorded.all();
    let last = flows.iter().rev().find_map(|event| match event {
        Event::FlowChanged { id, flow } => Some((id.as_str(), flow.is_complete())),
        _ => None,
    });
    assert_eq!(last, Some(("2", true)));
}

#[tokio::test]
async fn attached_file_counts_as_private_data() {
    for (content, asked) in [
        (vec![Content::text("Go")], 0),
        (
            vec![Content::text("Go"), Content::text("Attached file `key`: …")],
            1,
        ),
    ] {
        let script = Script::new([call("1", "web", &json!({})), Say::Text("Done.")]);
        let (web, _) = counted("web");
        let user = user(Decision::Approve);
        let outside = DataFlow {
            untrusted_content: true,
            can_send_out: true,
            ..DataFlow::default()
        };
        let agent = agent(&script)
            .tools([web])
            .flow("web", outside)
            .approver(user.clone())
            .build()
            .unwrap();
        let mut session = agent.session();
        let message = Message::User { content };
        let run = session.run(message, &NullSink, CancellationToken::new());
        run.await.unwrap();
        assert_eq!(user.asked.lock().unwrap().len(), asked);
    }
}

#[tokio::test]
async fn declined_data_flow_needs_approval_again() {
    let no = Decision::Deny { reason: None };
    let (agent, _, user, count) = leaky(FlowGuard::Ask, no);
    let mut session = agent.session();
    session.ask("Go").await.unwrap();
    assert_eq!(user.asked.lock().unwrap().len(), 2);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert!(!session.state().flow.is_complete());

    let (agent, _, user, count) = leaky(FlowGuard::Refuse, Decision::Approve);
    agent.session().ask("Go").await.unwrap();
    assert_eq!(user.asked.lock().unwrap().len(), 0);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn data_flow_is_tracked_across_turns() {
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
            DataFlow {
                reads_private: true,
                ..DataFlow::default()
            },
        )
        .flow(
            "web",
            DataFlow {
                untrusted_content: true,
                can_send_out: true,
                ..DataFlow::default()
            },
        )
        .build()
        .unwrap()
        .session();
    session.ask("Read my mail").await.unwrap();
    session.ask("Now look at the web").await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0, "no approver decides");
}

#[test]
fn used_up_work_leaves_denials_and_questions_in_force() {
    let text = "a".repeat(1 << 20);
    let arguments = json!({ "text": text });
    let costly = || ApprovalRule::tool("t", Verdict::Allow).with_argument("/text", "*b*c");
    for (first, expected) in [
        (ApprovalRule::tool("other_*", Verdict::Deny), Verdict::Deny),
        (ApprovalRule::tool("other_*", Verdict::Ask), Verdict::Ask),
        (ApprovalRule::tool("t", Verdict::Allow), Verdict::Deny),
    ] {
        let mut rules = vec![ApprovalRule::tool("*", Verdict::Deny), first];
        rules.extend(std::iter::repeat_with(costly).take(64));
        let approvals = Approvals {
            rules,
            flow: FlowGuard::Off,
            ..Approvals::default()
        };
        let (verdict, _) = approvals.verdict("t", &arguments, &[]);
        assert_eq!(verdict, expected);
    }
}

#[test]
fn saved_pattern_covers_only_resolved_targets_within_it() {
    let place = |real: Option<&str>| ArgumentPlace {
        pointer: "/path".into(),
        kind: PlaceKind::Path,
        plain: "/x".into(),
        named: real.map(str::to_owned),
        real: real.map(str::to_owned),
        is_unresolved: real.is_none(),
    };
    for (real, expected) in [
        (Some("/work/notes/a"), true),
        (Some("/work/private/key"), false),
        (None, false),
    ] {
        let found = is_within(&place(real), "./notes/*", Some("/work"));
        assert_eq!(found, expected, "{real:?}");
    }
}

/// A tool that changes files, and notes when its calls begin and end.
struct Writer(ToolSpec, Arc<Mutex<Vec<String>>>);

impl Tool for Writer {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, call: ToolCall, _: CallContext) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            self.1.lock().unwrap().push(format!("{} begins", call.id));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.1.lock().unwrap().push(format!("{} ends", call.id));
            CallResult::text("ok")
        })
    }

    fn changes_files(&self) -> bool {
        true
    }
}

/// No call changes where a path leads between the judgement of another call and its end.
#[tokio::test]
async fn calls_that_change_files_do_not_overlap_where_rules_judge() {
    for (rules, overlap) in [
        (vec![ApprovalRule::tool("*", Verdict::Allow)], false),
        (Vec::new(), true),
    ] {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let (plain, _) = counted("write");
        let calls = ["1", "2"].map(|id| (id, "write", "{}".to_owned()));
        let script = Script::new([Say::Calls("", calls.to_vec()), Say::Text("Done.")]);
        let mut session = agent(&script)
            .tool(Arc::new(Writer(plain.spec().clone(), notes.clone())))
            .approvals(Approvals {
                rules,
                ..Approvals::default()
            })
            .build()
            .unwrap()
            .session();
        session.ask("Go").await.unwrap();
        let notes = notes.lock().unwrap().clone();
        assert_eq!(notes[1] == "2 begins", overlap, "{notes:?}");
    }
}
