//! Key-value store in SQLite for data that tools keep between calls.
//!
//! Writes of many calls are committed together (`threads.rs`). Other processes may use the same file; the store
//! waits for their writes.

mod read;
mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use toolcell_core::keyvalue::KeyPage;
use toolcell_core::{BoxFuture, Bucket, KeyValueError, KeyValueStore};

use self::write::{Op, Write};
use crate::SqliteError;
use crate::sqlite::{self, Kind, Upgrade};
use crate::threads::Threads;

/// File of buckets. Its application id is "tckv".
///
/// `keys` and `bytes` of a bucket are the totals of its pairs. Numbers of pairs are never reused, so that a listing can
/// continue after any of them.
const BUCKETS: Kind = Kind {
    application: 0x7463_6b76,
    upgrades: &[Upgrade::Sql(KEYS_IN_LISTED)],
    tables: "
CREATE TABLE buckets (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    keys INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE pairs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    bucket INTEGER NOT NULL REFERENCES buckets (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (bucket, key)
);
CREATE INDEX listed ON pairs (bucket, number);
",
};

/// The index of a listing has the keys, so that values are not read: in a bucket of 100,000 keys with 50 MiB that is a
/// twentieth of the pages.
const KEYS_IN_LISTED: &str = "
DROP INDEX listed;
CREATE INDEX listed ON pairs (bucket, number, key);
";

/// Key-value store in one SQLite file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use toolcell_store::{BucketLimits, SqliteBuckets};
/// use toolcell_core::KeyValueStore as _;
///
/// # let dir = tempfile::tempdir()?;
/// let store = SqliteBuckets::open(dir.path().join("buckets.sqlite"), BucketLimits::default())?;
/// let bucket = store.open("notes").await?;
/// bucket.set(vec![("colour".into(), b"blue".to_vec())]).await?;
/// assert_eq!(bucket.get(vec!["colour".into()], 1024).await?, [Some(b"blue".to_vec())]);
/// # Ok(()) }
/// ```
pub struct SqliteBuckets {
    threads: Arc<Threads<Write>>,
    limits: BucketLimits,
    /// Limits of single buckets, by name.
    named: BTreeMap<String, BucketLimits>,
}

/// Capacity of a bucket. Existing data stays when a limit is lowered.
///
/// | limit | unit | default | reason |
/// |---|---|---|---|
/// | `keys` | keys | 250,000 | a memory of 100,000 entries with its index, twice |
/// | `bytes` | bytes of keys and values | 128 MiB | the same; the whole bucket can be read in one call |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketLimits {
    /// Maximum number of keys.
    pub keys: u64,
    /// Maximum bytes of keys and values.
    pub bytes: u64,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self {
            keys: 250_000,
            bytes: 128 << 20,
        }
    }
}

impl SqliteBuckets {
    /// Opens the file, or creates it. A new file is accessible to its owner only.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a key-value store, or was created by another version.
    pub fn open(path: impl AsRef<Path>, limits: BucketLimits) -> Result<Self, SqliteError> {
        let threads = Arc::new(Threads::start("toolcell-buckets", path.as_ref(), &BUCKETS)?);
        Ok(Self {
            threads,
            limits,
            named: BTreeMap::new(),
        })
    }

    /// Sets the limits of single buckets, by name.
    #[must_use]
    pub fn with_limits(mut self, named: BTreeMap<String, BucketLimits>) -> Self {
        self.named = named;
        self
    }

    /// Returns the limits of a bucket.
    pub fn limits(&self, bucket: &str) -> BucketLimits {
        self.named.get(bucket).copied().unwrap_or(self.limits)
    }

    /// Returns all buckets that were written to, by name.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn buckets(&self) -> BoxFuture<'_, Result<Vec<BucketInfo>, KeyValueError>> {
        self.threads.read(|connection| read::buckets(connection))
    }

    /// Checks the file for damage, in time in proportion to its size.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read.
    pub fn check(&self) -> BoxFuture<'_, Result<(), KeyValueError>> {
        self.threads
            .read(|connection| sqlite::check(connection).map_err(failed))
    }

    /// Removes a bucket with all its pairs, and returns how many there were.
    ///
    /// # Errors
    /// If the store fails; nothing is removed then.
    pub fn clear(&self, bucket: &str) -> BoxFuture<'_, Result<u64, KeyValueError>> {
        self.threads.write(Write {
            bucket: bucket.to_owned(),
            limits: self.limits(bucket),
            op: Op::Clear,
        })
    }
}

/// A bucket and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name.
    pub name: String,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl KeyValueStore for SqliteBuckets {
    /// Opens a bucket; its first write creates it.
    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        let bucket: Arc<dyn Bucket> = Arc::new(SqliteBucket {
            name: bucket.to_owned(),
            limits: self.limits(bucket),
            threads: self.threads.clone(),
        });
        Box::pin(std::future::ready(Ok(bucket)))
    }
}

struct SqliteBucket {
    name: String,
    limits: BucketLimits,
    threads: Arc<Threads<Write>>,
}

impl SqliteBucket {
    fn write(&self, op: Op) -> BoxFuture<'_, Result<u64, KeyValueError>> {
        self.threads.write(Write {
            bucket: self.name.clone(),
            limits: self.limits,
            op,
        })
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Connection, &str) -> Result<T, KeyValueError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, KeyValueError>> {
        let name = self.name.clone();
        self.threads.read(move |connection| read(connection, &name))
    }
}

impl Bucket for SqliteBucket {
    fn get(
        &self,
        keys: Vec<String>,
        max_bytes: u64,
    ) -> BoxFuture<'_, Result<Vec<Option<Vec<u8>>>, KeyValueError>> {
        self.read(move |connection, name| read::values(connection, name, &keys, max_bytes))
    }

    fn set(&self, pairs: Vec<(String, Vec<u8>)>) -> BoxFuture<'_, Result<(), KeyValueError>> {
        let written = self.write(Op::Set(pairs));
        Box::pin(async { written.await.map(drop) })
    }

    fn delete(&self, keys: Vec<String>) -> BoxFuture<'_, Result<(), KeyValueError>> {
        let written = self.write(Op::Delete(keys));
        Box::pin(async { written.await.map(drop) })
    }

    fn exists(&self, key: String) -> BoxFuture<'_, Result<bool, KeyValueError>> {
        self.read(move |connection, name| read::exists(connection, name, &key))
    }

    fn list(&self, cursor: Option<u64>) -> BoxFuture<'_, Result<KeyPage, KeyValueError>> {
        self.read(move |connection, name| read::page(connection, name, cursor))
    }

    fn increment(&self, key: String, delta: u64) -> BoxFuture<'_, Result<u64, KeyValueError>> {
        self.write(Op::Increment { key, delta })
    }
}

fn failed(error: rusqlite::Error) -> KeyValueError {
    SqliteError::Sqlite(error).into()
}

impl std::fmt::Debug for SqliteBuckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteBuckets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
