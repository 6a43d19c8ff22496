//! The fifth seam: where tools keep values between calls. A store has buckets, a bucket has values by key.
//!
//! The operations are those of the WASI proposal `wasi:keyvalue`
//! (<https://github.com/WebAssembly/wasi-keyvalue>), with one promise more: each operation is done whole or not at
//! all, also one on many keys, and also when the future that waits for it is dropped or the process ends.

use std::sync::Arc;

use crate::BoxFuture;

/// Longest key, in bytes; the shortest has one. What hosted stores of this kind allow.
pub const MAX_KEY_BYTES: usize = 512;

/// Largest value, in bytes. Larger things are files.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Most keys of one operation, so that no operation holds up others for long.
pub const MAX_BATCH: usize = 1_000;

/// Most bytes that one operation reads at once. They are in the memory of the host before the guest has them.
pub const MAX_READ_BYTES: u64 = 8 << 20;

/// Keeps buckets.
pub trait KeyValueStore: Send + Sync {
    /// Opens a bucket, which is made where it does not exist. Whoever calls has checked that `bucket` is a name
    /// ([`is_bucket_name`]) and that it may be opened.
    ///
    /// # Errors
    /// When the store cannot be used.
    fn open<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Arc<dyn Bucket>, KeyValueError>>;
}

/// Values by key, shared by everybody who opens the bucket, also in other processes. What was written is read by every
/// operation that starts afterwards.
///
/// Whoever calls has checked that keys have 1 to [`MAX_KEY_BYTES`] bytes, values at most [`MAX_VALUE_BYTES`], and that
/// there are at most [`MAX_BATCH`] of them.
pub trait Bucket: Send + Sync {
    /// The values of some keys, in the order of the keys; `None` for a key that is not there. All as they were at one
    /// moment.
    ///
    /// # Errors
    /// [`KeyValueError::TooMuch`] when the values have more than `max_bytes` together, or when they cannot be read.
    fn get(
        &self,
        keys: Vec<String>,
        max_bytes: u64,
    ) -> BoxFuture<'_, Result<Vec<Option<Vec<u8>>>, KeyValueError>>;

    /// Sets the values of some keys, all or none. Of a key that stands twice the last value counts.
    ///
    /// # Errors
    /// [`KeyValueError::Full`], or when they are not kept.
    fn set(&self, pairs: Vec<(String, Vec<u8>)>) -> BoxFuture<'_, Result<(), KeyValueError>>;

    /// Removes some keys, all or none. One that is not there is passed over.
    ///
    /// # Errors
    /// When they could not be removed.
    fn delete(&self, keys: Vec<String>) -> BoxFuture<'_, Result<(), KeyValueError>>;

    /// Whether there is a key.
    ///
    /// # Errors
    /// When it cannot be read.
    fn exists(&self, key: String) -> BoxFuture<'_, Result<bool, KeyValueError>>;

    /// Some of the keys, and where to go on. From the start without a `cursor`. A key that is there from the first page
    /// to the last is listed exactly once.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&self, cursor: Option<u64>) -> BoxFuture<'_, Result<KeyPage, KeyValueError>>;

    /// Adds to a number and says what it is then. The number is kept as decimal digits; one that is not there is 0.
    ///
    /// # Errors
    /// [`KeyValueError::NotANumber`], [`KeyValueError::Overflow`], [`KeyValueError::Full`], or when it is not kept.
    fn increment(&self, key: String, delta: u64) -> BoxFuture<'_, Result<u64, KeyValueError>>;
}

/// Some of the keys of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys.
    pub keys: Vec<String>,
    /// Where the next page starts; `None` after the last one.
    pub cursor: Option<u64>,
}

/// Why a bucket did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyValueError {
    /// What was to be written does not fit beside what is there.
    #[error("the bucket is full: it holds at most {limit} {of}")]
    Full {
        /// How much it holds.
        limit: u64,
        /// Of what.
        of: Quota,
    },
    /// The values have more bytes together than were asked for at once.
    #[error("the values have more than {limit} bytes together; ask for fewer keys at once")]
    TooMuch {
        /// How many bytes were asked for.
        limit: u64,
    },
    /// A value that was to be added to is no number.
    #[error("the value of `{}` is no number", key.escape_debug())]
    NotANumber {
        /// Its key.
        key: String,
    },
    /// A sum is larger than 2^64 - 1.
    #[error("the value of `{}` would be larger than 18446744073709551615", key.escape_debug())]
    Overflow {
        /// Its key.
        key: String,
    },
    /// The store itself failed.
    #[error("the key-value store failed: {message}")]
    Failed {
        /// The chain of causes.
        message: String,
    },
}

/// What a bucket has a limit of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quota {
    /// Keys.
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

/// Whether a text can be the name of a bucket: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`, the first
/// one a letter or a digit.
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
    fn a_name_of_a_bucket_has_1_to_64_plain_characters() {
        for good in ["a", "0", "memory", "Shop-2.notes_x", &"a".repeat(64)] {
            assert!(is_bucket_name(good), "{good}");
        }
        for bad in ["", ".a", "-a", "a b", "a/b", "é", "a:b", "a\n", &"a".repeat(65)] {
            assert!(!is_bucket_name(bad), "{bad}");
        }
    }
}
