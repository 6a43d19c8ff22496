//! Key-value stores: what tools keep between calls. A store has buckets, a bucket maps keys to values.
//!
//! The operations are those of the WASI proposal `wasi:keyvalue` (<https://github.com/WebAssembly/wasi-keyvalue>), with
//! a stronger guarantee: every operation is atomic, including those on several keys, even if its future is dropped or
//! the process ends.

use std::sync::Arc;

use crate::{BoxFuture, SharedError};

/// Maximum size of a key, in bytes; the minimum is 1. Hosted stores of this kind allow as much.
pub const MAX_KEY_BYTES: usize = 512;

/// Maximum size of a value, in bytes. Larger data belongs in a file.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Maximum number of keys in one operation, so that no operation delays others for long.
pub const MAX_BATCH: usize = 1_000;

/// Maximum number of bytes that one operation reads. The host holds them in memory before the guest receives them.
pub const MAX_READ_BYTES: u64 = 8 << 20;

/// A store of buckets.
pub trait KeyValueStore: Send + Sync {
    /// Opens a bucket and creates it if it does not exist. The caller has checked that `bucket` is a valid name
    /// ([`is_bucket_name`]) and that access is granted.
    ///
    /// # Errors
    /// If the store is unavailable.
    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>>;
}

/// Values by key, shared by all who open the bucket, including other processes. Every operation sees the writes that
/// were completed before it started.
///
/// The caller has checked that keys have 1 to [`MAX_KEY_BYTES`] bytes and values at most [`MAX_VALUE_BYTES`], and that
/// there are at most [`MAX_BATCH`] keys.
pub trait Bucket: Send + Sync {
    /// Returns the values of `keys` in their order, `None` for a missing key. All values belong to one snapshot.
    ///
    /// # Errors
    /// [`KeyValueError::TooMuch`] if the values exceed `max_bytes` in total, or an error of the store.
    fn get(
        &self,
        keys: Vec<String>,
        max_bytes: u64,
    ) -> BoxFuture<'_, Result<Vec<Option<Vec<u8>>>, KeyValueError>>;

    /// Sets several values atomically. For a duplicate key the last value is kept.
    ///
    /// # Errors
    /// [`KeyValueError::Full`], or an error of the store.
    fn set(&self, pairs: Vec<(String, Vec<u8>)>) -> BoxFuture<'_, Result<(), KeyValueError>>;

    /// Removes several keys atomically. Missing keys are ignored.
    ///
    /// # Errors
    /// If the store fails; nothing is removed then.
    fn delete(&self, keys: Vec<String>) -> BoxFuture<'_, Result<(), KeyValueError>>;

    /// Returns `true` if the key exists.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn exists(&self, key: String) -> BoxFuture<'_, Result<bool, KeyValueError>>;

    /// Returns a page of keys, from the start if `cursor` is `None`. A key that exists from the first page to the last
    /// is listed exactly once.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn list(&self, cursor: Option<u64>) -> BoxFuture<'_, Result<KeyPage, KeyValueError>>;

    /// Adds `delta` to a number and returns the sum. Numbers are stored as decimal digits; a missing key counts as 0.
    ///
    /// # Errors
    /// [`KeyValueError::NotANumber`], [`KeyValueError::Overflow`], [`KeyValueError::Full`], or an error of the store.
    fn increment(&self, key: String, delta: u64) -> BoxFuture<'_, Result<u64, KeyValueError>>;
}

/// A page of the keys of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Keys of this page.
    pub keys: Vec<String>,
    /// Cursor of the next page; `None` after the last one.
    pub cursor: Option<u64>,
}

/// Error of an operation on a bucket.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KeyValueError {
    /// The new data does not fit into the bucket.
    #[error("the bucket is full: it holds at most {limit} {of}")]
    Full {
        /// Maximum of the exceeded quota.
        limit: u64,
        /// The exceeded quota.
        of: Quota,
    },
    /// The values exceed the number of bytes that was requested in total.
    #[error("the values have more than {limit} bytes together; ask for fewer keys at once")]
    TooMuch {
        /// Number of bytes requested.
        limit: u64,
    },
    /// The value to increment is not a number.
    #[error("the value of `{}` is not a number", key.escape_debug())]
    NotANumber {
        /// Key of the value.
        key: String,
    },
    /// The sum exceeds 2^64 - 1.
    #[error("the value of `{}` would be larger than 18446744073709551615", key.escape_debug())]
    Overflow {
        /// Key of the value.
        key: String,
    },
    /// The store failed.
    #[error("the key-value store failed")]
    Failed {
        /// Error of the store.
        source: SharedError,
    },
}

impl KeyValueError {
    /// Creates [`Self::Failed`] from its cause.
    pub fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed {
            source: SharedError::from(cause.into()),
        }
    }
}

/// Quota of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quota {
    /// Number of keys.
    Keys,
    /// Bytes of keys and values.
    Bytes,
}

impl std::fmt::Display for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keys => "keys",
            Self::Bytes => "bytes",
        })
    }
}

/// Returns `true` for a valid bucket name: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`, the first one a
/// letter or a digit.
pub fn is_bucket_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_have_1_to_64_plain_characters() {
        for good in ["a", "0", "memory", "Shop-2.notes_x", &"a".repeat(64)] {
            assert!(is_bucket_name(good), "{good}");
        }
        for bad in ["", ".a", "-a", "a b", "a/b", "é", "a:b", "a\n", &"a".repeat(65)] {
            assert!(!is_bucket_name(bad), "{bad}");
        }
    }

    #[test]
    fn quota_in_an_error_is_named() {
        assert_eq!(
            [Quota::Keys, Quota::Bytes].map(|quota| quota.to_string()),
            ["keys", "bytes"]
        );
    }
}
