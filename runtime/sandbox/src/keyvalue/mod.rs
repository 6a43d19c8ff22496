//! `wasi:keyvalue`: buckets that outlive a call, in the store of the host.
//!
//! A guest opens a bucket by the name of a grant. What it asks for is checked here, whatever the store:
//!
//! - A bucket that is not granted is `access-denied`, and so is a change of one that is granted for reading; both are
//!   noted in the receipt with the grant that would allow them. A guest cannot find out which buckets there are.
//! - Keys have 1 to 512 bytes, values at most 1 MiB, and one operation has at most 1,000 keys and reads at most 8 MiB.
//! - A call reads and writes no more bytes than its limit says.
//!
//! Beyond what the proposal asks for, each operation is done whole or not at all, also when the call ends in the middle.

use std::sync::Arc;

use toolcell_core::denial::BucketDenial;
use toolcell_core::keyvalue::{MAX_BATCH, MAX_KEY_BYTES, MAX_READ_BYTES, MAX_VALUE_BYTES, is_bucket_name};
use toolcell_core::policy::BucketGrant;
use toolcell_core::{Bucket, Grant, KeyValueError, KeyValueStore, Policy};
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
        trappable_error_type: { "wasi:keyvalue/store.error" => crate::keyvalue::Refusal },
        require_store_data_send: true,
    });
}

/// Longest name of a bucket that is noted, in bytes; names have at most 64.
const MAX_NOTED_NAME: usize = 64;

/// The buckets of one call.
pub(crate) struct Buckets {
    store: Option<Arc<dyn KeyValueStore>>,
    grants: Vec<BucketGrant>,
    denied: Vec<BucketDenial>,
    ledger: ReceiptRecorder,
    /// Bytes that the call may still read and write.
    left: u64,
    limit: u64,
}

/// A bucket that a guest has opened.
#[expect(unreachable_pub, reason = "the generated code exports it again")]
pub struct OpenBucket {
    bucket: Arc<dyn Bucket>,
    grant: BucketGrant,
}

/// Why a guest does not get what it asked for.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It reads why.
    Told(store::Error),
    /// The call ends.
    Trap(wasmtime::Error),
}

impl Buckets {
    pub(crate) fn new(
        store: Option<Arc<dyn KeyValueStore>>,
        policy: &Policy,
        ledger: ReceiptRecorder,
    ) -> Self {
        let limit = policy.limits.keyvalue_bytes;
        Self {
            store,
            grants: policy.grants.buckets.clone(),
            denied: policy.grants.denied.buckets.clone(),
            ledger,
            left: limit,
            limit,
        }
    }

    /// Notes that the guest wanted a bucket that it may not have, and refuses it.
    fn deny(&self, name: &str, grant: Option<BucketGrant>) -> Refusal {
        let shown = name[..name.floor_char_boundary(MAX_NOTED_NAME)].to_owned();
        let grant = grant.map(|grant| Grant::Bucket(grant).to_string());
        self.ledger.denial("keyvalue", shown, grant);
        Refusal::Told(store::Error::AccessDenied)
    }

    /// Takes bytes from those that the call has.
    fn spend(&mut self, bytes: u64) -> Result<(), Refusal> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.spent()),
        }
    }

    fn spent(&self) -> Refusal {
        let limit = self.limit;
        self.ledger
            .denial("keyvalue", format!("more than {limit} bytes in one call"), None);
        told(format!(
            "this call may read and write no more than {limit} bytes of buckets"
        ))
    }
}

/// The buckets of a call together with the table of its resources.
pub(crate) struct KeyValueView<'a> {
    pub(crate) buckets: &'a mut Buckets,
    pub(crate) table: &'a mut ResourceTable,
    /// What one operation has in the memory of the host.
    pub(crate) in_flight: &'a mut Reservation,
}

/// Says to the linker what the host functions work on.
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
    /// The bucket behind a handle, for reading.
    fn reading(&mut self, handle: &Handle) -> Result<Arc<dyn Bucket>, Refusal> {
        let open = self.table.get(handle)?;
        self.buckets.ledger.bucket(&open.grant.bucket, false);
        Ok(open.bucket.clone())
    }

    /// The bucket behind a handle, if the guest may change it.
    fn writing(&mut self, handle: &Handle) -> Result<Arc<dyn Bucket>, Refusal> {
        let open = self.table.get(handle)?;
        if !open.grant.write {
            let write = BucketGrant {
                write: true,
                ..open.grant.clone()
            };
            return Err(self.buckets.deny(&open.grant.guest, Some(write)));
        }
        self.buckets.ledger.bucket(&open.grant.bucket, true);
        Ok(open.bucket.clone())
    }

    /// Charges what this operation has in the memory of the host until the guest has it.
    fn hold(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.in_flight.grow(bytes).map_err(|_| no_memory())
    }

    async fn values(&mut self, handle: &Handle, keys: Vec<String>) -> Result<Vec<Option<Vec<u8>>>, Refusal> {
        let bucket = self.reading(handle)?;
        let bytes = check_keys(&keys)?;
        self.hold(bytes)?;
        self.buckets.spend(bytes)?;
        // No more is read than the call has memory for.
        let memory = self.in_flight.left();
        let limit = self.buckets.left.min(memory).min(MAX_READ_BYTES);
        let values = match bucket.get(keys, limit).await {
            Err(KeyValueError::TooMuch { .. }) if limit == memory => return Err(no_memory()),
            Err(KeyValueError::TooMuch { .. }) if limit < MAX_READ_BYTES => return Err(self.buckets.spent()),
            values => values?,
        };
        let bytes: usize = values.iter().flatten().map(Vec::len).sum();
        self.hold(bytes as u64)?;
        self.buckets.spend(bytes as u64)?;
        Ok(values)
    }

    async fn change(&mut self, handle: &Handle, pairs: Vec<(String, Vec<u8>)>) -> Result<(), Refusal> {
        let bucket = self.writing(handle)?;
        check_count(pairs.len())?;
        let mut bytes = 0;
        for (key, value) in &pairs {
            bytes += check_key(key)?;
            if value.len() > MAX_VALUE_BYTES {
                let length = value.len();
                return Err(told(format!(
                    "a value has {length} bytes, and at most {MAX_VALUE_BYTES} are allowed"
                )));
            }
            bytes += value.len() as u64;
        }
        self.hold(bytes)?;
        self.buckets.spend(bytes)?;
        Ok(bucket.set(pairs).await?)
    }

    async fn remove(&mut self, handle: &Handle, keys: Vec<String>) -> Result<(), Refusal> {
        let bucket = self.writing(handle)?;
        let bytes = check_keys(&keys)?;
        self.hold(bytes)?;
        self.buckets.spend(bytes)?;
        Ok(bucket.delete(keys).await?)
    }
}

impl store::Host for KeyValueView<'_> {
    async fn open(&mut self, identifier: String) -> Result<Handle, Refusal> {
        let granted = self.buckets.grants.iter().find(|g| g.guest == identifier);
        let Some(grant) = granted.cloned() else {
            let grant = is_bucket_name(&identifier).then(|| BucketGrant {
                bucket: identifier.clone(),
                guest: identifier.clone(),
                write: true,
            });
            return Err(self.buckets.deny(&identifier, grant));
        };
        if let Some(denial) = self.buckets.denied.iter().find(|d| d.bucket == grant.bucket) {
            let (name, by) = (grant.guest, denial.by.clone());
            self.buckets.ledger.refusal("keyvalue", name, by);
            return Err(Refusal::Told(store::Error::AccessDenied));
        }
        let store = self.buckets.store.clone();
        let store = store.ok_or(Refusal::Told(store::Error::NoSuchStore))?;
        let bucket = store.open(&grant.bucket).await?;
        Ok(self.table.push(OpenBucket { bucket, grant })?)
    }

    fn convert_error(&mut self, error: Refusal) -> wasmtime::Result<store::Error> {
        match error {
            Refusal::Told(error) => Ok(error),
            Refusal::Trap(error) => Err(error),
        }
    }
}

impl store::HostBucket for KeyValueView<'_> {
    async fn get(&mut self, handle: Handle, key: String) -> Result<Option<Vec<u8>>, Refusal> {
        let mut values = self.values(&handle, vec![key]).await?;
        Ok(values.pop().flatten())
    }

    async fn set(&mut self, handle: Handle, key: String, value: Vec<u8>) -> Result<(), Refusal> {
        self.change(&handle, vec![(key, value)]).await
    }

    async fn delete(&mut self, handle: Handle, key: String) -> Result<(), Refusal> {
        self.remove(&handle, vec![key]).await
    }

    async fn exists(&mut self, handle: Handle, key: String) -> Result<bool, Refusal> {
        let bucket = self.reading(&handle)?;
        self.buckets.spend(check_key(&key)?)?;
        Ok(bucket.exists(key).await?)
    }

    async fn list_keys(
        &mut self,
        handle: Handle,
        cursor: Option<u64>,
    ) -> Result<store::KeyResponse, Refusal> {
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
    async fn increment(&mut self, handle: Handle, key: String, delta: u64) -> Result<u64, Refusal> {
        let bucket = self.writing(&handle)?;
        self.buckets.spend(check_key(&key)?)?;
        Ok(bucket.increment(key, delta).await?)
    }
}

impl batch::Host for KeyValueView<'_> {
    async fn get_many(
        &mut self,
        handle: Handle,
        keys: Vec<String>,
    ) -> Result<Vec<Option<(String, Vec<u8>)>>, Refusal> {
        let values = self.values(&handle, keys.clone()).await?;
        let pairs = keys.into_iter().zip(values);
        Ok(pairs.map(|(key, value)| Some((key, value?))).collect())
    }

    async fn set_many(&mut self, handle: Handle, pairs: Vec<(String, Vec<u8>)>) -> Result<(), Refusal> {
        self.change(&handle, pairs).await
    }

    async fn delete_many(&mut self, handle: Handle, keys: Vec<String>) -> Result<(), Refusal> {
        self.remove(&handle, keys).await
    }
}

/// Bytes of some keys, if they are such as a store takes.
fn check_keys(keys: &[String]) -> Result<u64, Refusal> {
    check_count(keys.len())?;
    keys.iter().map(|key| check_key(key)).sum()
}

fn check_key(key: &str) -> Result<u64, Refusal> {
    match key.len() {
        0 => Err(told("a key has at least one byte".into())),
        length if length > MAX_KEY_BYTES => Err(told(format!(
            "a key has {length} bytes, and at most {MAX_KEY_BYTES} are allowed"
        ))),
        length => Ok(length as u64),
    }
}

fn check_count(count: usize) -> Result<(), Refusal> {
    if count > MAX_BATCH {
        return Err(told(format!(
            "one operation has {count} keys, and at most {MAX_BATCH} are allowed"
        )));
    }
    Ok(())
}

fn no_memory() -> Refusal {
    told("this call has no memory left for it; ask for less at once".into())
}

fn told(why: String) -> Refusal {
    Refusal::Told(store::Error::Other(why))
}

impl From<KeyValueError> for Refusal {
    fn from(error: KeyValueError) -> Self {
        // What a store says of its own failure may name paths of the host: that is for people.
        if let KeyValueError::Failed { message } = &error {
            tracing::warn!(message, "the key-value store failed");
            return told("the key-value store failed".into());
        }
        told(error.to_string())
    }
}

impl From<ResourceTableError> for Refusal {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

#[cfg(test)]
mod tests;
