//! Work of the host that is as long as what it works on, and ends with the call that wants it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends work that was begun for a call when the call is over. Clones belong to the same work.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Pace(Arc<AtomicBool>);

/// Ends the work when it is dropped.
#[derive(Debug)]
pub(in super::super) struct StopWhenDropped(Pace);

impl Pace {
    /// Whether the work goes on; asked before each piece of it.
    ///
    /// # Errors
    /// When nobody waits for it any more.
    pub(in super::super) fn go_on(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("the call is over"));
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
