//! Order of effects and the journal.

use super::*;

/// In-memory journal that blocks after a number of appends.
struct Gated {
    open: Arc<Semaphore>,
    /// True if the permitted appends fail.
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
        let recorded = super::RecordedEvents::default();
        for event in self.journal.lock().unwrap().iter() {
            recorded.event(event);
        }
        recorded.names()
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
                return Err(StoreError::failed("the disk is full"));
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
    fn rename<'a>(&'a self, _: &'a str, _: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
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

/// Runs all tasks that can make progress.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_unrepeatable_effects_wait_for_the_journal() {
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
        // Only the start of the turn is acknowledged.
        let store = Gated::new(1);
        let recorded = super::RecordedEvents::default();
        let session = agent(&script)
            .tool(counted)
            .store(store.clone())
            .build()
            .unwrap()
            .session_from(LoopState::new("s"));
        let running = session.spawn("Go", recorded.clone());
        settle().await;
        script.assert_asked(asked_before);
        assert_eq!(calls.load(Ordering::SeqCst), called_before);
        // Events that are not stored are not shown.
        assert_eq!(recorded.names(), ["turn_started", "step_started"]);
        assert_eq!(store.names(), recorded.names());
        store.open.add_permits(100);
        let (_, report) = running.await;
        assert_eq!(report.unwrap().text, "Done.");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(store.names(), recorded.names());
        assert_eq!(recorded.names().last().map(String::as_str), Some("turn_finished"));
    }
}

#[tokio::test]
async fn nothing_happens_before_the_start_of_the_turn_is_stored() {
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
async fn dropping_a_run_during_a_commit_neither_loses_nor_repeats() {
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
async fn nothing_is_stored_after_a_failed_batch() {
    let script = Script::new([Say::Text("One."), Say::Text("Two."), Say::Text("Three.")]);
    let store = Gated::new(100);
    let agent = agent(&script).store(store.clone()).build().unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    session.ask("Begin").await.unwrap();
    let stored = store.names();
    store.fails.store(true, Ordering::SeqCst);
    let recorded = super::RecordedEvents::default();
    let cancel = CancellationToken::new();
    session
        .run(Message::user("Go"), &recorded, cancel)
        .await
        .unwrap_err();
    assert_eq!(recorded.names(), Vec::<String>::new());
    // The disk has space again, but the session has a turn that the journal lacks.
    store.fails.store(false, Ordering::SeqCst);
    let error = session
        .run(TurnStart::Abandon, &NullSink, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, AgentError::Store { source: StoreError::Failed { source }, .. } if source.to_string() == "the disk is full"),
        "{error}"
    );
    assert_eq!(store.names(), stored);
    script.assert_asked(1);
}
