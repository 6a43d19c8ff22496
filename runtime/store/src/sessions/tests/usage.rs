//! Use by day, of sessions and of conversations that are not stored.

use toolcell_core::receipt::Receipt;
use toolcell_core::{CallResult, ToolError};

use super::*;

fn called(wall_us: Option<u64>) -> Event {
    let mut result = CallResult::failed(ToolError::invalid("no"));
    result.receipt = wall_us.map(|wall_us| Receipt {
        wall_us,
        ..Receipt::default()
    });
    Event::CallFinished {
        id: "c".into(),
        tool: "t".into(),
        result,
    }
}

fn used(events: &[Event]) -> TurnUse {
    let mut used = TurnUse::default();
    for event in events {
        used.event(event);
    }
    used
}

#[tokio::test]
async fn conversation_that_is_not_stored_counts_as_a_session() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir);
    let turn = [called(Some(7)), called(None), finished(10, Some(5))];
    let of = |days: Vec<DailyUse>, owner: &str| -> Vec<DailyUse> {
        let days = days.into_iter();
        days.filter(|day| day.owner.as_deref() == Some(owner)).collect()
    };
    store.create("s", "default", "ada").await.unwrap();
    store.append("s", 0, turn.to_vec()).await.unwrap();
    for _ in 0..2 {
        store.count_unsaved("default", "eve", used(&turn)).await.unwrap();
    }
    store.count_unsaved("default", "ada", used(&turn)).await.unwrap();
    drop(store);
    let days = open(&dir).daily_use(0).await.unwrap();
    let (ada, mut eve) = (of(days.clone(), "ada"), of(days, "eve"));
    assert_eq!((ada.len(), ada[0].turns, ada[0].calls), (1, 2, 4));
    assert_eq!((ada[0].usage.input, ada[0].cost_micros), (20, Some(10)));
    assert_eq!((ada[0].failed_calls, ada[0].call_us), (4, Some((7, 7))));
    eve[0].owner = Some("ada".into());
    assert_eq!(ada, eve);
}

#[test]
fn use_is_kept_for_a_year_and_times_are_bounded() {
    let dir = TempDir::new().unwrap();
    drop(open(&dir));
    let connection = Connection::open(dir.path().join("sessions.db")).unwrap();
    let day_ms = 24 * 60 * 60 * 1_000;
    let count = |day: i64, used: &TurnUse| {
        daily::add_unsaved(&connection, day * day_ms, ("default", "ada"), used).unwrap();
        let days = daily::of_all(&connection, 0).unwrap();
        days.iter().map(|day| day.day).collect::<Vec<_>>()
    };
    let many = used(&vec![called(Some(1)); 5_000]);
    assert_eq!(many.times_us.len(), 4_096);
    assert_eq!(count(1_000, &many), [1_000]);
    assert_eq!(count(1_000, &many), [1_000]);
    assert_eq!(count(1_365, &used(&[])), [1_000, 1_365]);
    let days = daily::of_all(&connection, 0).unwrap();
    assert_eq!((days[0].calls, days[0].call_us), (10_000, Some((1, 1))));
    let size: i64 = connection
        .query_row("SELECT max(octet_length(used)) FROM unsaved", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(size < 64 << 10, "{size}");
    assert_eq!(count(1_366, &used(&[])), [1_365, 1_366]);
}
