//! Lists of sessions: titles, names, numbers, and what a search finds.

use super::*;

#[tokio::test]
async fn list_has_messages_size_tokens_and_cost() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let turn = [started("Hi"), answered(), finished(10, None)];
    store.append("s", 0, turn.to_vec()).await.unwrap();
    let first = info(&store, "s").await;
    assert_eq!(
        (first.messages, first.usage.input, first.cost_micros),
        (2, 10, None)
    );
    let size = turn
        .iter()
        .map(|event| serde_json::to_string(event).unwrap().len() as u64);
    assert_eq!(first.bytes, size.sum::<u64>());
    let turn = [
        started("More"),
        answered(),
        finished(20, Some(5)),
        finished(0, Some(6)),
    ];
    store.append("s", 3, turn.to_vec()).await.unwrap();
    store.keep_result("s", "c", "four").await.unwrap();
    let kept = info(&store, "s").await.bytes;
    store.keep_result("s", "c", "sixsix").await.unwrap();
    let second = info(&store, "s").await;
    assert_eq!(
        (second.messages, second.usage.input, second.cost_micros),
        (4, 30, Some(11))
    );
    assert_eq!(
        (
            second.usage.cache_read,
            second.usage.output,
            second.usage.reasoning
        ),
        (6, 9, 3)
    );
    assert_eq!(second.bytes, kept + 2);
    // The first turn had no price.
    assert_eq!((first.usage.unpriced, second.usage.unpriced), (false, true));
    assert!(!second.usage.estimated);

    store.fork("s", "all", None).await.unwrap();
    store.fork("s", "part", Some(4)).await.unwrap();
    let (all, part) = (info(&store, "all").await, info(&store, "part").await);
    assert_eq!((all.messages, all.bytes, all.usage), (4, 0, Usage::default()));
    assert_eq!((part.messages, part.bytes, part.cost_micros), (3, 0, None));
}

#[tokio::test]
async fn name_is_unique_and_can_be_taken_away() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    append(&store, "a", &["x"]).await.unwrap();
    append(&store, "b", &["x"]).await.unwrap();
    store.rename("a", Some("plans")).await.unwrap();
    store.rename("a", Some("plans")).await.unwrap();
    let taken = store.rename("b", Some("plans")).await.unwrap_err();
    assert!(matches!(taken, StoreError::NameTaken { name } if name == "plans"));
    // Each owner has names of its own.
    for owner in ["ada", "eve"] {
        store.create(owner, "default", owner).await.unwrap();
        store.rename(owner, Some("plans")).await.unwrap();
    }
    let unknown = store.rename("c", Some("x")).await.unwrap_err();
    assert!(matches!(unknown, StoreError::NotFound { .. }));
    assert_eq!(info(&store, "a").await.name.as_deref(), Some("plans"));
    // A fork has a name of its own, and a deleted session leaves its name.
    store.fork("a", "f", None).await.unwrap();
    assert_eq!(info(&store, "f").await.name, None);
    store.delete("a").await.unwrap();
    store.rename("b", Some("plans")).await.unwrap();
    store.rename("b", None).await.unwrap();
    assert_eq!(info(&store, "b").await.name, None);
}

#[tokio::test]
async fn search_reads_messages_and_passes_over_what_is_none() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let said = ["one", "two", "three"].map(started).to_vec();
    store.append("a", 0, said).await.unwrap();
    append_at(&store, "a", 3, &["two as a note"]).await.unwrap();
    store.fork("a", "b", Some(2)).await.unwrap();
    let connection = Connection::open(dir.path().join("sessions.db")).unwrap();
    let damage = "UPDATE entries SET event = x'ff00' WHERE number = 0";
    connection.execute(damage, []).unwrap();
    let find = |session: &'static str, most: usize| {
        let found = |event: &Event| match event {
            Event::TurnStarted { message, .. } => Some(message.text()),
            _ => None,
        };
        store.search(session, most, found)
    };
    let all = find("a", 9).await.unwrap();
    assert_eq!(
        (all.found, all.unreadable),
        (vec!["two".to_owned(), "three".into()], 1)
    );
    assert_eq!(find("a", 1).await.unwrap().found, ["two"]);
    assert_eq!(find("b", 9).await.unwrap().found, ["two"]);
    assert!(matches!(find("c", 9).await, Err(StoreError::NotFound { .. })));
    // A turn on it is refused with the entry, not with a type of the database.
    assert!(matches!(
        store.load("a").await,
        Err(StoreError::Unreadable { number: 0, .. })
    ));
}

#[tokio::test]
async fn title_is_the_prompt_without_attachments() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let message = Message::User {
        content: ["what is it", "Attached file `a`, 1 bytes of text:\n\nx"]
            .map(toolcell_core::Content::text)
            .to_vec(),
    };
    let Event::TurnStarted {
        version,
        session,
        provider,
        model,
        unanswered,
        ..
    } = started("")
    else {
        unreachable!()
    };
    let event = Event::TurnStarted {
        version,
        session,
        provider,
        model,
        message,
        unanswered,
    };
    store.append("a", 0, vec![event]).await.unwrap();
    assert_eq!(store.list().await.unwrap()[0].title, "what is it");
}
