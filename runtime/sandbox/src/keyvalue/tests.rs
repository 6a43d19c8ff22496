//! Operations of a guest against an in-memory store. Component guests are tested in `tests/keyvalue.rs`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use toolcell_core::BoxFuture;
use toolcell_core::keyvalue::{KeyPage, Quota};
use toolcell_core::receipt::{BucketTouched, Denial};

use super::atomics::Host as _;
use super::batch::Host as _;
use super::store::{Host as _, HostBucket as _};
use super::*;
use crate::cell::memory::{MemoryAccount, MemoryPool};

type Pairs = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Buckets of a test, by name.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, Pairs>>);

struct MemoryBucket(Pairs);

impl KeyValueStore for Memory {
    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = buckets.entry(bucket.to_owned()).or_default().clone();
        let bucket: Arc<dyn Bucket> = Arc::new(MemoryBucket(pairs));
        Box::pin(std::future::ready(Ok(bucket)))
    }
}

fn done<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

impl Bucket for MemoryBucket {
    fn get(
        &self,
        keys: Vec<String>,
        max_bytes: u64,
    ) -> BoxFuture<'_, Result<Vec<Option<Vec<u8>>>, KeyValueError>> {
        let pairs = self.0.lock().unwrap();
        let values: Vec<_> = keys.iter().map(|key| pairs.get(key).cloned()).collect();
        let bytes: usize = values.iter().flatten().map(Vec::len).sum();
        done(if bytes as u64 > max_bytes {
            Err(KeyValueError::TooMuch { limit: max_bytes })
        } else {
            Ok(values)
        })
    }

    fn set(&self, new: Vec<(String, Vec<u8>)>) -> BoxFuture<'_, Result<(), KeyValueError>> {
        if new.iter().any(|(key, _)| key == "full") {
            return done(Err(KeyValueError::Full {
                limit: 1,
                of: Quota::Keys,
            }));
        }
        if new.iter().any(|(key, _)| key == "broken") {
            let cause = "`/home/ada/x.sqlite`: disk I/O error";
            return done(Err(KeyValueError::failed(cause)));
        }
        self.0.lock().unwrap().extend(new);
        done(Ok(()))
    }

    fn delete(&self, keys: Vec<String>) -> BoxFuture<'_, Result<(), KeyValueError>> {
        let mut pairs = self.0.lock().unwrap();
        for key in keys {
            pairs.remove(&key);
        }
        done(Ok(()))
    }

    fn exists(&self, key: String) -> BoxFuture<'_, Result<bool, KeyValueError>> {
        done(Ok(self.0.lock().unwrap().contains_key(&key)))
    }

    fn list(&self, _: Option<u64>) -> BoxFuture<'_, Result<KeyPage, KeyValueError>> {
        let keys = self.0.lock().unwrap().keys().cloned().collect();
        done(Ok(KeyPage { keys, cursor: None }))
    }

    fn increment(&self, key: String, delta: u64) -> BoxFuture<'_, Result<u64, KeyValueError>> {
        self.0.lock().unwrap().insert(key, delta.to_string().into_bytes());
        done(Ok(delta))
    }
}

/// A call under the grants in `lines`.
struct Call {
    buckets: Buckets,
    table: ResourceTable,
    in_flight: Reservation,
}

impl Call {
    fn with(lines: &[&str], limit: u64, store: Option<Arc<dyn KeyValueStore>>) -> Self {
        let mut policy = Policy::default();
        policy.limits.keyvalue_bytes = limit;
        for line in lines {
            let granted = Policy::granting([*line]).unwrap().grants;
            policy.grants.buckets.extend(granted.buckets);
            policy.grants.denied.buckets.extend(granted.denied.buckets);
        }
        let buckets = Buckets::new(store, Arc::new(policy), limit, ReceiptRecorder::default());
        Self {
            buckets,
            table: ResourceTable::new(),
            in_flight: MemoryAccount::unlimited().empty(),
        }
    }

    /// Creates a call with this memory limit in bytes.
    fn with_memory(bytes: u64, store: Option<Arc<dyn KeyValueStore>>) -> Self {
        Self {
            in_flight: MemoryAccount::new(bytes, MemoryPool::new(u64::MAX)).empty(),
            ..Self::with(&["keyvalue=b"], 64 << 20, store)
        }
    }

    fn new(lines: &[&str]) -> Self {
        Self::with(lines, 64 << 20, Some(Arc::new(Memory::default())))
    }

    fn view(&mut self) -> KeyValueView<'_> {
        // The guest has received the data of the previous operation.
        self.in_flight.clear();
        KeyValueView {
            buckets: &mut self.buckets,
            table: &mut self.table,
            in_flight: &mut self.in_flight,
        }
    }

    /// Opens a bucket any number of times: each operation of a guest borrows a handle.
    async fn open(&mut self, name: &str) -> Result<Handle, TrappableStoreError> {
        self.view().open(name.into()).await
    }

    async fn set(&mut self, name: &str, key: &str, value: &[u8]) -> Result<(), TrappableStoreError> {
        let bucket = self.open(name).await?;
        self.view().set(bucket, key.into(), value.into()).await
    }

    async fn get(&mut self, name: &str, key: &str) -> Result<Option<Vec<u8>>, TrappableStoreError> {
        let bucket = self.open(name).await?;
        self.view().get(bucket, key.into()).await
    }

    fn denials(&self) -> Vec<Denial> {
        self.buckets.recorder.lock().denials.clone()
    }
}

fn is_denied<T>(result: Result<T, TrappableStoreError>) -> bool {
    matches!(
        result,
        Err(TrappableStoreError::Error(store::Error::AccessDenied))
    )
}

#[track_caller]
fn message<T>(result: Result<T, TrappableStoreError>) -> String {
    match result {
        Err(TrappableStoreError::Error(store::Error::Other(why))) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was done"),
    }
}

fn denial(target: &str, allow_with: Option<&str>) -> Denial {
    Denial {
        what: "keyvalue".into(),
        target: target.into(),
        allow_with: allow_with.map(str::to_owned),
        denied_by: None,
        needed: 0,
    }
}

#[tokio::test]
async fn granted_bucket_keeps_values_and_is_named_in_the_receipt() {
    let mut call = Call::new(&["keyvalue=shop:memory"]);
    call.set("memory", "a", b"1").await.unwrap();
    assert_eq!(call.get("memory", "a").await.unwrap(), Some(b"1".to_vec()));
    let touched = BucketTouched {
        bucket: "shop".into(),
        write: true,
    };
    assert_eq!(call.buckets.recorder.lock().buckets, [touched]);
    assert_eq!(call.denials(), []);
}

#[tokio::test]
async fn bucket_without_grant_is_denied_and_recorded() {
    let mut call = Call::new(&["keyvalue=shop:memory"]);
    // Not even by its name on the host.
    for name in ["shop", "other"] {
        assert!(is_denied(call.open(name).await), "{name}");
    }
    let long = "é".repeat(100);
    for name in ["", "../x", long.as_str()] {
        assert!(is_denied(call.open(name).await), "{name}");
    }
    assert_eq!(
        call.denials(),
        [
            denial("shop", Some("keyvalue=shop")),
            denial("other", Some("keyvalue=other")),
            // What is no name is quoted, so that it looks like no other denial.
            denial("\"\"", None),
            denial("\"../x\"", None),
            denial(&format!("\"{}\"", "é".repeat(32)), None),
        ]
    );
    assert_eq!(call.buckets.recorder.lock().buckets, []);
}

#[tokio::test]
async fn read_grant_allows_no_change() {
    let mut call = Call::new(&["keyvalue-read=shop:memory"]);
    assert_eq!(call.get("memory", "a").await.unwrap(), None);
    let b = call.open("memory").await.unwrap();
    assert!(
        !call
            .view()
            .exists(Resource::new_own(b.rep()), "a".into())
            .await
            .unwrap()
    );
    assert_eq!(call.view().list_keys(b, None).await.unwrap().keys, [""; 0]);

    assert!(is_denied(call.set("memory", "a", b"1").await));
    let b = call.open("memory").await.unwrap();
    assert!(is_denied(call.view().delete(b, "a".into()).await));
    let b = call.open("memory").await.unwrap();
    assert!(is_denied(call.view().increment(b, "a".into(), 1).await));
    let b = call.open("memory").await.unwrap();
    assert!(is_denied(call.view().set_many(b, vec![]).await));
    let b = call.open("memory").await.unwrap();
    assert!(is_denied(call.view().delete_many(b, vec![]).await));
    assert_eq!(call.denials(), [denial("memory", Some("keyvalue=shop:memory"))]);
}

#[tokio::test]
async fn without_a_store_on_the_host_there_is_no_bucket() {
    let mut call = Call::with(&["keyvalue=a"], 100, None);
    let opened = call.open("a").await;
    assert!(matches!(
        opened,
        Err(TrappableStoreError::Error(store::Error::NoSuchStore))
    ));
    assert!(is_denied(call.open("b").await));
}

#[tokio::test]
async fn key_beyond_512_bytes_is_refused() {
    let mut call = Call::new(&["keyvalue=b"]);
    let longest = "é".repeat(MAX_KEY_BYTES / 2);
    call.set("b", &longest, b"").await.unwrap();
    let longer = format!("{longest}x");
    let why = "a key has 513 bytes, more than the limit of 512";
    assert_eq!(message(call.set("b", &longer, b"").await), why);
    assert_eq!(message(call.get("b", &longer).await), why);
    assert_eq!(message(call.set("b", "", b"").await), "a key is empty");
    let b = call.open("b").await.unwrap();
    assert_eq!(message(call.view().exists(b, longer.clone()).await), why);
    let b = call.open("b").await.unwrap();
    assert_eq!(message(call.view().increment(b, longer.clone(), 1).await), why);
    let b = call.open("b").await.unwrap();
    assert_eq!(
        message(call.view().delete_many(b, vec!["a".into(), longer]).await),
        why
    );
}

#[tokio::test]
async fn value_beyond_one_mebibyte_is_refused() {
    let mut call = Call::new(&["keyvalue=b"]);
    call.set("b", "k", &vec![0; MAX_VALUE_BYTES]).await.unwrap();
    assert_eq!(
        message(call.set("b", "k", &vec![0; MAX_VALUE_BYTES + 1]).await),
        "a value has 1048577 bytes, more than the limit of 1048576"
    );
}

#[tokio::test]
async fn operation_beyond_a_thousand_keys_is_refused() {
    let mut call = Call::new(&["keyvalue=b"]);
    for (count, fits) in [(MAX_BATCH, true), (MAX_BATCH + 1, false)] {
        let keys: Vec<String> = (0..count).map(|i| i.to_string()).collect();
        let pairs = keys.iter().map(|key| (key.clone(), Vec::new())).collect();
        let b = call.open("b").await.unwrap();
        assert_eq!(call.view().set_many(b, pairs).await.is_ok(), fits);
        let b = call.open("b").await.unwrap();
        assert_eq!(call.view().get_many(b, keys.clone()).await.is_ok(), fits);
        let b = call.open("b").await.unwrap();
        assert_eq!(call.view().delete_many(b, keys).await.is_ok(), fits);
    }
}

#[tokio::test]
async fn operation_beyond_8_mib_is_refused() {
    let mut call = Call::new(&["keyvalue=b"]);
    let mut keys = Vec::new();
    for i in 0..8 {
        call.set("b", &i.to_string(), &vec![0; MAX_VALUE_BYTES])
            .await
            .unwrap();
        keys.push(i.to_string());
    }
    call.set("b", "one more", b"x").await.unwrap();
    let b = call.open("b").await.unwrap();
    let read = call.view().get_many(b, keys.clone()).await.unwrap();
    assert!(read.iter().all(Option::is_some));
    keys.push("one more".into());
    let b = call.open("b").await.unwrap();
    let why = message(call.view().get_many(b, keys).await);
    assert!(
        why.contains("8388608 bytes together; ask for fewer keys"),
        "{why}"
    );
    assert_eq!(call.denials(), [], "asking for fewer keys helps");
}

#[tokio::test]
async fn call_beyond_its_byte_limit_is_refused() {
    let store: Arc<dyn KeyValueStore> = Arc::new(Memory::default());
    let call = || Call::with(&["keyvalue=b"], 20, Some(store.clone()));
    let why = "the limit of 20 bytes of buckets per call is exhausted";

    let mut writing = call();
    writing.set("b", "k", &[0; 19]).await.unwrap();
    assert_eq!(message(writing.get("b", "k").await), why, "nothing is left");
    assert_eq!(writing.denials(), [Denial::too_much("keyvalue_bytes", 20, 21)]);
    assert_eq!(message(call().set("b", "k", &[0; 20]).await), why);

    // The key of the request and the value.
    let mut reading = call();
    assert_eq!(reading.get("b", "k").await.unwrap(), Some(vec![0; 19]));
    assert_eq!(message(reading.get("b", "x").await), why);

    // A value that is longer than what is left after its key.
    let mut short = Call::with(&["keyvalue=b"], 19, Some(store.clone()));
    assert_eq!(
        message(short.get("b", "k").await),
        why.replace("20", "19"),
        "nothing of it is read"
    );
    assert_eq!(short.denials(), [Denial::too_much("keyvalue_bytes", 19, 20)]);

    let mut listing = call();
    for _ in 0..20 {
        let b = listing.open("b").await.unwrap();
        assert_eq!(listing.view().list_keys(b, None).await.unwrap().keys, ["k"]);
    }
    let b = listing.open("b").await.unwrap();
    assert_eq!(message(listing.view().list_keys(b, None).await), why);
}

#[tokio::test]
async fn many_keys_are_read_with_names_and_missing_ones_are_none() {
    let mut call = Call::new(&["keyvalue=b"]);
    let b = call.open("b").await.unwrap();
    let pairs = vec![("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec())];
    call.view().set_many(b, pairs).await.unwrap();
    let b = call.open("b").await.unwrap();
    let keys = ["b", "c", "a"].map(String::from).to_vec();
    assert_eq!(
        call.view().get_many(b, keys).await.unwrap(),
        [
            Some(("b".into(), b"2".to_vec())),
            None,
            Some(("a".into(), b"1".to_vec()))
        ]
    );
}

#[tokio::test]
async fn guest_reads_that_a_bucket_is_full_and_no_host_details() {
    let mut call = Call::new(&["keyvalue=b"]);
    assert_eq!(
        message(call.set("b", "full", b"").await),
        "the bucket is full: it holds at most 1 keys"
    );
    assert_eq!(
        message(call.set("b", "broken", b"").await),
        "the key-value store failed"
    );
}

#[tokio::test]
async fn open_buckets_count_as_handles_and_are_limited() {
    let mut call = Call::new(&["keyvalue=b"]);
    call.table.set_max_capacity(2);
    call.open("b").await.unwrap();
    let second = call.open("b").await.unwrap();
    let Err(TrappableStoreError::Trap(error)) = call.open("b").await else {
        panic!("a third one fits")
    };
    assert!(matches!(
        error.downcast_ref::<ResourceTableError>(),
        Some(ResourceTableError::Full)
    ));
    call.view().drop(second).await.unwrap();
    call.open("b").await.unwrap();
}

#[tokio::test]
async fn operation_is_limited_by_the_memory_of_the_call() {
    let store: Arc<dyn KeyValueStore> = Arc::new(Memory::default());
    let call = |bytes| Call::with_memory(bytes, Some(store.clone()));
    let why = "the call has no memory left for this operation; request less at once";

    assert_eq!(message(call(100).set("b", "k", &[0; 100]).await), why);
    call(101).set("b", "k", &[0; 100]).await.unwrap();

    assert_eq!(message(call(100).get("b", "k").await), why);
    let mut reading = call(101);
    for _ in 0..3 {
        assert_eq!(reading.get("b", "k").await.unwrap(), Some(vec![0; 100]));
    }

    let page = (1 + size_of::<String>()) as u64;
    for (memory, fits) in [(page - 1, false), (page, true)] {
        let mut listing = call(memory);
        let b = listing.open("b").await.unwrap();
        assert_eq!(listing.view().list_keys(b, None).await.is_ok(), fits, "{memory}");
    }
}

#[tokio::test]
async fn denied_bucket_is_denied_under_every_name() {
    let mut call = Call::new(&["keyvalue=a:x", "keyvalue-read=a", "keyvalue=b", "deny-keyvalue=a"]);
    for name in ["x", "a"] {
        let refused = call.open(name).await;
        assert!(
            matches!(
                refused,
                Err(TrappableStoreError::Error(store::Error::AccessDenied))
            ),
            "{name}"
        );
    }
    assert!(call.open("b").await.is_ok());
    let receipt = call.buckets.recorder.lock();
    let by = receipt.denials.iter().map(|denial| denial.denied_by.as_deref());
    assert!(by.eq([Some("deny-keyvalue=a"); 2]), "{receipt:?}");
}
