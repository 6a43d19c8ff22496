//! Sessions that are stored, loaded and forked, and many of them at once.

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
use toolcell_store::SqliteStore;

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
async fn every_event_is_stored_before_it_is_shown_and_before_anything_is_sent() {
    struct Watching(Arc<SqliteStore>, std::sync::Mutex<Vec<Event>>);
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
    assert!(report.calls[0].error.is_none());
}

#[tokio::test]
async fn a_journal_that_fails_ends_the_run_and_nothing_is_sent() {
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
async fn a_conversation_from_elsewhere_is_in_the_journal_too() {
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
async fn a_message_that_is_answered_later_is_in_the_journal_once() {
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
async fn a_fork_goes_its_own_way() {
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
    open().session_from(LoopState::new("s")).ask("Go").await.unwrap();
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
            .any(|e| matches!(e, Event::CallFinished { content, .. } if content[0].byte_len() == 4_000))
    );
}

#[tokio::test]
async fn the_last_message_of_an_interrupted_turn_is_shown_and_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([Say::Hang("Half"), Say::Text("Whole.")]);
    let shared = store(&dir);
    let agent = agent(&script).store(shared.clone()).build().unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    let _ = tokio::time::timeout(Duration::from_millis(200), session.ask("Go")).await;
    drop(session);
    let mut session = agent.load("s").await.unwrap();
    assert!(session.is_open());
    let heard = RecordedEvents::default();
    let report = session
        .run(TurnStart::Resume, &heard, CancellationToken::new())
        .await
        .unwrap();
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
                let mut session = agent.session_from(LoopState::new(format!("s{i}")));
                let message = Message::user("Go");
                session.run(message, &NullSink, CancellationToken::new()).await
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

/// A journal in memory that acknowledges as many appends as it is let.
struct Gated {
    open: Arc<Semaphore>,
    /// Whether appends fail that are let.
    fails: AtomicBool,
    journal: Mutex<Vec<Event>>,
}

impl Gated {
    fn new(appends: usize) -> Arc<Self> {
        Arc::new(Self {
            open: Arc::new(Semaphore::new(appends)),
            fails: AtomicBool::new(false),
            journal: Mutex::default(),
        })
    }

    fn names(&self) -> Vec<String> {
        let heard = super::RecordedEvents::default();
        for event in self.journal.lock().unwrap().iter() {
            heard.event(event);
        }
        heard.names()
    }
}

fn no_session<T: Send + 'static>() -> BoxFuture<'static, Result<T, StoreError>> {
    Box::pin(std::future::ready(Err(StoreError::NotFound { id: "s".into() })))
}

impl SessionStore for Gated {
    fn append<'a>(
        &'a self,
        _: &'a str,
        at: u64,
        events: Vec<Event>,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            self.open.acquire().await.unwrap().forget();
            if self.fails.load(Ordering::SeqCst) {
                let message = "the disk is full".into();
                return Err(StoreError::Failed { message });
            }
            let mut journal = self.journal.lock().unwrap();
            assert_eq!(at, journal.len() as u64);
            journal.extend(events);
            Ok(journal.len() as u64)
        })
    }
    fn load<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        no_session()
    }
    fn list(&self) -> BoxFuture<'_, Result<Vec<toolcell_core::store::SessionInfo>, StoreError>> {
        no_session()
    }
    fn fork<'a>(&'a self, _: &'a str, _: &'a str, _: Option<u64>) -> BoxFuture<'a, Result<(), StoreError>> {
        no_session()
    }
    fn delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        no_session()
    }
    fn keep_result<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        no_session()
    }
    fn kept_result<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        no_session()
    }
}

/// Lets everything run that can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_what_may_not_be_done_twice_waits_for_the_journal() {
    for (idempotent, asked_before, called_before) in [(true, 2, 1), (false, 1, 0)] {
        let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
        let calls = Arc::new(AtomicU32::new(0));
        let counter = calls.clone();
        let hints = Hints {
            idempotent,
            ..Hints::default()
        };
        let counted = tool_with("t", r#"{"type":"object"}"#, hints, move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok("ok".into())
        });
        // The beginning of the turn is let through, and nothing after it.
        let store = Gated::new(1);
        let heard = super::RecordedEvents::default();
        let session = agent(&script)
            .tool(counted)
            .store(store.clone())
            .build()
            .unwrap()
            .session_from(LoopState::new("s"));
        let running = session.spawn("Go", heard.clone());
        settle().await;
        script.assert_asked(asked_before);
        assert_eq!(calls.load(Ordering::SeqCst), called_before);
        // Whatever was done: what is not stored is not shown.
        assert_eq!(heard.names(), ["turn_started", "step_started"]);
        assert_eq!(store.names(), heard.names());
        store.open.add_permits(100);
        let (_, report) = running.await;
        assert_eq!(report.unwrap().text, "Done.");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(store.names(), heard.names());
        assert_eq!(heard.names().last().map(String::as_str), Some("turn_finished"));
    }
}

#[tokio::test]
async fn nothing_is_sent_and_no_call_runs_before_the_journal_has_the_beginning_of_the_turn() {
    let script = Script::new([Say::Text("Hi.")]);
    let store = Gated::new(0);
    let agent = agent(&script).store(store.clone()).build().unwrap();
    let running = agent.session_from(LoopState::new("s")).spawn("Go", NullSink);
    settle().await;
    script.assert_asked(0);
    store.open.add_permits(100);
    running.await.1.unwrap();
    script.assert_asked(1);
}

#[tokio::test]
async fn a_run_that_is_dropped_while_it_is_stored_loses_nothing_and_writes_nothing_twice() {
    let script = Script::new([call("1", "t", &json!({})), Say::Text("Done.")]);
    let store = Gated::new(1);
    let mut session = agent(&script)
        .tool(tool("t", |_| Ok("ok".into())))
        .store(store.clone())
        .build()
        .unwrap()
        .session_from(LoopState::new("s"));
    {
        let run = session.run(Message::user("Go"), &NullSink, CancellationToken::new());
        let soon = async { settle().await };
        tokio::select! {
            biased;
            _ = run => panic!("the journal is closed"),
            () = soon => {}
        }
    }
    store.open.add_permits(100);
    let report = session
        .run(TurnStart::Resume, &NullSink, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.text, "Done.");
    assert_eq!(
        store.names(),
        [
            "turn_started",
            "step_started",
            "step_finished",
            "call_started",
            "call_finished",
            "step_started",
            "step_finished",
            "turn_finished"
        ]
    );
}

#[tokio::test]
async fn after_a_batch_that_was_not_stored_nothing_more_is() {
    let script = Script::new([Say::Text("One."), Say::Text("Two."), Say::Text("Three.")]);
    let store = Gated::new(100);
    let agent = agent(&script).store(store.clone()).build().unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    session.ask("Begin").await.unwrap();
    let stored = store.names();
    store.fails.store(true, Ordering::SeqCst);
    let heard = super::RecordedEvents::default();
    let cancel = CancellationToken::new();
    session
        .run(Message::user("Go"), &heard, cancel)
        .await
        .unwrap_err();
    assert_eq!(heard.names(), Vec::<String>::new());
    // The disk has room again, and the session has a turn that the journal does not know.
    store.fails.store(false, Ordering::SeqCst);
    let error = session
        .run(TurnStart::Abandon, &NullSink, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, AgentError::Store { source: StoreError::Failed { message }, .. } if message == "the disk is full"),
        "{error}"
    );
    assert_eq!(store.names(), stored);
    script.assert_asked(1);
}

#[tokio::test]
async fn of_two_that_go_on_with_one_session_in_one_process_the_second_is_told() {
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
    // Nothing was sent for it, and the journal is the first one's.
    script.assert_asked(2);
    assert_eq!(agent.load("s").await.unwrap().state(), one.state());
}
