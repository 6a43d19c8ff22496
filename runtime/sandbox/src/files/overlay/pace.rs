//! Cancellation of long host operations when their call ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancels work of a call when the call ends. Clones belong to the same work.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Pace(Arc<AtomicBool>);

/// Cancels the work when it is dropped.
#[derive(Debug)]
pub(in super::super) struct StopWhenDropped(Pace);

impl Pace {
    /// Returns an error if the work was cancelled; called before each piece of it.
    ///
    /// # Errors
    /// If the call has ended.
    pub(in super::super) fn go_on(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("the call has ended"));
        }
        Ok(())
    }

    pub(in super::super) fn stop_when_dropped(&self) -> StopWhenDropped {
        StopWhenDropped(self.clone())
    }
}

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
