//! Implementation of `wasi:keyvalue`: buckets that outlive a call, in the store of the host.
//!
//! A guest opens a bucket by the name of a grant. Its requests are checked here, whatever the store:
//!
//! - Access to a bucket without a grant is `access-denied`, and so are changes of one granted for reading; both are
//!   recorded in the receipt with the grant that would allow them. A guest cannot find out which buckets exist.
//! - Keys have 1 to 512 bytes, values at most 1 MiB, and one operation has at most 1,000 keys and reads at most 8 MiB.
//! - A call reads and writes no more bytes than its limit.
//!
//! Beyond the guarantees of the proposal, each operation is atomic, even if the call ends during it.

use std::sync::Arc;

use toolcell_core::keyvalue::{MAX_BATCH, MAX_KEY_BYTES, MAX_READ_BYTES, MAX_VALUE_BYTES, is_bucket_name};
use toolcell_core::policy::BucketGrant;
use toolcell_core::{Bucket, Grant, KeyValueError, KeyValueStore, Policy, error_chain};
use wasmtime::component::{HasData, Linker, Resource, ResourceTable, ResourceTableError};

use self::bindings::wasi::keyvalue::{atomics, batch, store};
use crate::cell::memory::Reservation;
use crate::cell::receipt::ReceiptRecorder;

#[allow(clippy::all, reason = "generated")]
mod bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "wasi:keyvalue/imports",
        imports: { default: async | trappable },
        with: { "wasi:keyvalue/store.bucket": crate::keyvalue::OpenBucket },
        trappable_error_type: { "wasi:keyvalue/store.error" => crate::keyvalue::TrappableStoreError },
        require_store_data_send: true,
    });
}

/// Maximum length of a recorded bucket name, in bytes; names have at most 64.
const MAX_NOTED_NAME: usize = 64;

/// Buckets of one call.
pub(crate) struct Buckets {
    store: Option<Arc<dyn KeyValueStore>>,
    policy: Arc<Policy>,
    recorder: ReceiptRecorder,
    /// Bytes that the call may still read and write.
    left: u64,
    limit: u64,
}

/// A bucket opened by a guest.
#[expect(unreachable_pub, reason = "re-exported by the generated code")]
pub struct OpenBucket {
    bucket: Arc<dyn Bucket>,
    grant: BucketGrant,
}

/// Failure of a request of the guest.
#[derive(Debug)]
pub(crate) enum TrappableStoreError {
    /// Returned to the guest with a reason.
    Error(store::Error),
    /// Ends the call.
    Trap(wasmtime::Error),
}

impl Buckets {
    pub(crate) fn new(
        store: Option<Arc<dyn KeyValueStore>>,
        policy: Arc<Policy>,
        limit: u64,
        recorder: ReceiptRecorder,
    ) -> Self {
        Self {
            store,
            policy,
            recorder,
            left: limit,
            limit,
        }
    }

    /// Records the denied access to a bucket and returns the refusal.
    fn deny(&self, name: &str, grant: Option<BucketGrant>) -> TrappableStoreError {
        let shown = &name[..name.floor_char_boundary(MAX_NOTED_NAME)];
        // What is no name cannot look like another denial.
        let shown = match is_bucket_name(name) {
            true => shown.to_owned(),
            false => format!("\"{}\"", shown.escape_debug()),
        };
        let grant = grant.map(|grant| Grant::Bucket(grant).to_string());
        self.recorder.denial("keyvalue", shown, grant);
        TrappableStoreError::Error(store::Error::AccessDenied)
    }

    /// Takes bytes from the quota of the call.
    fn spend(&mut self, bytes: u64) -> Result<(), TrappableStoreError> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.spent(bytes)),
        }
    }

    /// Records that the quota of the call does not suffice for `bytes` more, and returns the refusal.
    fn spent(&self, bytes: u64) -> TrappableStoreError {
        let limit = self.limit;
        let needed = (limit - self.left).saturating_add(bytes);
        self.recorder.too_much("keyvalue_bytes", limit, needed);
        refusal(format!(
            "the limit of {limit} bytes of buckets per call is exhausted"
        ))
    }
}

/// Buckets of a call together with its resource table.
pub(crate) struct KeyValueView<'a> {
    pub(crate) buckets: &'a mut Buckets,
    pub(crate) table: &'a mut ResourceTable,
    /// Host memory of the current operation.
    pub(crate) in_flight: &'a mut Reservation,
}

/// Type-level link from the linker to the host state.
struct HasKeyValue;

impl HasData for HasKeyValue {
    type Data<'a> = KeyValueView<'a>;
}

pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> KeyValueView<'_>,
) -> wasmtime::Result<()> {
    store::add_to_linker::<T, HasKeyValue>(linker, view)?;
    atomics::add_to_linker::<T, HasKeyValue>(linker, view)?;
    batch::add_to_linker::<T, HasKeyValue>(linker, view)
}

type Handle = Resource<OpenBucket>;

impl KeyValueView<'_> {
    /// Returns the bucket of a handle, for reading.
    fn reading(&mut self, handle: &Handle) -> Result<Arc<dyn Bucket>, TrappableStoreError> {
        let open = self.table.get(handle)?;
        self.buckets.recorder.bucket(&open.grant.bucket, false);
        Ok(open.bucket.clone())
    }

    /// Returns the bucket of a handle, if the guest may change it.
    fn writing(&mut self, handle: &Handle) -> Result<Arc<dyn Bucket>, TrappableStoreError> {
        let open = self.table.get(handle)?;
        if !open.grant.write {
            let write = BucketGrant {
                write: true,
                ..open.grant.clone()
            };
            return Err(self.buckets.deny(&open.grant.guest, Some(write)));
        }
        self.buckets.recorder.bucket(&open.grant.bucket, true);
        Ok(open.bucket.clone())
    }

    /// Charges host memory of this operation until the guest has received the data.
    fn hold(&mut self, bytes: u64) -> Result<(), TrappableStoreError> {
        self.in_flight.grow(bytes).map_err(|_| no_memory())
    }

    async fn values(
        &mut self,
        handle: &Handle,
        keys: Vec<String>,
    ) -> Result<Vec<Option<Vec<u8>>>, TrappableStoreError> {
        let bucket = self.reading(handle)?;
        let bytes = check_keys(&keys)?;
        self.hold(bytes)?;
        self.buckets.spend(bytes)?;
        // No more is read than the memory limit of the call allows.
        let memory = self.in_flight.left();
        let limit = self.buckets.left.min(memory).min(MAX_READ_BYTES);
        let values = match bucket.get(keys, limit).await {
            Err(KeyValueError::TooMuch { .. }) if limit == memory => return Err(no_memory()),
            Err(KeyValueError::TooMuch { .. }) if limit < MAX_READ_BYTES => {
                return Err(self.buckets.spent(limit.saturating_add(1)));
            }
            values => values?,
        };
        let bytes: usize = values.iter().flatten().map(Vec::len).sum();
        self.hold(bytes as u64)?;
        self.buckets.spend(bytes as u64)?;
        Ok(values)
    }

    async fn change(
        &mut self,
        handle: &Handle,
        pairs: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TrappableStoreError> {
        let bucket = self.writing(handle)?;
        check_count(pairs.len())?;
        let mut bytes = 0;
        for (key, value) in &pairs {
            bytes += check_key(key)?;
            if value.len() > MAX_VALUE_BYTES {
                let length = value.len();
                return Err(refusal(format!(
                    "a value has {length} bytes, more than the limit of {MAX_VALUE_BYTES}"
                )));
            }
            bytes += value.len() as u64;
        }
        self.hold(bytes)?;
        self.buckets.spend(bytes)?;
        let set = bucket.set(pairs).await;
        self.changed(handle, set)
    }

    /// Returns the result of a change. One for which the bucket has no room is recorded.
    fn changed<T>(
        &self,
        handle: &Handle,
        result: Result<T, KeyValueError>,
    ) -> Result<T, TrappableStoreError> {
        if let Err(KeyValueError::Full { limit, of }) = &result {
            let name = &self.table.get(handle)?.grant.bucket;
            self.buckets.recorder.full_bucket(name, *limit, *of);
        }
        Ok(result?)
    }

    async fn remove(&mut self, handle: &Handle, keys: Vec<String>) -> Result<(), TrappableStoreError> {
        let bucket = self.writing(handle)?;
        let bytes = check_keys(&keys)?;
        self.hold(bytes)?;
        self.buckets.spend(bytes)?;
        Ok(bucket.delete(keys).await?)
    }
}

impl store::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> Result<Handle, TrappableStoreError> {
        let granted = self
            .buckets
            .policy
            .grants
            .buckets
            .iter()
            .find(|g| g.guest == identifier);
        let Some(grant) = granted.cloned() else {
            let grant = is_bucket_name(&identifier).then(|| BucketGrant {
                bucket: identifier.clone(),
                guest: identifier.clone(),
                write: true,
            });
            return Err(self.buckets.deny(&identifier, grant));
        };
        let mut denied = self.buckets.policy.grants.denied.buckets.iter();
        if let Some(denial) = denied.find(|d| d.bucket == grant.bucket) {
            let (name, by) = (grant.guest, denial.by.clone());
            self.buckets.recorder.refusal("keyvalue", name, by);
            return Err(TrappableStoreError::Error(store::Error::AccessDenied));
        }
        let store = self.buckets.store.clone();
        let store = store.ok_or(TrappableStoreError::Error(store::Error::NoSuchStore))?;
        let bucket = store.open(&grant.bucket).await?;
        Ok(self.table.push(OpenBucket { bucket, grant })?)
    }

    fn convert_error(&mut self, error: TrappableStoreError) -> wasmtime::Result<store::Error> {
        match error {
            TrappableStoreError::Error(error) => Ok(error),
            TrappableStoreError::Trap(error) => Err(error),
        }
    }
}

impl store::HostBucket for KeyValueView<'_> {
    async fn get(&mut self, handle: Handle, key: String) -> Result<Option<Vec<u8>>, TrappableStoreError> {
        let mut values = self.values(&handle, vec![key]).await?;
        Ok(values.pop().flatten())
    }

    async fn set(&mut self, handle: Handle, key: String, value: Vec<u8>) -> Result<(), TrappableStoreError> {
        self.change(&handle, vec![(key, value)]).await
    }

    async fn delete(&mut self, handle: Handle, key: String) -> Result<(), TrappableStoreError> {
        self.remove(&handle, vec![key]).await
    }

    async fn exists(&mut self, handle: Handle, key: String) -> Result<bool, TrappableStoreError> {
        let bucket = self.reading(&handle)?;
        self.buckets.spend(check_key(&key)?)?;
        Ok(bucket.exists(key).await?)
    }

    async fn list_keys(
        &mut self,
        handle: Handle,
        cursor: Option<u64>,
    ) -> Result<store::KeyResponse, TrappableStoreError> {
        let bucket = self.reading(&handle)?;
        let page = bucket.list(cursor).await?;
        let bytes: usize = page.keys.iter().map(String::len).sum();
        self.hold((bytes + size_of_val(&*page.keys)) as u64)?;
        self.buckets.spend(bytes as u64)?;
        Ok(store::KeyResponse {
            keys: page.keys,
            cursor: page.cursor,
        })
    }

    async fn drop(&mut self, handle: Handle) -> wasmtime::Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

impl atomics::Host for KeyValueView<'_> {
    async fn increment(
        &mut self,
        handle: Handle,
        key: String,
        delta: u64,
    ) -> Result<u64, TrappableStoreError> {
        let bucket = self.writing(&handle)?;
        self.buckets.spend(check_key(&key)?)?;
        let sum = bucket.increment(key, delta).await;
        self.changed(&handle, sum)
    }
}

impl batch::Host for KeyValueView<'_> {
    async fn get_many(
        &mut self,
        handle: Handle,
        keys: Vec<String>,
    ) -> Result<Vec<Option<(String, Vec<u8>)>>, TrappableStoreError> {
        let values = self.values(&handle, keys.clone()).await?;
        let pairs = keys.into_iter().zip(values);
        Ok(pairs.map(|(key, value)| Some((key, value?))).collect())
    }

    async fn set_many(
        &mut self,
        handle: Handle,
        pairs: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TrappableStoreError> {
        self.change(&handle, pairs).await
    }

    async fn delete_many(&mut self, handle: Handle, keys: Vec<String>) -> Result<(), TrappableStoreError> {
        self.remove(&handle, keys).await
    }
}

/// Validates keys and returns their total size.
fn check_keys(keys: &[String]) -> Result<u64, TrappableStoreError> {
    check_count(keys.len())?;
    keys.iter().map(|key| check_key(key)).sum()
}

fn check_key(key: &str) -> Result<u64, TrappableStoreError> {
    match key.len() {
        0 => Err(refusal("a key is empty".into())),
        length if length > MAX_KEY_BYTES => Err(refusal(format!(
            "a key has {length} bytes, more than the limit of {MAX_KEY_BYTES}"
        ))),
        length => Ok(length as u64),
    }
}

fn check_count(count: usize) -> Result<(), TrappableStoreError> {
    if count > MAX_BATCH {
        return Err(refusal(format!(
            "an operation has {count} keys, more than the limit of {MAX_BATCH}"
        )));
    }
    Ok(())
}

fn no_memory() -> TrappableStoreError {
    refusal("the call has no memory left for this operation; request less at once".into())
}

fn refusal(why: String) -> TrappableStoreError {
    TrappableStoreError::Error(store::Error::Other(why))
}

impl From<KeyValueError> for TrappableStoreError {
    fn from(error: KeyValueError) -> Self {
        // The message of a store may contain host paths, which only the user may see.
        if let KeyValueError::Failed { source } = &error {
            tracing::warn!(cause = error_chain(source), "the key-value store failed");
            return refusal("the key-value store failed".into());
        }
        refusal(error.to_string())
    }
}

impl From<ResourceTableError> for TrappableStoreError {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

#[cfg(test)]
mod tests;
