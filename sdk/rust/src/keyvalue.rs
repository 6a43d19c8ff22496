//! Values that outlive the call, in buckets of the host (`wasi:keyvalue`).
//!
//! ```
//! use toolcell_sdk::keyvalue::Bucket;
//! use toolcell_sdk::{Result, tool};
//!
//! /// Counts how often it was called.
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
//! A bucket is there where the policy grants it (`keyvalue=counters`). Each operation is done whole or not at all, also
//! one on many keys, and also when the call is ended in the middle of it; calls that run at the same time see each
//! other's values, so what belongs together is written in one operation.
//!
//! Keys have 1 to 512 bytes, values at most 1 MiB; one operation has at most 1,000 keys and reads at most 8 MiB. Outside
//! of a component, where tests run, every bucket is there, and each thread has buckets of its own.

#[cfg(target_family = "wasm")]
mod component;
#[cfg(not(target_family = "wasm"))]
mod memory;

#[cfg(target_family = "wasm")]
use component as backend;
#[cfg(not(target_family = "wasm"))]
use memory as backend;

use crate::{Result, ToolError};

/// A bucket: values by key.
#[derive(Debug)]
pub struct Bucket {
    name: String,
    inner: backend::Bucket,
}

/// Why the host refused.
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
    /// Opens the bucket of that name.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) when it is not granted.
    pub fn open(name: &str) -> Result<Self> {
        let inner = backend::Bucket::open(name).map_err(|refused| {
            told(refused, || {
                ToolError::denied(format_args!("the bucket `{name}` is not granted to this tool"))
            })
        })?;
        Ok(Self {
            name: name.to_owned(),
            inner,
        })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.inner.get(key).map_err(|refused| self.told(refused))
    }

    /// The values of some keys, in their order.
    ///
    /// # Errors
    /// When they cannot be read, or have more than 8 MiB together.
    pub fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        self.inner.get_many(keys).map_err(|refused| self.told(refused))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When the bucket is full or may only be read.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.inner.set(key, value).map_err(|refused| self.told(refused))
    }

    /// Sets the values of some keys, all or none.
    ///
    /// # Errors
    /// When the bucket is full or may only be read.
    pub fn set_many(&self, pairs: &[(String, Vec<u8>)]) -> Result<()> {
        self.inner.set_many(pairs).map_err(|refused| self.told(refused))
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// When the bucket may only be read.
    pub fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key).map_err(|refused| self.told(refused))
    }

    /// Removes some keys, all or none.
    ///
    /// # Errors
    /// When the bucket may only be read.
    pub fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.inner.delete_many(keys).map_err(|refused| self.told(refused))
    }

    /// Whether there is a key.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn exists(&self, key: &str) -> Result<bool> {
        self.inner.exists(key).map_err(|refused| self.told(refused))
    }

    /// All keys, in no order that one could rely on.
    ///
    /// # Errors
    /// When they cannot be read.
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

    /// Adds to a number, kept as decimal digits, and says what it is then; one that is not there is 0. No two calls get
    /// the same number.
    ///
    /// # Errors
    /// When the value is no number, or the bucket is full or may only be read.
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64> {
        self.inner
            .increment(key, delta)
            .map_err(|refused| self.told(refused))
    }

    fn told(&self, refused: Refused) -> ToolError {
        told(refused, || {
            ToolError::denied(format_args!("the bucket `{}` may only be read", self.name))
        })
    }
}

fn told(refused: Refused, denied: impl FnOnce() -> ToolError) -> ToolError {
    match refused {
        Refused::Denied => denied(),
        Refused::NoSuchStore => ToolError::unavailable("this host keeps no values between calls"),
        Refused::Other(why) => ToolError::failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_does_outside_of_a_component_what_it_does_in_one() {
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
                .contains("no number")
        );
    }
}
