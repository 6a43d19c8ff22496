//! Validators of all schemas of the process, which are kept up to a total size.
//!
//! A schema of a hundred bytes can take ten megabytes once its patterns are compiled, and tools come from components, servers
//! and clients without number. So a validator is built when it is needed, and those that were used last are kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use jsonschema::Validator;

/// Maximum size of all validators that are kept, in bytes: six of the largest schemas, or those of some thousand usual tools.
pub const MAX_KEPT: usize = 64 << 20;

static KEPT: LazyLock<Mutex<Kept<Arc<Validator>>>> = LazyLock::new(Mutex::default);

fn kept() -> MutexGuard<'static, Kept<Arc<Validator>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Place of the validator of one schema.
#[derive(Debug)]
pub(super) struct Slot {
    schema: u64,
    /// Size of the validator, in bytes.
    bytes: usize,
}

impl Slot {
    /// Makes a place for a validator of this size.
    pub(super) fn new(bytes: usize) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            schema: LAST.fetch_add(1, Ordering::Relaxed),
            bytes,
        }
    }

    /// Returns the size of the validator, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the validator, which is built if it is not kept.
    pub(super) fn get_or_build<E>(
        &self,
        build: impl FnOnce() -> Result<Validator, E>,
    ) -> Result<Arc<Validator>, E> {
        if let Some(validator) = kept().get(self.schema) {
            return Ok(validator);
        }
        let validator = Arc::new(build()?);
        let removed = kept().insert(self.schema, self.bytes, validator.clone());
        // Freed without the lock.
        drop(removed);
        Ok(validator)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let removed = kept().remove(self.schema);
        drop(removed);
    }
}

/// Values by the numbers of their schemas.
struct Kept<T> {
    last_use: u64,
    bytes: usize,
    by_schema: HashMap<u64, Entry<T>>,
    /// Schemas by the time of their last use, the longest ago first.
    by_use: BTreeMap<u64, u64>,
}

struct Entry<T> {
    value: T,
    bytes: usize,
    used: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            last_use: 0,
            bytes: 0,
            by_schema: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }
}

impl<T: Clone> Kept<T> {
    fn get(&mut self, schema: u64) -> Option<T> {
        let entry = self.by_schema.get_mut(&schema)?;
        if entry.used != self.last_use {
            self.by_use.remove(&entry.used);
            self.last_use += 1;
            entry.used = self.last_use;
            self.by_use.insert(entry.used, schema);
        }
        Some(entry.value.clone())
    }

    /// Keeps a value, and returns those for which there is no room any more. One that is larger than all of it is not kept.
    fn insert(&mut self, schema: u64, bytes: usize, value: T) -> Vec<T> {
        let mut removed: Vec<T> = self.remove(schema).into_iter().collect();
        if bytes > MAX_KEPT {
            removed.push(value);
            return removed;
        }
        while self.bytes + bytes > MAX_KEPT {
            let Some((_, oldest)) = self.by_use.first_key_value() else {
                break;
            };
            removed.extend(self.remove(*oldest));
        }
        self.last_use += 1;
        self.bytes += bytes;
        self.by_use.insert(self.last_use, schema);
        let used = self.last_use;
        self.by_schema.insert(schema, Entry { value, bytes, used });
        removed
    }

    fn remove(&mut self, schema: u64) -> Option<T> {
        let entry = self.by_schema.remove(&schema)?;
        self.by_use.remove(&entry.used);
        self.bytes -= entry.bytes;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validators_are_kept_up_to_their_total_size() {
        let mut kept = Kept::default();
        let half = MAX_KEPT / 2;
        assert_eq!(kept.insert(1, half, 'a'), []);
        assert_eq!(kept.insert(2, half, 'b'), []);
        // The other one was used last.
        assert_eq!(kept.get(1), Some('a'));
        assert_eq!(kept.insert(3, 1, 'c'), ['b']);
        assert_eq!(
            (kept.get(1), kept.get(2), kept.get(3)),
            (Some('a'), None, Some('c'))
        );
        assert_eq!(kept.bytes, half + 1);
        assert_eq!(kept.insert(4, MAX_KEPT + 1, 'd'), ['d']);
        assert_eq!(kept.insert(5, MAX_KEPT, 'e'), ['a', 'c']);
        assert_eq!((kept.get(5), kept.bytes), (Some('e'), MAX_KEPT));
        assert_eq!(kept.remove(5), Some('e'));
        assert_eq!((kept.bytes, kept.by_use.len(), kept.by_schema.len()), (0, 0, 0));
    }

    #[test]
    fn second_validator_of_a_schema_replaces_the_first() {
        let mut kept = Kept::default();
        assert_eq!(kept.insert(1, 10, 'a'), []);
        assert_eq!(kept.insert(1, 20, 'b'), ['a']);
        assert_eq!((kept.get(1), kept.bytes, kept.by_use.len()), (Some('b'), 20, 1));
    }

    #[test]
    fn validator_of_a_dropped_schema_is_not_kept() {
        let slot = Slot::new(1);
        let number = slot.schema;
        let build = || jsonschema::validator_for(&serde_json::json!({}));
        assert!(slot.get_or_build(build).is_ok());
        assert!(kept().get(number).is_some());
        drop(slot);
        assert!(kept().get(number).is_none());
    }
}
