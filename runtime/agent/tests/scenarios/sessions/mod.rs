//! Sessions that are stored, loaded, forked and run concurrently.

mod journal;
mod undo;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolcell_core::event::TurnOutcome;
use toolcell_core::tool::Hints;
use toolcell_core::{BoxFuture, Event, EventSink, Message, SessionStore, StoreError};

use super::{RecordedEvents, agent, timeless};
use crate::testing::{Say, Script, call, slow_tool, text_of, tool, tool_with};
use toolcell_agent::AgentError;
use toolcell_agent::LoopState;
use toolcell_agent::NullSink;
use toolcell_agent::TurnStart;
use toolcell_agent::policy::LoopPolicy;
use toolcell_store::SqliteSessions;

fn store(dir: &tempfile::TempDir) -> Arc<SqliteSessions> {
    Arc::new(SqliteSessions::open(dir.path().join("sessions.db")).unwrap())
}

#[tokio::test]
async fn loaded_session_continues_identically() {
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
    let mut stayed = agent(&kept)
        .tool(echo())
        .build()
        .unwrap()
        .session_from(LoopState::new("s"));
    stayed.ask("First").await.unwrap();
    stayed.ask("Second").await.unwrap();

    let open = || agent(&fresh).tool(echo()).store(store(&dir)).build().unwrap();
    let mut session = open().session_from(LoopState::new("s"));
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
async fn events_are_stored_before_they_are_shown_or_acted_on() {
    struct Watching(Arc<SqliteSessions>, std::sync::Mutex<Vec<Event>>);
    impl SessionStore for Watching {
        fn append<'a>(
            &'a self,
            session: &'a str,
            at: u64,
            events: Vec<Event>,
        ) -> BoxFuture<'a, Result<u64, StoreError>> {
            Box::pin(async move {
                let next = self.0.append(session, at, events.clone()).await?;
                self.1.lock().unwrap().extend(events);
                Ok(next)
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
        fn rename<'a>(
            &'a self,
            session: &'a str,
            name: Option<&'a str>,
        ) -> BoxFuture<'a, Result<(), StoreError>> {
            self.0.rename(session, name)
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
        if !event.is_transient() {
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
    assert!(report.calls[0].result.error.is_none());
}

#[tokio::test]
async fn journal_failure_ends_the_run_before_any_request() {
    let dir = tempfile::tempdir().unwrap();
    let shared = store(&dir);
    let script = Script::new([Say::Text("Hi."), Say::Text("Hi again.")]);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    agent.session_from(LoopState::new("s")).ask("Go").await.unwrap();
    shared.delete("s").await.unwrap();
    let other = store(&dir);
    other
        .append(
            "s",
            0,
            vec![Event::Reminder {
                kind: toolcell_core::event::ReminderKind::Continue,
                text: String::new(),
                stored: false,
            }],
        )
        .await
        .unwrap();
    let error = agent
        .session_from(LoopState::new("s"))
        .ask("Go")
        .await
        .unwrap_err();
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
async fn imported_conversation_is_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("Red."), Say::Text("Green.")]);
    let agent = agent(&script).store(store(&dir)).build().unwrap();
    let saved = [
        Message::user("A colour?"),
        Message::assistant("Blue."),
        Message::user("Another?"),
    ];
    let mut session = agent.session_from(LoopState::with_messages("s", saved));
    session
        .run(TurnStart::Proceed, &NullSink, CancellationToken::new())
        .await
        .unwrap();
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
async fn results_at_the_end_of_an_imported_conversation_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("It rains.")]);
    let agent = agent(&script).store(store(&dir)).build().unwrap();
    let call = serde_json::json!({"role": "assistant", "parts": [
        {"type": "call", "id": "c", "name": "weather", "arguments": "{}"},
    ]});
    let saved = [
        Message::user("Does it rain?"),
        serde_json::from_value(call).unwrap(),
        Message::Tool {
            call_id: "c".into(),
            name: "weather".into(),
            content: vec![toolcell_core::Content::text("rain")],
            is_error: false,
        },
    ];
    let mut session = agent.session_from(LoopState::with_messages("s", saved));
    session
        .run(TurnStart::Proceed, &NullSink, CancellationToken::new())
        .await
        .unwrap();
    let texts: Vec<String> = session.messages().iter().map(|m| m.text()).collect();
    assert_eq!(texts, ["Does it rain?", "", "rain", "It rains."]);
    let mut loaded = agent.load("s").await.unwrap();
    assert_eq!(loaded.state(), session.state());
    assert_eq!(loaded.undo().await.unwrap(), 4);
}

#[tokio::test]
async fn message_answered_later_is_in_the_journal_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("Blue."), Say::Hang(""), Say::Text("Green.")]);
    let agent = agent(&script).store(store(&dir)).build().unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    session.ask("A colour?").await.unwrap();
    let cancel = CancellationToken::new();
    let (report, ()) = tokio::join!(
        session.run(Message::user("Another?"), &NullSink, cancel.clone()),
        async {
            while script.requests().len() < 2 {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        }
    );
    assert_eq!(report.unwrap().outcome, TurnOutcome::Cancelled);
    session
        .run(TurnStart::Proceed, &NullSink, CancellationToken::new())
        .await
        .unwrap();
    let loaded = agent.load("s").await.unwrap();
    assert_eq!(loaded.state(), session.state());
    let texts: Vec<String> = loaded.messages().iter().map(|m| m.text()).collect();
    assert_eq!(texts, ["A colour?", "Blue.", "Another?", "Green."]);
}

#[tokio::test]
async fn fork_diverges_from_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("Blue."), Say::Text("Sea."), Say::Text("Sky.")]);
    let shared = store(&dir);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    agent
        .session_from(LoopState::new("a"))
        .ask("A colour?")
        .await
        .unwrap();
    shared.fork("a", "b", None).await.unwrap();
    agent.load("a").await.unwrap().ask("What has it?").await.unwrap();
    agent.load("b").await.unwrap().ask("What else?").await.unwrap();
    let texts =
        |session: &toolcell_agent::Session| session.messages().iter().map(|m| m.text()).collect::<Vec<_>>();
    assert_eq!(
        texts(&agent.load("a").await.unwrap()),
        ["A colour?", "Blue.", "What has it?", "Sea."]
    );
    let b = agent.load("b").await.unwrap();
    assert_eq!(texts(&b), ["A colour?", "Blue.", "What else?", "Sky."]);
    assert_eq!(b.id(), "b");
}

#[tokio::test]
async fn cut_result_is_readable_in_full_by_another_process() {
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
    open().session_from(LoopState::new("s")).ask("Go").await.unwrap();
    let report = open().load("s").await.unwrap().ask("Find it").await.unwrap();
    let found = text_of(&report.calls[0].result.content);
    assert!(found.starts_with("[at byte 5000]"), "{found}");
}

#[tokio::test]
async fn journal_keeps_summarised_and_pruned_messages() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([
        call("1", "t", &json!({})),
        Say::Text("Summary."),
        Say::Text("Done."),
    ]);
    let policy = LoopPolicy {
        context: toolcell_agent::policy::ContextPolicy {
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
    let mut session = agent.session_from(LoopState::new("s"));
    session.ask("Go").await.unwrap();
    let journal = shared.load("s").await.unwrap();
    assert_eq!(&LoopState::from_events("s", &journal), session.state());
    assert!(!session.messages().iter().any(|m| m.text().contains("xxxx")));
    assert!(
        journal
            .iter()
            .any(|e| matches!(e, Event::CallFinished { result, .. } if result.byte_len() == 4_000))
    );
}

#[tokio::test]
async fn last_message_of_an_interrupted_turn_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Hang("Half"), Say::Text("Whole.")]);
    let shared = store(&dir);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    let _ = tokio::time::timeout(Duration::from_millis(200), session.ask("Go")).await;
    drop(session);
    let mut session = agent.load("s").await.unwrap();
    assert!(session.is_open());
    let recorded = RecordedEvents::default();
    let report = session
        .run(TurnStart::Resume, &recorded, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(
        (report.outcome, report.text.as_str(), report.steps),
        (TurnOutcome::Completed, "Whole.", 1)
    );
    assert_eq!(
        recorded.names(),
        ["step_started", "step_finished", "turn_finished"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_sessions_run_concurrently_with_journals() {
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
                let mut session = agent.session_from(LoopState::new(format!("s{i}")));
                let message = Message::user("Go");
                session.run(message, &NullSink, CancellationToken::new()).await
            })
        })
        .collect();
    for (i, task) in tasks.into_iter().enumerate() {
        let report = task.await.unwrap().unwrap();
        assert_eq!(report.outcome, TurnOutcome::Completed);
        assert_eq!(text_of(&report.calls[0].result.content), i.to_string());
    }
    assert_eq!(shared.list().await.unwrap().len(), 1_000);
}

#[tokio::test]
async fn second_continuation_of_a_session_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Text("One."), Say::Text("Two.")]);
    let agent = agent(&script).store(store(&dir)).build().unwrap();
    agent
        .session_from(LoopState::new("s"))
        .ask("Begin")
        .await
        .unwrap();
    let (mut one, mut two) = (agent.load("s").await.unwrap(), agent.load("s").await.unwrap());
    one.ask("Go").await.unwrap();
    let error = two.ask("Go").await.unwrap_err();
    assert!(
        matches!(
            error,
            AgentError::Store {
                source: StoreError::InUse { .. },
                ..
            }
        ),
        "{error}"
    );
    // No request was sent for the second one, and the journal has the events of the first.
    script.assert_asked(2);
    assert_eq!(agent.load("s").await.unwrap().state(), one.state());
}
