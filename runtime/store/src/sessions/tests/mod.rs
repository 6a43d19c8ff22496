mod list;
mod usage;

use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use toolcell_core::event::{NoticeLevel, TurnOutcome};
use toolcell_core::provider::{StopReason, Usage};
use toolcell_core::{Event, Message, SessionStore, StoreError};

use super::*;

fn open(dir: &TempDir) -> SqliteSessions {
    SqliteSessions::open(dir.path().join("sessions.db")).unwrap()
}

fn note(text: &str) -> Event {
    Event::Notice {
        level: NoticeLevel::Info,
        hook: None,
        text: text.into(),
    }
}

fn started(text: &str) -> Event {
    Event::TurnStarted {
        version: 1,
        session: "s".into(),
        provider: "p".into(),
        model: "m".into(),
        message: Message::user(text),
        unanswered: false,
    }
}

fn texts(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .map(|event| match event {
            Event::Notice { text, .. } => text.as_str(),
            _ => "?",
        })
        .collect()
}

/// Appends like a caller that has just loaded the session.
async fn append(store: &SqliteSessions, session: &str, names: &[&str]) -> Result<u64, StoreError> {
    let known = store.load(session).await.map_or(0, |events| events.len() as u64);
    append_at(store, session, known, names).await
}

async fn append_at(
    store: &SqliteSessions,
    session: &str,
    at: u64,
    names: &[&str],
) -> Result<u64, StoreError> {
    store
        .append(session, at, names.iter().map(|name| note(name)).collect())
        .await
}

async fn loaded(store: &SqliteSessions, session: &str) -> Vec<String> {
    let events = store.load(session).await.unwrap();
    texts(&events).into_iter().map(str::to_owned).collect()
}

fn finished(input: u64, cost_micros: Option<u64>) -> Event {
    Event::TurnFinished {
        outcome: TurnOutcome::Completed,
        text: String::new(),
        result: None,
        steps: 1,
        usage: Usage {
            input,
            cache_read: 2,
            output: 3,
            reasoning: 1,
            ..Usage::default()
        },
        wall_ms: 1,
        cost_micros,
    }
}

fn answered() -> Event {
    Event::StepFinished {
        step: 1,
        message: Message::assistant("Yes."),
        stop: StopReason::Complete,
        usage: None,
    }
}

async fn info(store: &SqliteSessions, id: &str) -> SessionInfo {
    let all = store.list().await.unwrap();
    all.into_iter().find(|info| info.id == id).unwrap()
}

#[tokio::test]
async fn events_survive_reopening_in_order_and_unchanged() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let events = vec![started("Hello"), note("é\u{0}\u{1b}"), note("")];
    store.append("s", 0, events.clone()).await.unwrap();
    append(&store, "s", &["last"]).await.unwrap();
    drop(store);
    let store = open(&dir);
    let mut expected = events;
    expected.push(note("last"));
    assert_eq!(store.load("s").await.unwrap(), expected);
    append(&store, "s", &["more"]).await.unwrap();
    assert_eq!(store.load("s").await.unwrap().len(), 5);
    let lines = store.export("s").await.unwrap();
    assert_eq!(lines.lines().count(), 5);
    assert!(
        lines
            .lines()
            .all(|line| serde_json::from_str::<Event>(line).is_ok())
    );
}

#[tokio::test]
async fn transient_events_are_not_stored() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let delta = Event::TextDelta { text: "x".into() };
    store
        .append("s", 0, vec![delta.clone(), note("a"), delta.clone()])
        .await
        .unwrap();
    assert_eq!(store.append("s", 1, vec![delta]).await.unwrap(), 1);
    assert_eq!(loaded(&store, "s").await, ["a"]);
}

#[tokio::test]
async fn session_that_was_not_loaded_is_not_written() {
    let dir = TempDir::new().unwrap();
    append(&open(&dir), "s", &["a"]).await.unwrap();
    let store = open(&dir);
    let error = append_at(&store, "s", 0, &["b"]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Exists { id } if id == "s"),
        "{error}"
    );
    assert_eq!(loaded(&store, "s").await, ["a"]);
    assert_eq!(append_at(&store, "s", 1, &["b"]).await.unwrap(), 2);
}

#[tokio::test]
async fn second_concurrent_writer_of_a_session_is_refused() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (open(&dir), open(&dir));
    append_at(&one, "s", 0, &["a"]).await.unwrap();
    // In another process and in this one: a writer must know all earlier entries.
    append_at(&two, "s", 1, &["b"]).await.unwrap();
    for store in [&one, &two] {
        let error = append_at(store, "s", 1, &["c"]).await.unwrap_err();
        assert!(matches!(&error, StoreError::InUse { id } if id == "s"), "{error}");
    }
    assert_eq!(loaded(&one, "s").await, ["a", "b"]);
    append_at(&one, "s", 2, &["c"]).await.unwrap();
    assert_eq!(loaded(&two, "s").await, ["a", "b", "c"]);
    let error = append_at(&one, "gone", 3, &["c"]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::NotFound { id } if id == "gone"),
        "{error}"
    );
}

#[tokio::test]
async fn fork_shares_earlier_entries_only() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "s", &["a", "b", "c"]).await.unwrap();
    store.fork("s", "half", Some(2)).await.unwrap();
    store.fork("s", "whole", None).await.unwrap();
    assert_eq!(loaded(&store, "half").await, ["a", "b"]);
    append(&store, "half", &["x"]).await.unwrap();
    append(&store, "s", &["d"]).await.unwrap();
    store.fork("half", "third", Some(1)).await.unwrap();
    assert_eq!(loaded(&store, "s").await, ["a", "b", "c", "d"]);
    assert_eq!(loaded(&store, "half").await, ["a", "b", "x"]);
    assert_eq!(loaded(&store, "whole").await, ["a", "b", "c"]);
    assert_eq!(loaded(&store, "third").await, ["a"]);
    append(&store, "third", &["y"]).await.unwrap();
    assert_eq!(loaded(&store, "third").await, ["a", "y"]);
    assert!(matches!(store.fork("s", "half", None).await, Err(StoreError::Exists { id }) if id == "half"));
    assert!(matches!(store.fork("no", "new", None).await, Err(StoreError::NotFound { id }) if id == "no"));
}

#[tokio::test]
async fn deleted_session_keeps_entries_shared_by_forks() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "s", &["a", "b"]).await.unwrap();
    store.fork("s", "f", None).await.unwrap();
    store.delete("s").await.unwrap();
    assert!(matches!(store.load("s").await, Err(StoreError::NotFound { id }) if id == "s"));
    assert_eq!(loaded(&store, "f").await, ["a", "b"]);
    assert_eq!(store.list().await.unwrap().len(), 1);
    assert!(matches!(store.delete("s").await, Err(StoreError::NotFound { id }) if id == "s"));
    // The name is free again.
    append(&store, "s", &["new"]).await.unwrap();
    store.delete("f").await.unwrap();
    store.delete("s").await.unwrap();
    drop(store);
    let connection = Connection::open(dir.path().join("sessions.db")).unwrap();
    let left: i64 = connection
        .query_row(
            "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM entries)",
            [],
            |r| r.get(0),
        )
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn list_is_sorted_by_latest_use() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let long = format!("  Find\nthe {}", "x".repeat(200));
    let now = || {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap()
    };
    let before = now();
    store.append("one", 0, vec![started(&long)]).await.unwrap();
    store
        .append("two", 0, vec![started("Hi"), note("n")])
        .await
        .unwrap();
    store.fork("one", "three", None).await.unwrap();
    let list = store.list().await.unwrap();
    let by = |id: &str| list.iter().find(|info| info.id == id).unwrap().clone();
    assert_eq!(by("one").title, "Find the…");
    assert_eq!((by("two").title.as_str(), by("two").events), ("Hi", 2));
    assert_eq!(by("three").parent.as_deref(), Some("one"));
    assert!(list.windows(2).all(|pair| pair[0].used_ms >= pair[1].used_ms));
    let times = before..=now();
    assert!(
        list.iter()
            .all(|info| times.contains(&info.created_ms) && times.contains(&info.used_ms))
    );
}

#[tokio::test]
async fn full_results_are_stored_and_found_by_forks() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "s", &["a"]).await.unwrap();
    store.keep_result("s", "c1", "all of it").await.unwrap();
    store.fork("s", "f", None).await.unwrap();
    assert_eq!(
        store.kept_result("f", "c1").await.unwrap().as_deref(),
        Some("all of it")
    );
    assert_eq!(store.kept_result("s", "c2").await.unwrap(), None);
    assert!(store.keep_result("no", "c1", "x").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sessions_lose_no_event() {
    let dir = TempDir::new().unwrap();
    let store = Arc::new(open(&dir));
    let tasks = (0..50).map(|i| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..20 {
                append(&store, &format!("s{i}"), &[&n.to_string()]).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    for i in 0..50 {
        assert_eq!(loaded(&store, &format!("s{i}")).await, expected);
    }
}

#[tokio::test]
async fn foreign_and_newer_files_are_refused_unchanged() {
    let dir = TempDir::new().unwrap();
    let text = dir.path().join("text.db");
    std::fs::write(
        &text,
        "this is no database, and it is long enough to look like one: ".repeat(20),
    )
    .unwrap();
    assert!(
        SqliteSessions::open(&text)
            .unwrap_err()
            .to_string()
            .contains("not a database")
    );

    let other = dir.path().join("other.db");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE t (a)")
        .unwrap();
    let error = SqliteSessions::open(&other).unwrap_err().to_string();
    assert!(error.contains("database of another program"), "{error}");

    drop(open(&dir));
    let newer = dir.path().join("sessions.db");
    Connection::open(&newer)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let error = SqliteSessions::open(&newer).unwrap_err().to_string();
    assert!(error.contains("version 99"), "{error}");

    let error = SqliteSessions::open(dir.path().join("no/such/dir.db"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("could not open"), "{error}");
}

#[tokio::test]
async fn unreadable_entry_is_named() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "s", &["a", "b"]).await.unwrap();
    let connection = Connection::open(dir.path().join("sessions.db")).unwrap();
    let broken = json!({"type": "from_the_future"}).to_string();
    connection
        .execute("UPDATE entries SET event = ?1 WHERE number = 1", [broken])
        .unwrap();
    let error = store.load("s").await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unreadable { number: 1, source, .. } if source.is::<serde_json::Error>()),
        "{error}"
    );
    assert!(toolcell_core::error_chain(&error).contains("from_the_future"));
}

#[tokio::test]
async fn new_file_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "s", &["a"]).await.unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
}

#[tokio::test]
async fn deleted_session_is_erased_from_the_file() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let holds = |text: &str| {
        let mut files = std::fs::read_dir(dir.path()).unwrap();
        files.any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    };
    for session in ["deleted", "forked", "kept"] {
        let events = vec![
            started(&format!("title-{session}")),
            note(&format!("before-{session}")),
        ];
        store.append(session, 0, events).await.unwrap();
    }
    store.fork("forked", "fork", None).await.unwrap();
    store
        .append("forked", 2, vec![note("after-forked")])
        .await
        .unwrap();
    for session in ["deleted", "forked"] {
        store.delete(session).await.unwrap();
    }
    for gone in ["title-deleted", "before-deleted", "after-forked"] {
        assert!(!holds(gone), "{gone}");
    }
    // The fork keeps the entries before it.
    assert_eq!(texts(&store.load("fork").await.unwrap()), ["?", "before-forked"]);
    drop(store);
    assert!(!holds("before-deleted") && holds("before-kept"));
}

#[tokio::test]
async fn store_error_keeps_the_error_of_sqlite() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "s", &["a"]).await.unwrap();
    let other = Connection::open(dir.path().join("sessions.db")).unwrap();
    other
        .execute_batch("PRAGMA foreign_keys = OFF; DROP TABLE sessions")
        .unwrap();
    for error in [
        store.list().await.unwrap_err(),
        store.delete("s").await.unwrap_err(),
    ] {
        let StoreError::Failed { source } = &error else {
            panic!("{error:?}")
        };
        let behind: Option<&SharedError> = source.source().and_then(|source| source.downcast_ref());
        let of_sqlite = behind.expect("the error behind the name of the file");
        assert!(
            matches!(of_sqlite.downcast_ref(), Some(SqliteError::Sqlite(_))),
            "{source:?}"
        );
        let chain = toolcell_core::error_chain(&error);
        assert!(
            chain.starts_with("the session store failed: the file is `")
                && chain.contains("sessions.db`: no such table: sessions"),
            "{chain}"
        );
    }
}

#[tokio::test]
async fn store_of_first_version_is_upgraded() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sessions.db");
    let events = [started("Hi"), answered(), finished(10, None), finished(1, None)];
    let entries: Vec<String> = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    let old = Connection::open(&path).unwrap();
    old.execute_batch(schema::SESSIONS.tables).unwrap();
    old.pragma_update(None, "application_id", schema::SESSIONS.application)
        .unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    old.execute_batch("INSERT INTO sessions (id, title, created_ms, used_ms, next) VALUES ('s', 'Hi', 1, 2, 5), ('e', '', 1, 1, 0);")
        .unwrap();
    for (number, entry) in entries.iter().map(String::as_str).chain(["not JSON"]).enumerate() {
        old.execute(
            "INSERT INTO entries VALUES (1, ?1, ?2)",
            (i64::try_from(number).unwrap(), entry),
        )
        .unwrap();
    }
    drop(old);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let store = open(&dir);
    let bytes = entries.iter().map(|entry| entry.len() as u64).sum::<u64>() + 8;
    let upgraded = info(&store, "s").await;
    assert_eq!((upgraded.messages, upgraded.bytes), (2, bytes));
    let usage = upgraded.usage;
    assert_eq!(
        (usage.input, usage.cache_read, usage.output, usage.reasoning),
        (11, 4, 6, 2)
    );
    assert_eq!((upgraded.name, upgraded.cost_micros), (None, None));
    assert!(!upgraded.usage.unpriced);
    let priced = finished(1, Some(7));
    store.append("s", 5, vec![priced]).await.unwrap();
    let priced = info(&store, "s").await;
    assert_eq!((priced.cost_micros, priced.usage.unpriced), (Some(7), true));
    let found = store.candidates(&["hi".to_owned()]).await.unwrap();
    assert_eq!(found, HashSet::from(["s".to_owned()]));
    assert_eq!(info(&store, "e").await.usage, Usage::default());
    store.rename("s", Some("old")).await.unwrap();
    drop(store);
    assert_eq!(info(&open(&dir), "s").await.name.as_deref(), Some("old"));
}

#[tokio::test]
async fn failure_names_its_file() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "a", &["1"]).await.unwrap();
    let other = Connection::open(dir.path().join("sessions.db")).unwrap();
    other.execute_batch("DROP TABLE entries").unwrap();
    let error = store.load("a").await.unwrap_err();
    let told = toolcell_core::error_chain(&error);
    assert!(told.contains("sessions.db"), "{told}");
    assert!(!crate::is_damaged(&error));
}
