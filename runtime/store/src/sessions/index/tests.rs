use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;

use rusqlite::Connection;
use tempfile::TempDir;
use toolcell_core::{Event, Message, SessionStore as _};

use super::super::SqliteSessions;
use super::without_case;

fn open(dir: &TempDir) -> SqliteSessions {
    SqliteSessions::open(dir.path().join("sessions.db")).unwrap()
}

fn said(text: &str) -> Event {
    Event::TurnStarted {
        version: 1,
        session: "s".into(),
        provider: "p".into(),
        model: "m".into(),
        message: Message::user(text),
        unanswered: false,
    }
}

async fn find(store: &SqliteSessions, words: &[&str]) -> Vec<String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut found: Vec<String> = store.candidates(&words).await.unwrap().into_iter().collect();
    found.sort();
    found
}

#[tokio::test]
async fn sessions_are_found_by_parts_of_words_in_any_alphabet_and_case() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    for (id, text) in [
        ("a", "Apples are red."),
        ("b", "Pears are GREEN."),
        ("c", "ÄPFEL are red, 100% of them."),
        ("d", "ΟΔΥΣΣΕΥΣ and Иван drink 緑茶 in İstanbul."),
        ("e", "She said \"stop\" - a\0b, C:\\temp\\new"),
    ] {
        store.append(id, 0, vec![said(text)]).await.unwrap();
    }
    for (words, expected) in [
        (&["RED", "apples"][..], &["a"][..]),
        (&["green"], &["b"]),
        (&["pple"], &["a"]),
        (&["äpfel", "red"], &["c"]),
        (&["äPF"], &["c"]),
        (&["100%"], &["c"]),
        (&["00%"], &["c"]),
        (&["_ed"], &[]),
        // A final sigma is the same letter, also in the middle of what was typed.
        (&["οδυσσευσ"], &["d"]),
        (&["οδυσσευς"], &["d"]),
        (&["σσευ"], &["d"]),
        (&["ИВАН"], &["d"]),
        (&["i̇stanbul"], &["d"]),
        // Words of one and two letters.
        (&["緑茶"], &["d"]),
        (&["茶"], &["d"]),
        (&["re"], &["a", "b", "c"]),
        (&["re", "ed"], &["a", "c"]),
        (&["re", "apples"], &["a"]),
        // Signs of queries are letters like others.
        (&["\"stop\""], &["e"]),
        (&["\""], &["e"]),
        (&["stop OR apples"], &[]),
        (&["NOT"], &[]),
        (&["app*"], &[]),
        (&["text:apples"], &[]),
        (&["c:\\temp\\new"], &["e"]),
        (&["a\0b"], &["e"]),
        (&["red", "green"], &[]),
        (&[], &["a", "b", "c", "d", "e"]),
    ] {
        assert_eq!(find(&store, words).await, expected, "{words:?}");
    }
    let long = "are".repeat(400);
    assert!(find(&store, &[&long]).await.is_empty());
    assert_eq!(without_case("ÀΣß"), "àσß");
}

#[tokio::test]
async fn all_words_are_in_one_message() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let events = vec![said("only apples"), said("only pears")];
    store.append("a", 0, events).await.unwrap();
    assert_eq!(find(&store, &["only", "pears"]).await, ["a"]);
    assert!(find(&store, &["apples", "pears"]).await.is_empty());
}

#[tokio::test]
async fn forks_are_found_by_the_messages_that_they_share() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let events = ["first", "second", "third"].map(said).to_vec();
    store.append("a", 0, events).await.unwrap();
    store.fork("a", "b", Some(2)).await.unwrap();
    store.append("b", 2, vec![said("other")]).await.unwrap();
    store.fork("b", "c", Some(1)).await.unwrap();
    store.fork("b", "d", None).await.unwrap();
    assert_eq!(find(&store, &["first"]).await, ["a", "b", "c", "d"]);
    assert_eq!(find(&store, &["second"]).await, ["a", "b", "d"]);
    assert_eq!(find(&store, &["third"]).await, ["a"]);
    assert_eq!(find(&store, &["other"]).await, ["b", "d"]);
    // Forks keep what they share with a session that is deleted.
    store.delete("a").await.unwrap();
    assert_eq!(find(&store, &["second"]).await, ["b", "d"]);
    assert!(find(&store, &["third"]).await.is_empty());
    store.delete("b").await.unwrap();
    assert_eq!(find(&store, &["other"]).await, ["d"]);
    assert_eq!(find(&store, &["first"]).await, ["c", "d"]);
}

/// All bytes of the file and its WAL.
fn bytes(dir: &TempDir) -> Vec<u8> {
    let read = |name| std::fs::read(dir.path().join(name)).unwrap_or_default();
    [read("sessions.db"), read("sessions.db-wal")].concat()
}

#[tokio::test]
async fn deleted_messages_leave_the_index() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    for number in 0..50 {
        let text = format!("message {number} zqxjvkw");
        store
            .append(&format!("s{number}"), 0, vec![said(&text)])
            .await
            .unwrap();
    }
    assert_eq!(find(&store, &["zqxjvkw"]).await.len(), 50);
    for number in 0..50 {
        store.delete(&format!("s{number}")).await.unwrap();
    }
    // A new session has the key of a deleted one.
    store.append("new", 0, vec![said("nothing")]).await.unwrap();
    assert!(find(&store, &["zqxjvkw"]).await.is_empty());
    drop(store);
    let bytes = bytes(&dir);
    let holds = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("nothing"));
    assert!(!holds("zqxjvkw") && !holds("zqx"));
}

#[tokio::test]
async fn store_without_an_index_gets_one() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let events = vec![said("Grüße, ÄPFEL"), said("damaged")];
    store.append("a", 0, events).await.unwrap();
    store.fork("a", "b", Some(1)).await.unwrap();
    drop(store);
    let old = Connection::open(dir.path().join("sessions.db")).unwrap();
    old.execute_batch(
        "DROP TABLE messages; DROP TABLE unsaved; ALTER TABLE sessions DROP COLUMN estimated; ALTER TABLE sessions DROP COLUMN unpriced;
         UPDATE entries SET event = x'ff' WHERE number = 1;",
    )
    .unwrap();
    old.pragma_update(None, "user_version", 3).unwrap();
    drop(old);
    let path = dir.path().join("sessions.db");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let store = open(&dir);
    assert_eq!(find(&store, &["GRÜSSE"]).await, [""; 0]);
    assert_eq!(find(&store, &["grüße", "äpfel"]).await, ["a", "b"]);
    assert!(find(&store, &["damaged"]).await.is_empty());
    store.append("a", 2, vec![said("later")]).await.unwrap();
    assert_eq!(find(&store, &["later"]).await, ["a"]);
    store.check().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_sessions_are_searched_by_the_index() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let mut writes = tokio::task::JoinSet::new();
    let store = std::sync::Arc::new(store);
    for number in 0..10_000 {
        let store = store.clone();
        writes.spawn(async move {
            let text = format!(
                "Question {number} about Äpfel number {}: {}",
                number * 7919,
                "more words of it ".repeat(20)
            );
            store.append(&format!("s{number}"), 0, vec![said(&text)]).await
        });
    }
    while let Some(done) = writes.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(find(&store, &["QUESTION 1234 ", "äpfel"]).await, ["s1234"]);
    assert_eq!(find(&store, &["äpfel"]).await.len(), 10_000);
    // The index leaves a few messages to compare, not ten thousand.
    let file = Connection::open(dir.path().join("sessions.db")).unwrap();
    let left = |words: [&str; 2]| -> u32 {
        let query = super::query(&words.map(str::to_owned));
        let sql = "SELECT count(*) FROM messages WHERE messages MATCH ?1";
        file.query_row(sql, [query], |row| row.get(0)).unwrap()
    };
    assert!((1..100).contains(&left(["question 1234 ", "äpfel"])));
    assert_eq!(left(["äpfel", "question"]), 10_000);
    let numbers: HashSet<String> = find(&store, &["79190"]).await.into_iter().collect();
    assert!(numbers.contains("s10") && numbers.contains("s100"), "{numbers:?}");
}
