//! A conversation that the user shortens: the last turn undone, the older part summarised on request.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcell_agent::{AgentError, LoopState, NullSink, Session, TurnStart};
use toolcell_core::Event;
use toolcell_core::event::TurnOutcome;

use super::store;
use crate::testing::{Say, Script, call, tool};

fn texts_of(session: &Session) -> Vec<String> {
    session.messages().iter().map(|message| message.text()).collect()
}

#[tokio::test]
async fn undone_turn_leaves_the_conversation_and_stays_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([
        Say::Text("One."),
        call("1", "t", &json!({})),
        Say::Text("Two."),
        Say::Text("Three."),
    ]);
    let store = store(&dir);
    let agent = super::agent(&script)
        .tool(tool("t", |_| Ok("x".into())))
        .store(store.clone())
        .build()
        .unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    let nothing = session.undo().await.unwrap_err();
    assert!(matches!(nothing, AgentError::NothingToUndo { .. }));
    session.ask("First").await.unwrap();
    session.ask("Second").await.unwrap();
    let spent = session.state().spent();
    assert_eq!(session.undo().await.unwrap(), 4);
    assert_eq!(texts_of(&session), ["First", "One."]);
    // The tokens and calls of an undone turn still count.
    assert_eq!(session.state().spent(), spent);
    session.ask("Third").await.unwrap();
    assert_eq!(texts_of(&session), ["First", "One.", "Third", "Three."]);

    let mut loaded = agent.load("s").await.unwrap();
    assert_eq!(loaded.state(), session.state());
    let events = toolcell_core::SessionStore::load(&*store, "s").await.unwrap();
    let started = events
        .iter()
        .filter(|event| matches!(event, Event::TurnStarted { .. }));
    assert_eq!(started.count(), 3);
    // One turn after the other, to the beginning.
    loaded.undo().await.unwrap();
    loaded.undo().await.unwrap();
    assert!(loaded.messages().is_empty());
    assert!(loaded.undo().await.is_err());
    // The other one does not know of it.
    let error = session.undo().await.unwrap_err();
    assert!(matches!(error, AgentError::Store { .. }), "{error}");
}

#[tokio::test]
async fn summary_on_request_is_a_turn_that_replaces_older_messages() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::new([
        Say::Text("One."),
        Say::Text("Two."),
        Say::Text("Three."),
        Say::Text("It was about numbers."),
        Say::Text("Four."),
    ]);
    let agent = super::agent(&script).store(store(&dir)).build().unwrap();
    let mut session = agent.session_from(LoopState::new("s"));
    let compact = TurnStart::Compact;
    session.ask("First").await.unwrap();
    let short = session
        .run(compact.clone(), &NullSink, CancellationToken::new())
        .await;
    assert!(matches!(short.unwrap_err(), AgentError::TooShort { .. }));
    session.ask("Second").await.unwrap();
    session.ask("Third").await.unwrap();
    let events = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = events.clone();
    let sink = move |event: &Event| seen.lock().unwrap().push(event.clone());
    let report = session
        .run(compact, &sink, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!((report.outcome, report.steps), (TurnOutcome::Completed, 0));
    let texts = texts_of(&session);
    assert!(texts[1].contains("It was about numbers."), "{texts:?}");
    assert_eq!(&texts[2..], ["Third", "Three."]);
    let events = std::mem::take(&mut *events.lock().unwrap());
    assert!(
        matches!(events[0], Event::SummaryStarted { messages: 4, .. }),
        "{events:?}"
    );
    assert!(matches!(events.last(), Some(Event::TurnFinished { .. })));
    assert!(!session.is_open());
    session.ask("Fourth").await.unwrap();
    assert_eq!(agent.load("s").await.unwrap().state(), session.state());
    // Turns behind the summary can be undone, those in it cannot.
    session.undo().await.unwrap();
    session.undo().await.unwrap();
    assert_eq!(session.messages().len(), 2);
    assert!(session.undo().await.is_err());
}
