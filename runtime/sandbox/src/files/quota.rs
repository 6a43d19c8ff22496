//! Write quota of one call.

use std::sync::atomic::{AtomicU64, Ordering};

use toolcell_core::policy::Limits;

use crate::cell::receipt::ReceiptRecorder;

/// Bytes and files that a call may still write and create.
///
/// Bytes are counted as they are written, also when they replace others; writing beyond the end of a file, or extending
/// it, counts all bytes by which the file grows. Deleting releases nothing: a call that writes and deletes for ever
/// wears out a disk, too.
#[derive(Debug)]
pub(super) struct Quota {
    bytes: Counter,
    files: Counter,
    recorder: ReceiptRecorder,
}

#[derive(Debug)]
struct Counter {
    limit: u64,
    left: AtomicU64,
}

/// Error of an exhausted quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the quota of the call is exhausted")]
pub(super) struct QuotaExceeded;

impl Quota {
    pub(super) fn new(limits: &Limits, recorder: ReceiptRecorder) -> Self {
        Self {
            bytes: Counter::new(limits.file_bytes),
            files: Counter::new(limits.file_count),
            recorder,
        }
    }

    /// Takes bytes, all or none.
    pub(super) fn take_bytes(&self, bytes: u64) -> Result<(), QuotaExceeded> {
        self.take("file_bytes", &self.bytes, bytes)
    }

    /// Takes one file or directory.
    pub(super) fn take_file(&self) -> Result<(), QuotaExceeded> {
        self.take("file_count", &self.files, 1)
    }

    fn take(&self, name: &str, counter: &Counter, n: u64) -> Result<(), QuotaExceeded> {
        counter.take(n).map_err(|left| {
            let needed = (counter.limit - left).saturating_add(n);
            self.recorder.too_much(name, counter.limit, needed);
            QuotaExceeded
        })
    }

    /// Returns the unit of a file that was not created.
    pub(super) fn return_file(&self) {
        self.files.left.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counter {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            left: AtomicU64::new(limit),
        }
    }

    /// Takes `n` units, or returns how many are left.
    fn take(&self, n: u64) -> Result<(), u64> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(n))
            .map(drop)
    }
}

/// Returns the cost in bytes of writing `length` bytes at `offset` in a file of `size` bytes.
pub(super) fn cost(size: u64, offset: u64, length: u64) -> u64 {
    length.max(offset.saturating_add(length).saturating_sub(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_is_taken_exactly_to_its_limit() {
        let limits = Limits {
            file_bytes: 10,
            file_count: 1,
            ..Limits::default()
        };
        let recorder = ReceiptRecorder::default();
        let quota = Quota::new(&limits, recorder.clone());
        assert_eq!(quota.take_bytes(6), Ok(()));
        assert_eq!(quota.take_bytes(5), Err(QuotaExceeded));
        assert_eq!(quota.take_bytes(4), Ok(()));
        assert_eq!(quota.take_file(), Ok(()));
        assert_eq!(quota.take_file(), Err(QuotaExceeded));
        quota.return_file();
        assert_eq!(quota.take_file(), Ok(()));
        let needed: Vec<u64> = recorder
            .lock()
            .denials
            .iter()
            .map(|denial| denial.needed)
            .collect();
        assert_eq!(needed, [6 + 5, 2]);
    }

    #[test]
    fn hole_costs_as_much_as_its_content() {
        assert_eq!(cost(100, 0, 10), 10);
        assert_eq!(cost(100, 95, 10), 10);
        assert_eq!(cost(0, 1_000_000, 1), 1_000_001);
        assert_eq!(cost(0, u64::MAX, 1), u64::MAX);
    }
}
