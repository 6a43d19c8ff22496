use std::path::PathBuf;

use tempfile::TempDir;
use toolcell_core::keyvalue::Quota;

use super::*;

const SMALL: BucketLimits = BucketLimits { keys: 3, bytes: 100 };

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("buckets.sqlite")
}

fn open(dir: &TempDir, limits: BucketLimits) -> SqliteBuckets {
    SqliteBuckets::open(path(dir), limits).unwrap()
}

async fn bucket(store: &SqliteBuckets, name: &str) -> Arc<dyn Bucket> {
    KeyValueStore::open(store, name).await.unwrap()
}

fn pair(key: &str, value: &str) -> (String, Vec<u8>) {
    (key.to_owned(), value.as_bytes().to_vec())
}

async fn value(bucket: &Arc<dyn Bucket>, key: &str) -> Option<String> {
    let mut values = bucket.get(vec![key.into()], u64::MAX).await.unwrap();
    assert_eq!(values.len(), 1);
    values.remove(0).map(|value| String::from_utf8(value).unwrap())
}

#[tokio::test]
async fn values_survive_reopening_unchanged() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let notes = bucket(&store, "notes").await;
    let odd = "a\u{0}é\u{1b}/%_";
    let bytes: Vec<u8> = (0..=255).collect();
    notes
        .set(vec![(odd.into(), bytes.clone()), pair("empty", "")])
        .await
        .unwrap();
    drop((notes, store));

    let store = open(&dir, BucketLimits::default());
    let notes = bucket(&store, "notes").await;
    let keys = ["empty", odd, "a"].map(String::from).to_vec();
    let values = notes.get(keys, u64::MAX).await.unwrap();
    assert_eq!(values, [Some(Vec::new()), Some(bytes), None]);
    assert!(notes.exists(odd.into()).await.unwrap());
    assert!(!notes.exists("a".into()).await.unwrap());
}

#[tokio::test]
async fn buckets_are_isolated() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, SMALL);
    let (a, b) = (bucket(&store, "a").await, bucket(&store, "b").await);
    a.set(vec![pair("k", "of a"), pair("x", ""), pair("y", "")])
        .await
        .unwrap();
    b.set(vec![pair("k", "of b")]).await.unwrap();
    b.delete(vec!["x".into()]).await.unwrap();
    assert_eq!(value(&a, "k").await.as_deref(), Some("of a"));
    assert_eq!(value(&b, "k").await.as_deref(), Some("of b"));
    assert_eq!(a.list(None).await.unwrap().keys, ["k", "x", "y"]);
    assert_eq!(b.list(None).await.unwrap().keys, ["k"]);
}

#[tokio::test]
async fn new_bucket_is_empty() {
    let dir = TempDir::new().unwrap();
    let none = bucket(&open(&dir, SMALL), "none").await;
    assert_eq!(value(&none, "k").await, None);
    assert_eq!(none.list(None).await.unwrap(), KeyPage::default());
    none.delete(vec!["k".into()]).await.unwrap();
}

#[tokio::test]
async fn listing_in_pages_returns_each_remaining_key_once() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let bucket = bucket(&store, "b").await;
    let put = |range: std::ops::Range<usize>| range.map(|i| pair(&format!("{i}"), "")).collect();
    bucket.set(put(0..read::PAGE)).await.unwrap();
    let page = bucket.list(None).await.unwrap();
    assert_eq!((page.keys.len(), page.cursor), (read::PAGE, None));

    bucket.set(put(read::PAGE..read::PAGE + 1)).await.unwrap();
    let first = bucket.list(None).await.unwrap();
    assert_eq!(first.keys.len(), read::PAGE);
    // Between two pages the last listed key is deleted and another one is added.
    bucket.delete(vec![format!("{}", read::PAGE - 1)]).await.unwrap();
    bucket.set(vec![pair("new", "")]).await.unwrap();
    let second = bucket.list(first.cursor).await.unwrap();
    assert_eq!(
        (second.keys, second.cursor),
        (vec![format!("{}", read::PAGE), "new".into()], None)
    );
    assert_eq!(bucket.list(Some(u64::MAX)).await.unwrap(), KeyPage::default());
}

#[tokio::test]
async fn values_are_read_up_to_the_requested_bytes() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let bucket = bucket(&store, "b").await;
    bucket
        .set(vec![pair("a", "12345"), pair("b", "12345")])
        .await
        .unwrap();
    let both = || vec!["a".to_owned(), "b".to_owned()];
    assert!(bucket.get(both(), 10).await.is_ok());
    let error = bucket.get(both(), 9).await.unwrap_err();
    assert!(matches!(error, KeyValueError::TooMuch { limit: 9 }), "{error}");
}

#[tokio::test]
async fn keys_beyond_the_limit_are_refused_atomically() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, SMALL);
    let bucket = bucket(&store, "b").await;
    bucket.set(vec![pair("a", "1"), pair("b", "1")]).await.unwrap();
    let is_full = |error| {
        matches!(
            error,
            KeyValueError::Full {
                limit: 3,
                of: Quota::Keys
            }
        )
    };
    let two_more = vec![pair("a", "2"), pair("c", "2"), pair("d", "2")];
    assert!(is_full(bucket.set(two_more).await.unwrap_err()));
    assert_eq!(
        value(&bucket, "a").await.as_deref(),
        Some("1"),
        "none of it was done"
    );
    assert!(!bucket.exists("c".into()).await.unwrap());
    bucket.set(vec![pair("a", "2"), pair("c", "2")]).await.unwrap();
    assert!(is_full(bucket.increment("n".into(), 1).await.unwrap_err()));
    // An existing key needs no capacity, and a deleted one frees some.
    bucket.set(vec![pair("c", "3")]).await.unwrap();
    bucket.delete(vec!["a".into()]).await.unwrap();
    bucket.set(vec![pair("e", "")]).await.unwrap();
}

#[tokio::test]
async fn bytes_beyond_the_limit_are_refused() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, SMALL);
    let bucket = bucket(&store, "b").await;
    bucket.set(vec![pair("ab", &"x".repeat(98))]).await.unwrap();
    for more in [pair("ab", &"x".repeat(99)), pair("c", "")] {
        let error = bucket.set(vec![more]).await.unwrap_err();
        assert!(
            matches!(
                error,
                KeyValueError::Full {
                    limit: 100,
                    of: Quota::Bytes
                }
            ),
            "{error}"
        );
    }
    bucket
        .set(vec![pair("ab", &"x".repeat(97)), pair("c", "")])
        .await
        .unwrap();
    bucket.delete(vec!["ab".into()]).await.unwrap();
    bucket.set(vec![pair("c", &"x".repeat(99))]).await.unwrap();
}

#[tokio::test]
async fn bucket_over_a_lowered_limit_can_only_shrink() {
    let dir = TempDir::new().unwrap();
    let wide = open(&dir, BucketLimits::default());
    let pairs = (0..5).map(|i| pair(&format!("{i}"), "1234")).collect();
    bucket(&wide, "b").await.set(pairs).await.unwrap();
    drop(wide);
    let narrow = open(&dir, SMALL);
    let bucket = bucket(&narrow, "b").await;
    bucket.set(vec![pair("0", "123")]).await.unwrap();
    bucket.delete(vec!["1".into()]).await.unwrap();
    assert!(bucket.set(vec![pair("new", "")]).await.is_err());
}

#[tokio::test]
async fn concurrent_increments_are_each_counted_once() {
    let dir = TempDir::new().unwrap();
    // Two stores on one file behave like two processes: they share nothing but the file.
    let (one, other) = (
        open(&dir, BucketLimits::default()),
        open(&dir, BucketLimits::default()),
    );
    let buckets = [bucket(&one, "b").await, bucket(&other, "b").await];
    let mut counting = Vec::new();
    for i in 0..100 {
        let bucket = buckets[i % 2].clone();
        counting.push(tokio::spawn(async move {
            bucket.increment("n".into(), 1).await.unwrap()
        }));
    }
    let mut seen = Vec::new();
    for count in counting {
        seen.push(count.await.unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=100).collect::<Vec<u64>>());
    assert_eq!(value(&buckets[0], "n").await.as_deref(), Some("100"));
}

#[tokio::test]
async fn increment_of_non_number_or_beyond_range_is_refused() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let bucket = bucket(&store, "b").await;
    for bad in ["", "x", "+1", "-1", "1.5", "18446744073709551616"] {
        bucket.set(vec![pair("n", bad)]).await.unwrap();
        let error = bucket.increment("n".into(), 1).await.unwrap_err();
        assert!(
            matches!(&error, KeyValueError::NotANumber { key } if key == "n"),
            "{bad}"
        );
    }
    bucket.set(vec![pair("n", "18446744073709551614")]).await.unwrap();
    assert_eq!(bucket.increment("n".into(), 1).await.unwrap(), u64::MAX);
    let error = bucket.increment("n".into(), 1).await.unwrap_err();
    assert!(
        matches!(&error, KeyValueError::Overflow { key } if key == "n"),
        "{error}"
    );
    assert_eq!(value(&bucket, "n").await.as_deref(), Some("18446744073709551615"));
}

#[tokio::test]
async fn stores_on_one_file_share_quotas_and_values() {
    let dir = TempDir::new().unwrap();
    let (one, other) = (open(&dir, SMALL), open(&dir, SMALL));
    let (one, other) = (bucket(&one, "b").await, bucket(&other, "b").await);
    one.set(vec![pair("a", "1"), pair("b", "1")]).await.unwrap();
    assert_eq!(value(&other, "a").await.as_deref(), Some("1"));
    assert!(other.set(vec![pair("c", ""), pair("d", "")]).await.is_err());
    other.set(vec![pair("c", "")]).await.unwrap();
    assert!(one.set(vec![pair("d", "")]).await.is_err());
}

#[tokio::test]
async fn write_of_a_dropped_caller_is_completed() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let bucket = bucket(&store, "b").await;
    drop(bucket.set(vec![pair("a", "1"), pair("b", "2")]));
    // Operations are executed in the order of their requests.
    assert_eq!(bucket.increment("n".into(), 1).await.unwrap(), 1);
    assert_eq!(value(&bucket, "b").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn foreign_file_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(crate::SqliteSessions::open(path(&dir)).unwrap());
    let error = SqliteBuckets::open(path(&dir), SMALL).unwrap_err().to_string();
    assert!(error.contains("a database of another program"), "{error}");
    let error = SqliteBuckets::open(dir.path().join("no/such/dir"), SMALL).unwrap_err();
    assert!(error.to_string().contains("could not open"), "{error}");
}

#[tokio::test]
async fn bucket_file_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let _store = open(&dir, SMALL);
    let mode = std::fs::metadata(path(&dir)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Contents of the database file and its sidecar files.
fn bytes_on_disk(dir: &TempDir) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    bytes
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn acknowledged_deletion_is_erased_from_the_file() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let notes = bucket(&store, "notes").await;
    let secret = "the-secret-value-".repeat(1_000);
    notes
        .set(vec![
            pair("the-secret-key", &secret),
            pair("kept-key", "kept-value"),
        ])
        .await
        .unwrap();
    assert!(holds(&bytes_on_disk(&dir), "the-secret-value"));
    notes.delete(vec!["the-secret-key".into()]).await.unwrap();
    let bytes = bytes_on_disk(&dir);
    assert!(!holds(&bytes, "the-secret-value") && !holds(&bytes, "the-secret-key"));
    assert!(holds(&bytes, "kept-value"));
}

#[tokio::test]
async fn closed_file_holds_no_deleted_or_replaced_data() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let notes = bucket(&store, "notes").await;
    // Deterministic, and of sizes that redistribute pages repeatedly.
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    let (mut live, mut gone): (Vec<(String, String)>, Vec<String>) = (Vec::new(), Vec::new());
    for step in 0..700 {
        let fresh = format!("<{step}-{}>", next(1_000_000_000));
        let value = fresh.repeat([1, 2, 10, 100, 400][next(5)]);
        match next(10) {
            0..5 => {
                let key = format!("key{fresh}");
                notes.set(vec![pair(&key, &value)]).await.unwrap();
                live.push((key, fresh));
            }
            5..7 if !live.is_empty() => {
                let at = next(live.len());
                notes.set(vec![pair(&live[at].0, &value)]).await.unwrap();
                gone.push(std::mem::replace(&mut live[at].1, fresh));
            }
            _ if !live.is_empty() => {
                let (key, value) = live.swap_remove(next(live.len()));
                notes.delete(vec![key.clone()]).await.unwrap();
                gone.extend([key, value]);
            }
            _ => {}
        }
    }
    drop((notes, store));
    let bytes = bytes_on_disk(&dir);
    // Each text has its own number between markers, so that one pass finds them all.
    let found: std::collections::HashSet<&[u8]> = bytes
        .split(|byte| *byte == b'<')
        .filter_map(|rest| rest.split(|byte| *byte == b'>').next())
        .collect();
    let is_found = |text: &str| {
        let number = text.trim_start_matches("key").trim_matches(['<', '>']);
        found.contains(number.as_bytes())
    };
    let in_use: Vec<&str> = live.iter().flat_map(|(key, value)| [&**key, value]).collect();
    let left: Vec<_> = gone
        .iter()
        .filter(|text| is_found(text))
        // A number identifies a key and a value of one step.
        .filter(|text| {
            !in_use
                .iter()
                .any(|known| known.trim_start_matches("key") == text.trim_start_matches("key"))
        })
        .collect();
    assert!(gone.len() > 200 && live.iter().all(|(key, _)| is_found(key)));
    assert_eq!(left, Vec::<&String>::new());
}

#[tokio::test]
async fn deletion_returns_the_bytes_of_key_and_value() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, SMALL);
    let bucket = bucket(&store, "b").await;
    let first = pair("abc", &"x".repeat(50));
    bucket.set(vec![first, pair("d", &"x".repeat(40))]).await.unwrap();
    bucket.delete(vec!["abc".into()]).await.unwrap();
    let full = bucket.set(vec![pair("e", &"x".repeat(59))]).await;
    assert!(matches!(full, Err(KeyValueError::Full { limit: 100, .. })));
    bucket.set(vec![pair("e", &"x".repeat(58))]).await.unwrap();
}

#[tokio::test]
async fn file_is_rebuilt_when_closed_after_a_deletion() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir, BucketLimits::default());
    let notes = bucket(&store, "notes").await;
    let long = "x".repeat(1 << 20);
    notes
        .set(vec![pair("long", &long), pair("short", "value")])
        .await
        .unwrap();
    notes.delete(vec!["long".into()]).await.unwrap();
    drop((notes, store));
    assert!(bytes_on_disk(&dir).len() < 1 << 19);
}

#[tokio::test]
async fn buckets_are_listed_with_their_sizes_and_cleared_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteBuckets::open(dir.path().join("b.sqlite"), BucketLimits::default()).unwrap();
    assert_eq!(store.buckets().await.unwrap(), []);
    for (name, pairs) in [("b", 2), ("a", 1)] {
        let pairs = (0..pairs).map(|i| (format!("k{i}"), b"value".to_vec())).collect();
        store.open(name).await.unwrap().set(pairs).await.unwrap();
    }
    let info = |name: &str, keys| BucketInfo {
        name: name.into(),
        keys,
        bytes: keys * 7,
    };
    assert_eq!(store.buckets().await.unwrap(), [info("a", 1), info("b", 2)]);
    assert_eq!(store.clear("b").await.unwrap(), 2);
    assert_eq!(store.clear("b").await.unwrap(), 0);
    assert_eq!(store.buckets().await.unwrap(), [info("a", 1)]);
    let again = store.open("b").await.unwrap();
    assert!(!again.exists("k0".into()).await.unwrap());
    again.set(vec![("k".into(), vec![1])]).await.unwrap();
    assert_eq!(store.buckets().await.unwrap()[1].keys, 1);
}

#[tokio::test]
async fn named_bucket_has_its_own_limits() {
    let dir = TempDir::new().unwrap();
    let named = BucketLimits { keys: 2, bytes: 100 };
    let store = open(&dir, SMALL).with_limits([("own".to_owned(), named)].into());
    assert_eq!(store.limits("own"), named);
    assert_eq!(store.limits("other"), SMALL);
    let pairs = |count: usize| (0..count).map(|n| pair(&format!("k{n}"), "")).collect::<Vec<_>>();
    let own = bucket(&store, "own").await;
    own.set(pairs(2)).await.unwrap();
    let full = own.set(pairs(3)).await;
    assert!(
        matches!(full, Err(KeyValueError::Full { limit: 2, .. })),
        "{full:?}"
    );
    bucket(&store, "other").await.set(pairs(3)).await.unwrap();
}

/// Steps of SQLite for the query of a page.
fn plan_of_listing(path: &std::path::Path) -> String {
    let connection = Connection::open(path).unwrap();
    let plan = format!("EXPLAIN QUERY PLAN {}", read::LISTING);
    let mut statement = connection.prepare(&plan).unwrap();
    statement.query_row((1, 0, 10), |row| row.get("detail")).unwrap()
}

#[tokio::test]
async fn listing_reads_no_values_also_in_upgraded_store() {
    let dir = TempDir::new().unwrap();
    let old = Connection::open(path(&dir)).unwrap();
    old.execute_batch(BUCKETS.tables).unwrap();
    old.pragma_update(None, "application_id", BUCKETS.application)
        .unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    old.execute_batch(
        "INSERT INTO buckets (name, keys, bytes) VALUES ('b', 2, 4);
         INSERT INTO pairs (bucket, key, value) VALUES (1, 'k', x'76'), (1, 'a', x'77');",
    )
    .unwrap();
    drop(old);
    std::fs::set_permissions(path(&dir), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(!plan_of_listing(&path(&dir)).contains("COVERING INDEX listed"));
    for _ in 0..2 {
        let store = open(&dir, SMALL);
        let bucket = bucket(&store, "b").await;
        assert_eq!(bucket.list(None).await.unwrap().keys, ["k", "a"]);
        assert_eq!(value(&bucket, "k").await.as_deref(), Some("v"));
        let plan = plan_of_listing(&path(&dir));
        assert!(plan.contains("COVERING INDEX listed"), "{plan}");
    }
}
