//! How much one call may write.

use std::sync::atomic::{AtomicU64, Ordering};

use toolcell_core::policy::Limits;

use crate::cell::receipt::ReceiptRecorder;

/// Bytes and files that a call may still write and make.
///
/// Bytes are counted as they are written, also when they replace others; a write beyond the end of a file, and making
/// a file longer, count for all the bytes by which the file grows. Deleting gives nothing back: a call that writes and
/// deletes for ever wears out a disk, too.
#[derive(Debug)]
pub(super) struct Quota {
    bytes: Counter,
    files: Counter,
    ledger: ReceiptRecorder,
}

#[derive(Debug)]
struct Counter {
    limit: u64,
    left: AtomicU64,
}

/// A limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the quota of the call is used up")]
pub(super) struct QuotaExceeded;

impl Quota {
    pub(super) fn new(limits: &Limits, ledger: ReceiptRecorder) -> Self {
        Self {
            bytes: Counter::new(limits.file_bytes),
            files: Counter::new(limits.file_count),
            ledger,
        }
    }

    /// Takes bytes, all or none.
    pub(super) fn take_bytes(&self, bytes: u64) -> Result<(), QuotaExceeded> {
        self.bytes.take(bytes).inspect_err(|_| {
            let limit = self.bytes.limit;
            let what = format!("more than {limit} bytes written in one call");
            self.ledger.denial("file", what, None);
        })
    }

    /// Takes one file or directory.
    pub(super) fn take_file(&self) -> Result<(), QuotaExceeded> {
        self.files.take(1).inspect_err(|_| {
            let limit = self.files.limit;
            let what = format!("more than {limit} files made in one call");
            self.ledger.denial("file", what, None);
        })
    }

    /// Gives back a file that was taken and then not made.
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

    fn take(&self, n: u64) -> Result<(), QuotaExceeded> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(n))
            .map(drop)
            .map_err(|_| QuotaExceeded)
    }
}

/// Bytes that writing `length` bytes at `offset` costs in a file of `size` bytes.
pub(super) fn cost(size: u64, offset: u64, length: u64) -> u64 {
    length.max(offset.saturating_add(length).saturating_sub(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_taken_to_its_last_unit_and_not_beyond() {
        let limits = Limits {
            file_bytes: 10,
            file_count: 1,
            ..Limits::default()
        };
        let ledger = ReceiptRecorder::default();
        let quota = Quota::new(&limits, ledger.clone());
        assert_eq!(quota.take_bytes(6), Ok(()));
        assert_eq!(quota.take_bytes(5), Err(QuotaExceeded));
        assert_eq!(quota.take_bytes(4), Ok(()));
        assert_eq!(quota.take_file(), Ok(()));
        assert_eq!(quota.take_file(), Err(QuotaExceeded));
        quota.return_file();
        assert_eq!(quota.take_file(), Ok(()));
        assert_eq!(ledger.lock().denials.len(), 2);
    }

    #[test]
    fn a_hole_costs_as_much_as_what_fills_it() {
        assert_eq!(cost(100, 0, 10), 10);
        assert_eq!(cost(100, 95, 10), 10);
        assert_eq!(cost(0, 1_000_000, 1), 1_000_001);
        assert_eq!(cost(0, u64::MAX, 1), u64::MAX);
    }
}
