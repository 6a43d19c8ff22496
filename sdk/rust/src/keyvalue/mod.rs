//! Values that outlive the call, in buckets of the host (`wasi:keyvalue`).
//!
//! ```
//! use toolcell_sdk::keyvalue::Bucket;
//! use toolcell_sdk::{Result, tool};
//!
//! /// Counts its calls.
//! #[tool]
//! fn count() -> Result<String> {
//!     let bucket = Bucket::open("counters")?;
//!     Ok(bucket.increment("calls", 1)?.to_string())
//! }
//!
//! assert_eq!(count().unwrap(), "1");
//! assert_eq!(count().unwrap(), "2");
//! ```
//!
//! A bucket is available if the policy grants it (`keyvalue=counters`). Each operation is atomic, including operations
//! on many keys, also if the call is ended during it; concurrent calls see each other's values, so related values
//! should be written in one operation.
//!
//! Keys have 1 to 512 bytes, values at most 1 MiB; one operation has at most 1,000 keys and reads at most 8 MiB.
//! Outside a component, where tests run, every bucket is available, and each thread has its own buckets.

#[cfg(target_family = "wasm")]
mod component;
#[cfg(not(target_family = "wasm"))]
mod memory;

#[cfg(target_family = "wasm")]
use component as backend;
#[cfg(not(target_family = "wasm"))]
use memory as backend;

use crate::{Result, ToolError, show};

/// Bucket of values by key.
#[derive(Debug)]
pub struct Bucket {
    name: String,
    inner: backend::Bucket,
}

/// Reason for a refusal by the host.
#[cfg_attr(
    not(target_family = "wasm"),
    expect(dead_code, reason = "no test has a host that refuses")
)]
enum Refused {
    NoSuchStore,
    Denied,
    Other(String),
}

impl Bucket {
    /// Opens the bucket with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) if it is not granted.
    pub fn open(name: &str) -> Result<Self> {
        let inner = backend::Bucket::open(name).map_err(|refused| {
            told(refused, || {
                ToolError::denied(format_args!(
                    "the bucket {} is not granted to this tool",
                    show::quoted(name)
                ))
            })
        })?;
        Ok(Self {
            name: name.to_owned(),
            inner,
        })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if the value cannot be read.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.inner.get(key).map_err(|refused| self.told(refused))
    }

    /// Returns the values of some keys, in their order.
    ///
    /// # Errors
    /// Fails if the values cannot be read, or have more than 8 MiB in total.
    pub fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        self.inner.get_many(keys).map_err(|refused| self.told(refused))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Fails if the bucket is full or read-only.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.inner.set(key, value).map_err(|refused| self.told(refused))
    }

    /// Sets the values of some keys atomically.
    ///
    /// # Errors
    /// Fails if the bucket is full or read-only.
    pub fn set_many(&self, pairs: &[(String, Vec<u8>)]) -> Result<()> {
        self.inner.set_many(pairs).map_err(|refused| self.told(refused))
    }

    /// Removes a key, if it exists.
    ///
    /// # Errors
    /// Fails if the bucket is read-only.
    pub fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).map_err(|refused| self.told(refused))
    }

    /// Removes some keys atomically.
    ///
    /// # Errors
    /// Fails if the bucket is read-only.
    pub fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.inner.delete_many(keys).map_err(|refused| self.told(refused))
    }

    /// True if the key exists.
    ///
    /// # Errors
    /// Fails if the bucket cannot be read.
    pub fn exists(&self, key: &str) -> Result<bool> {
        self.inner.exists(key).map_err(|refused| self.told(refused))
    }

    /// All keys, in unspecified order.
    ///
    /// # Errors
    /// Fails if the keys cannot be read.
    pub fn keys(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let (keys, next) = self
                .inner
                .list_keys(cursor)
                .map_err(|refused| self.told(refused))?;
            all.extend(keys);
            match next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Adds to a number, stored as decimal digits, and returns the sum; a missing key counts as 0. No two calls get the
    /// same number.
    ///
    /// # Errors
    /// Fails if the value is not a number, or the bucket is full or read-only.
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64> {
        self.inner
            .increment(key, delta)
            .map_err(|refused| self.told(refused))
    }

    fn told(&self, refused: Refused) -> ToolError {
        told(refused, || {
            ToolError::denied(format_args!(
                "the bucket {} is read-only",
                show::quoted(&self.name)
            ))
        })
    }
}

fn told(refused: Refused, denied: impl FnOnce() -> ToolError) -> ToolError {
    match refused {
        Refused::Denied => denied(),
        Refused::NoSuchStore => ToolError::unavailable("this host has no key-value store"),
        Refused::Other(why) => ToolError::failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_behaves_the_same_outside_a_component() {
        let bucket = Bucket::open("b").unwrap();
        assert_eq!(bucket.get("k").unwrap(), None);
        bucket.set("k", b"1").unwrap();
        bucket
            .set_many(&[("l".into(), b"2".to_vec()), ("m".into(), Vec::new())])
            .unwrap();
        assert_eq!(Bucket::open("b").unwrap().get("k").unwrap(), Some(b"1".to_vec()));
        assert_eq!(Bucket::open("c").unwrap().get("k").unwrap(), None);
        assert_eq!(
            bucket.get_many(&["m".into(), "x".into()]).unwrap(),
            [Some(Vec::new()), None]
        );
        assert_eq!(bucket.keys().unwrap(), ["k", "l", "m"]);
        bucket.delete("k").unwrap();
        bucket.delete_many(&["l".into(), "x".into()]).unwrap();
        assert!(!bucket.exists("k").unwrap());
        assert!(bucket.exists("m").unwrap());
        assert_eq!(bucket.increment("n", 2).unwrap(), 2);
        assert_eq!(bucket.increment("n", 3).unwrap(), 5);
        assert_eq!(bucket.get("n").unwrap(), Some(b"5".to_vec()));
        assert!(
            bucket
                .increment("m", 1)
                .unwrap_err()
                .message()
                .contains("not a number")
        );
    }
}
