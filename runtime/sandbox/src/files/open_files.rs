//! Number of open files of a call, and of all calls.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cell::receipt::ReceiptRecorder;

/// Maximum number of open files of a call, including directories being listed.
pub(super) const MAX_OPEN: usize = 128;

/// Number of open files of all calls. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FilePool {
    limit: usize,
    free: Arc<Semaphore>,
}

/// Open files of one call.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// One clone for each open file.
    of_call: Arc<()>,
    pool: FilePool,
}

/// One open file, counted until this is dropped.
#[derive(Debug)]
pub(super) struct OpenFile {
    _of_call: Arc<()>,
    _of_all: OwnedSemaphorePermit,
}

/// Error of a call that can open no further file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooManyFiles {
    #[error("the call has {MAX_OPEN} open files")]
    OfCall,
    #[error("all {0} open files of the running calls are in use")]
    OfAll(usize),
}

impl FilePool {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            limit,
            free: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Counts an open file, or a granted directory, which a call that uses one holds open until its end.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, TooManyFiles> {
        let taken = self.free.clone().try_acquire_owned();
        taken.map_err(|_| TooManyFiles::OfAll(self.limit))
    }
}

impl OpenFiles {
    pub(super) fn new(pool: FilePool) -> Self {
        Self {
            of_call: Arc::default(),
            pool,
        }
    }

    pub(super) fn pool(&self) -> &FilePool {
        &self.pool
    }

    /// Counts another open file. One that the other calls leave no room for is noted, because the limit of the call
    /// does not explain it.
    pub(super) fn open(&self, recorder: &ReceiptRecorder) -> Result<Arc<OpenFile>, TooManyFiles> {
        let of_call = self.of_call.clone();
        // This clone and the one in `self` exist in addition to those of the open files.
        if Arc::strong_count(&of_call) > MAX_OPEN + 1 {
            return Err(TooManyFiles::OfCall);
        }
        let of_all = self
            .pool
            .take()
            .inspect_err(|full| recorder.denial("file", full.to_string(), None))?;
        Ok(Arc::new(OpenFile {
            _of_call: of_call,
            _of_all: of_all,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_shared_out_among_all_calls() {
        let pool = FilePool::new(3);
        let (recorder, other) = (ReceiptRecorder::default(), ReceiptRecorder::default());
        let (one, two) = (OpenFiles::new(pool.clone()), OpenFiles::new(pool.clone()));
        let root = pool.take().unwrap();
        let first = one.open(&recorder).unwrap();
        let second = two.open(&other).unwrap();
        assert_eq!(two.open(&other).err(), Some(TooManyFiles::OfAll(3)));
        assert_eq!(pool.take().err(), Some(TooManyFiles::OfAll(3)));
        let denied = other.lock().denials.clone();
        assert_eq!(
            denied[0].target,
            "all 3 open files of the running calls are in use"
        );
        assert!(recorder.lock().denials.is_empty());
        drop((first, root));
        let third = two.open(&other).unwrap();
        let clone = third.clone();
        let _last = one.open(&recorder).unwrap();
        // A stream holds the file open, and counts no second one.
        drop(third);
        assert!(one.open(&recorder).is_err());
        drop(clone);
        assert!(one.open(&recorder).is_ok());
        drop(second);
    }
}
