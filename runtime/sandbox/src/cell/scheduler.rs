//! CPU time of calls, and fair scheduling of long ones.
//!
//! A call that has run longer than a tick is *long*. Long calls share all worker threads of the runtime but one, so
//! that short calls always find a thread, however many long ones there are. A program that wants long calls to use
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

/// Measures the time that a future spends in polls.
#[derive(Debug)]
pub(crate) struct CpuTimer {
    start: Instant,
    /// Nanoseconds of finished polls.
    spent: AtomicU64,
    /// Start of the running poll, in nanoseconds since `start`, plus one; 0 outside of polls.
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

    /// Returns the time since the start.
    pub(crate) fn wall(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the time spent in polls, including the running one.
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

/// Scheduler of long calls. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FairScheduler(Arc<Semaphore>);

impl FairScheduler {
    /// Creates a scheduler for all workers of the current runtime but one, and at least one.
    pub(crate) fn of_this_runtime() -> Self {
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        Self(Arc::new(Semaphore::new(workers.saturating_sub(1).max(1))))
    }
}

/// A measured call, which waits for a permit once it is long, and which ends in an error if the host panics.
pub(crate) struct Scheduled<'a, F> {
    /// `None` after a panic.
    call: Pin<&'a mut Option<F>>,
    meter: &'a CpuTimer,
    scheduler: &'a FairScheduler,
    /// Position in the queue, created when the call becomes long.
    place: Option<PollSemaphore>,
}

impl<'a, F> Scheduled<'a, F> {
    pub(crate) fn new(
        call: Pin<&'a mut Option<F>>,
        meter: &'a CpuTimer,
        scheduler: &'a FairScheduler,
    ) -> Self {
        Self {
            call,
            meter,
            scheduler,
            place: None,
        }
    }

    /// Waits for a permit. A short call needs none.
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.meter.cpu() < TICK {
            return Poll::Ready(None);
        }
        let scheduler = &self.scheduler.0;
        let place = self
            .place
            .get_or_insert_with(|| PollSemaphore::new(scheduler.clone()));
        place.poll_acquire(cx)
    }
}

impl<T, F: Future<Output = Result<T, ToolError>>> Future for Scheduled<'_, F> {
    type Output = Result<T, ToolError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // Held until the end of this poll.
        let _permit = ready!(this.poll_permit(cx));
        let Some(call) = this.call.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(panicked()));
        };
        this.meter.enter();
        // No part of the call is used after a panic: its store is dropped here, as after any error.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| call.poll(cx)));
        this.meter.leave();
        match polled {
            Ok(poll) => poll,
            Err(_) => {
                this.call.set(None);
                Poll::Ready(Err(panicked()))
            }
        }
    }
}

/// Returns the error of a panicked call. The panic message goes to the panic hook; the guest never sees it.
fn panicked() -> ToolError {
    ToolError::crashed("a host function failed unexpectedly")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[tokio::test]
    async fn panic_ends_only_its_own_call() {
        let meter = CpuTimer::start();
        let call = pin!(Some(async { if true { panic!("planted") } else { Ok(()) } }));
        let result = Scheduled::new(call, &meter, &FairScheduler::of_this_runtime()).await;
        assert_eq!(result, Err(panicked()));
    }

    #[tokio::test]
    async fn only_time_in_polls_is_cpu_time() {
        let meter = CpuTimer::start();
        let inner = &meter;
        let call = pin!(Some(async {
            std::thread::sleep(Duration::from_millis(5));
            tokio::time::sleep(Duration::from_millis(30)).await;
            // That of earlier polls and of the running one.
            let before = inner.cpu();
            std::thread::sleep(Duration::from_millis(5));
            assert!(inner.cpu() >= before + Duration::from_millis(5));
            Ok(inner.cpu())
        }));
        let seen_inside = Scheduled::new(call, &meter, &FairScheduler::of_this_runtime())
            .await
            .unwrap();
        assert!(seen_inside >= Duration::from_millis(10), "{seen_inside:?}");
        assert!(meter.cpu() >= seen_inside);
        let outside = meter.cpu();
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(meter.cpu(), outside);
        assert!(meter.wall() >= meter.cpu() + Duration::from_millis(25));
    }

    #[test]
    fn call_that_has_run_for_a_tick_waits_for_a_permit() {
        let tick = u64::try_from(TICK.as_nanos()).unwrap();
        for (spent, permits, runs) in [(tick - 1, 0, true), (tick, 0, false), (tick, 1, true)] {
            let scheduler = FairScheduler(Arc::new(Semaphore::new(permits)));
            let meter = CpuTimer::start();
            meter.spent.store(spent, Ordering::Relaxed);
            let call = pin!(Some(std::future::ready(Ok(()))));
            let mut call = pin!(Scheduled::new(call, &meter, &scheduler));
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert_eq!(call.as_mut().poll(&mut cx).is_ready(), runs, "{spent} {permits}");
            // A permit is held only during the poll.
            assert_eq!(scheduler.0.available_permits(), permits);
            if !runs {
                scheduler.0.add_permits(1);
                assert!(call.as_mut().poll(&mut cx).is_ready());
            }
        }
    }
}
