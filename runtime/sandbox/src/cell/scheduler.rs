//! The processor time of a call, and its turn on the processor.
//!
//! A call that has run longer than a tick is *long*. Long calls take turns on all worker threads of the runtime but one,
//! so that short calls always find a thread, however many long ones there are. A program that wants long calls to use
//! every processor gives its runtime one worker more than there are processors.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;
use toolcell_core::ToolError;

use crate::cell::epoch::TICK;

/// Measures the time that a future spends inside of polls.
#[derive(Debug)]
pub(crate) struct CpuTimer {
    start: Instant,
    /// Nanoseconds of finished polls.
    spent: AtomicU64,
    /// When the running poll began, in nanoseconds since `start`, plus one; 0 outside of polls.
    since: AtomicU64,
}

impl CpuTimer {
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            spent: AtomicU64::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// Time since the start.
    pub(crate) fn wall(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time inside polls, with the running one.
    pub(crate) fn cpu(&self) -> Duration {
        let running = match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => self.now().saturating_sub(since - 1),
        };
        Duration::from_nanos(self.spent.load(Ordering::Relaxed) + running)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn enter(&self) {
        self.since.store(self.now() + 1, Ordering::Relaxed);
    }

    fn leave(&self) {
        let since = self.since.swap(0, Ordering::Relaxed);
        let spent = (self.now() + 1).saturating_sub(since);
        self.spent.fetch_add(spent, Ordering::Relaxed);
    }
}

/// The turns of long calls. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct FairScheduler(Arc<Semaphore>);

impl FairScheduler {
    /// All workers of the runtime that this is called from but one, and at least one.
    pub(crate) fn of_this_runtime() -> Self {
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        Self(Arc::new(Semaphore::new(workers.saturating_sub(1).max(1))))
    }
}

/// A call that is measured, waits for its turn once it is long, and ends in an error where the host panics.
pub(crate) struct Scheduled<F> {
    /// `None` after a panic.
    call: Option<Pin<Box<F>>>,
    meter: Arc<CpuTimer>,
    turns: FairScheduler,
    /// The place in the queue, made when the call becomes long.
    place: Option<PollSemaphore>,
}

impl<F> Scheduled<F> {
    pub(crate) fn new(call: F, meter: Arc<CpuTimer>, turns: FairScheduler) -> Self {
        Self {
            call: Some(Box::pin(call)),
            meter,
            turns,
            place: None,
        }
    }

    /// Waits for a turn. A short call has none and needs none.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.meter.cpu() < TICK {
            return Poll::Ready(None);
        }
        let turns = &self.turns.0;
        let place = self
            .place
            .get_or_insert_with(|| PollSemaphore::new(turns.clone()));
        place.poll_acquire(cx)
    }
}

impl<T, F: Future<Output = Result<T, ToolError>>> Future for Scheduled<F> {
    type Output = Result<T, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // Held until the end of this poll.
        let _turn = ready!(this.poll_turn(cx));
        let Some(call) = &mut this.call else {
            return Poll::Ready(Err(panicked()));
        };
        this.meter.enter();
        // Nothing of the call is used after a panic: its store is dropped here, as after any error.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
        this.meter.leave();
        match polled {
            Ok(poll) => poll,
            Err(_) => {
                this.call = None;
                Poll::Ready(Err(panicked()))
            }
        }
    }
}

/// The panic itself went to the panic hook, where people look for it; a guest learns nothing of it.
fn panicked() -> ToolError {
    ToolError::Crashed {
        cause: "a function of the host failed unexpectedly".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_call_and_nothing_else() {
        let meter = Arc::new(CpuTimer::start());
        let call = async { if true { panic!("planted") } else { Ok(()) } };
        let result = Scheduled::new(call, meter, FairScheduler::of_this_runtime()).await;
        assert_eq!(result, Err(panicked()));
    }

    #[tokio::test]
    async fn only_the_time_inside_polls_is_processor_time() {
        let meter = Arc::new(CpuTimer::start());
        let inner = meter.clone();
        let call = async {
            std::thread::sleep(Duration::from_millis(5));
            tokio::time::sleep(Duration::from_millis(30)).await;
            Ok(inner.cpu())
        };
        let seen_inside = Scheduled::new(call, meter.clone(), FairScheduler::of_this_runtime())
            .await
            .unwrap();
        assert!(seen_inside >= Duration::from_millis(5), "{seen_inside:?}");
        assert!(meter.cpu() >= seen_inside);
        assert!(meter.wall() >= meter.cpu() + Duration::from_millis(25));
    }
}
