//! Sessions that are stored, loaded and forked, and many of them at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::{BoxFuture, Event, Message, SessionStore, StoreError};

use super::{Heard, agent, timeless};
use crate::policy::LoopPolicy;
use crate::testing::{Say, Script, call, slow_tool, text_of, tool};
use crate::{AgentError, LoopState, Silent, SqliteStore};

fn store(dir: &tempfile::TempDir) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(dir.path().join("sessions.db")).unwrap())
}

#[tokio::test]
async fn a_session_that_was_loaded_goes_on_as_if_it_had_not_been_stored() {
    let dir = tempfile::tempdir().unwrap();
    let answers = || {
        [
            call("1", "t", &json!({})),
            Say::Text("One."),
            call("1", "t", &json!({"b": 1})),
            Say::Text("Two."),
        ]
    };
    let (kept, fresh) = (Script::new(answers()), Script::new(answers()));
    let echo = || tool("t", |arguments| Ok(format!("{arguments:?}")));
    let mut stayed = agent(&kept).tool(echo()).build().unwrap().session_named("s");
    stayed.ask("First").await.unwrap();
    stayed.ask("Second").await.unwrap();

    let open = || agent(&fresh).tool(echo()).store(store(&dir)).build().unwrap();
    let mut session = open().session_named("s");
    session.ask("First").await.unwrap();
    drop(session);
    let mut session = open().load("s").await.unwrap();
    session.ask("Second").await.unwrap();
    assert_eq!(timeless(session.state()), timeless(stayed.state()));
    assert_eq!(open().load("s").await.unwrap().state(), session.state());
    let sent = |script: &Script| format!("{:?}", script.requests().last().unwrap().messages);
    assert_eq!(sent(&kept), sent(&fresh));
}

#[tokio::test]
async fn every_event_is_stored_before_it_is_shown_and_before_anything_is_sent() {
    struct Watching(Arc<SqliteStore>, std::sync::Mutex<Vec<Event>>);
    impl SessionStore for Watching {
        fn append<'a>(
            &'a self,
            session: &'a str,
            events: Vec<Event>,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            Box::pin(async move {
                self.0.append(session, events.clone()).await?;
                self.1.lock().unwrap().extend(events);
                Ok(())
            })
        }
        fn load<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
            self.0.load(session)
        }
        fn list(&self) -> BoxFuture<'_, Result<Vec<toolcell_core::store::SessionInfo>, StoreError>> {
            self.0.list()
        }
        fn fork<'a>(
            &'a self,
            from: &'a str,
            to: &'a str,
            events: Option<u64>,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            self.0.fork(from, to, events)
        }
        fn delete<'a>(&'a self, session: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
            self.0.delete(session)
        }
        fn keep_result<'a>(
            &'a self,
            session: &'a str,
            call: &'a str,
            text: &'a str,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            self.0.keep_result(session, call, text)
        }
        fn kept_result<'a>(
            &'a self,
            session: &'a str,
            call: &'a str,
        ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
            self.0.kept_result(session, call)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let watching = Arc::new(Watching(store(&dir), std::sync::Mutex::default()));
    let seen = watching.clone();
    let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
    let asking = seen.clone();
    let echo = tool("t", move |_| {
        let stored = asking.1.lock().unwrap();
        assert!(
            matches!(stored.last(), Some(Event::CallStarted { .. })),
            "{:?}",
            stored.last()
        );
        Ok("ok".into())
    });
    let sink = move |event: &Event| {
        // Logs and notices of calls are stored with the step that follows them.
        if !event.is_transient() && !matches!(event, Event::CallLog { .. } | Event::Notice { .. }) {
            assert!(
                seen.1.lock().unwrap().contains(event),
                "shown before it was stored: {event:?}"
            );
        }
    };
    let mut session = agent(&script)
        .tool(echo)
        .store(watching.clone())
        .build()
        .unwrap()
        .session();
    let report = session
        .run(Message::user("Go"), &sink, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.outcome, TurnOutcome::Completed);
    assert!(report.calls[0].error.is_none());
}

#[tokio::test]
async fn a_journal_that_fails_ends_the_run_and_nothing_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let shared = store(&dir);
    let script = Script::new([Say::Text("Hi."), Say::Text("Hi again.")]);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    agent.session_named("s").ask("Go").await.unwrap();
    shared.delete("s").await.unwrap();
    let other = store(&dir);
    other
        .append(
            "s",
            vec![Event::Reminder {
                kind: toolcell_core::event::ReminderKind::Continue,
                text: String::new(),
                stored: false,
            }],
        )
        .await
        .unwrap();
    let error = agent.session_named("s").ask("Go").await.unwrap_err();
    assert!(
        matches!(
            error,
            AgentError::Store {
                source: StoreError::Exists { .. },
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn a_conversation_from_elsewhere_is_in_the_journal_too() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("Red."), Say::Text("Green.")]);
    let agent = agent(&script).store(store(&dir)).build().unwrap();
    let saved = [
        Message::user("A colour?"),
        Message::assistant("Blue."),
        Message::user("Another?"),
    ];
    let mut session = agent.session_with("s", saved);
    session.proceed(&Silent, CancellationToken::new()).await.unwrap();
    session.ask("And another?").await.unwrap();
    let loaded = agent.load("s").await.unwrap();
    assert_eq!(loaded.state(), session.state());
    let texts: Vec<String> = loaded.messages().iter().map(|m| m.text()).collect();
    assert_eq!(
        texts,
        ["A colour?", "Blue.", "Another?", "Red.", "And another?", "Green."]
    );
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("Blue."), Say::Text("Sea."), Say::Text("Sky.")]);
    let shared = store(&dir);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    agent.session_named("a").ask("A colour?").await.unwrap();
    shared.fork("a", "b", None).await.unwrap();
    agent.load("a").await.unwrap().ask("What has it?").await.unwrap();
    agent.load("b").await.unwrap().ask("What else?").await.unwrap();
    let texts = |session: &crate::Session| session.messages().iter().map(|m| m.text()).collect::<Vec<_>>();
    assert_eq!(
        texts(&agent.load("a").await.unwrap()),
        ["A colour?", "Blue.", "What has it?", "Sea."]
    );
    let b = agent.load("b").await.unwrap();
    assert_eq!(texts(&b), ["A colour?", "Blue.", "What else?", "Sky."]);
    assert_eq!(b.id(), "b");
}

#[tokio::test]
async fn a_result_that_was_cut_is_read_whole_by_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([
        call("big", "long", &json!({})),
        Say::Text("Long."),
        call("2", "read_result", &json!({"call": "big", "find": "needle"})),
        Say::Text("There."),
    ]);
    let open = || {
        let long = tool("long", |_| {
            Ok(format!("{}needle{}", "x".repeat(5_000), "y".repeat(5_000)))
        });
        let policy = LoopPolicy {
            result_bytes: 300,
            ..LoopPolicy::default()
        };
        agent(&script)
            .tool(long)
            .policy(policy)
            .store(store(&dir))
            .build()
            .unwrap()
    };
    open().session_named("s").ask("Go").await.unwrap();
    let report = open().load("s").await.unwrap().ask("Find it").await.unwrap();
    let found = text_of(&report.calls[0].content);
    assert!(found.starts_with("[at byte 5000]"), "{found}");
}

#[tokio::test]
async fn a_summary_and_pruned_results_survive_in_the_journal_and_not_in_the_conversation() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Text("Summary."),
        Say::Text("Done."),
    ]);
    let policy = LoopPolicy {
        context: crate::policy::ContextPolicy {
            summarise_at: Some(500),
            keep_rounds: 0,
            ..Default::default()
        },
        ..LoopPolicy::default()
    };
    let long = tool("t", |_| Ok("x".repeat(4_000)));
    let shared = store(&dir);
    let agent = agent(&script)
        .tool(long)
        .policy(policy)
        .store(shared.clone())
        .build()
        .unwrap();
    let mut session = agent.session_named("s");
    session.ask("Go").await.unwrap();
    let journal = shared.load("s").await.unwrap();
    assert_eq!(&LoopState::from_events("s", &journal), session.state());
    assert!(!session.messages().iter().any(|m| m.text().contains("xxxx")));
    assert!(
        journal
            .iter()
            .any(|e| matches!(e, Event::CallFinished { content, .. } if content[0].byte_len() == 4_000))
    );
}

#[tokio::test]
async fn the_last_message_of_an_interrupted_turn_is_shown_and_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Hang("Half"), Say::Text("Whole.")]);
    let shared = store(&dir);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    let mut session = agent.session_named("s");
    let _ = tokio::time::timeout(Duration::from_millis(200), session.ask("Go")).await;
    drop(session);
    let mut session = agent.load("s").await.unwrap();
    assert!(session.is_open());
    let heard = Heard::default();
    let report = session.resume(&heard, CancellationToken::new()).await.unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str(), report.steps),
        (TurnOutcome::Completed, "Whole.", 1)
    );
    assert_eq!(heard.names(), ["step_started", "step_finished", "turn_finished"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_run_at_once_with_their_journals() {
    let dir = tempfile::tempdir().unwrap();
    let shared = store(&dir);
    let tasks: Vec<_> = (0..1_000)
        .map(|i| {
            let script = Script::new([call("1", "t", &json!({"i": i})), Say::Text("Done.")]);
            let slow = slow_tool("t", Duration::from_millis(20), |arguments| {
                Ok(arguments["i"].to_string())
            });
            let agent = agent(&script).tool(slow).store(shared.clone()).build().unwrap();
            tokio::spawn(async move {
                let mut session = agent.session_named(format!("s{i}"));
                let message = Message::user("Go");
                session.run(message, &Silent, CancellationToken::new()).await
            })
        })
        .collect();
    for (i, task) in tasks.into_iter().enumerate() {
        let report = task.await.unwrap().unwrap();
        assert_eq!(report.outcome, TurnOutcome::Completed);
        assert_eq!(text_of(&report.calls[0].content), i.to_string());
    }
    assert_eq!(shared.list().await.unwrap().len(), 1_000);
}
