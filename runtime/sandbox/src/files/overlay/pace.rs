//! Work of the host that is as long as what it works on, and ends with the call or the command that wants it.

use std::io;

use tokio_util::sync::{CancellationToken, DropGuard};

/// Cancels work of a call when the call ends. Clones belong to the same work.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Pace(CancellationToken);

/// Error of work that ended because its caller no longer waits.
#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
struct Cancelled;

impl Pace {
    /// The pace of work that a command cancels.
    pub(super) fn of(cancellation: &CancellationToken) -> Self {
        Self(cancellation.clone())
    }

    /// Returns an error if the work was cancelled; called before each piece of it.
    ///
    /// # Errors
    /// If the call has ended.
    pub(in super::super) fn go_on(&self) -> io::Result<()> {
        #[cfg(test)]
        if !tests::goes_on() {
            return Err(io::Error::other(Cancelled));
        }
        if self.0.is_cancelled() {
            return Err(io::Error::other(Cancelled));
        }
        Ok(())
    }

    pub(in super::super) fn stop_when_dropped(&self) -> DropGuard {
        self.0.clone().drop_guard()
    }
}

/// Returns true if work failed because it was cancelled.
pub(super) fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Cancelled>())
}

#[cfg(test)]
pub(in super::super) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Pieces of work that go on; unlimited where it is `None`.
        static PIECES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Does some work of this thread that is cancelled after so many pieces, and says whether all of them were used.
    pub(in crate::files) fn cancelled_after<T>(pieces: usize, work: impl FnOnce() -> T) -> (T, bool) {
        PIECES.set(Some(pieces));
        let done = work();
        let left = PIECES.take();
        (done, left == Some(0))
    }

    pub(super) fn goes_on() -> bool {
        let left = PIECES.get();
        let Some(left) = left else {
            return true;
        };
        PIECES.set(Some(left.saturating_sub(1)));
        left > 0
    }
}
