//! The user's buckets: one SQLite file, opened when a tool first opens a bucket granted to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use toolcell_core::{BoxFuture, Bucket, KeyValueError, KeyValueStore};
use toolcell_store::{BucketLimits, SqliteBuckets};

use crate::databases::Database;
use crate::environment::Environment;
use crate::error::Failure;

/// Bucket store that creates its file on first use.
pub(crate) struct Buckets {
    path: Option<PathBuf>,
    limits: BTreeMap<String, BucketLimits>,
    store: Mutex<Option<Arc<SqliteBuckets>>>,
}

impl Buckets {
    /// Creates the store with these limits of single buckets, by name.
    pub(crate) fn new(environment: &Environment, limits: BTreeMap<String, BucketLimits>) -> Self {
        Self {
            path: path(environment),
            limits,
            store: Mutex::default(),
        }
    }

    fn store(&self) -> Result<Arc<SqliteBuckets>, KeyValueError> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let path = self.path.as_ref();
        let path = path.ok_or_else(|| KeyValueError::failed("there is no home directory"))?;
        if let Some(dir) = path.parent() {
            toolcell_fs::private_dir(dir).map_err(KeyValueError::failed)?;
        }
        let opened = SqliteBuckets::open(path, BucketLimits::default())?;
        let opened = Arc::new(opened.with_limits(self.limits.clone()));
        *store = Some(opened.clone());
        Ok(opened)
    }
}

impl KeyValueStore for Buckets {
    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>> {
        Box::pin(async move { self.store()?.open(bucket).await })
    }
}

/// Returns the path of the bucket store. A client of `toolcell serve` has one of its own, so that it reads nothing that
/// another one has stored.
pub(crate) fn path(environment: &Environment) -> Option<PathBuf> {
    let dir = environment.data_dir.as_ref()?;
    let client = environment
        .client
        .as_ref()
        .filter(|client| !client.name.is_empty());
    let dir = match client {
        Some(client) => dir.join("clients").join(&client.name),
        None => dir.clone(),
    };
    Some(dir.join("buckets.sqlite"))
}

/// Opens the bucket store for a command; `None` if it does not exist yet.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub(crate) fn existing(environment: &Environment) -> Result<Option<Arc<SqliteBuckets>>, Failure> {
    match path(environment) {
        Some(path) if path.exists() => {}
        _ => return Ok(None),
    }
    Buckets::new(environment, BTreeMap::new())
        .store()
        .map(Some)
        .map_err(|error| unusable(environment, error))
}

/// Checks that buckets can be used, so that the user sees the cause before a tool fails without it.
///
/// # Errors
/// Returns an error if there is no data directory or the file cannot be used.
pub(crate) fn check(environment: &Environment) -> Result<(), Failure> {
    let checked = Buckets::new(environment, BTreeMap::new()).store();
    checked.map(drop).map_err(|error| unusable(environment, error))
}

/// Creates the failure for an error of the bucket store.
pub(crate) fn unusable(environment: &Environment, error: KeyValueError) -> Failure {
    Database::Buckets.unusable(environment, error.into())
}
