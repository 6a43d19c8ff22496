//! Counting of the fuel that a call has used, however it ends.
//!
//! Compiled code keeps the fuel of the running function in a register. It stores it where the host can read it when the
//! function calls another one or returns, and whenever [`FLUSH_INTERVAL`] is used up; not when the guest is preempted by
//! an epoch or traps in the middle of a function. A call that ends there is charged one interval more than is known,
//! because it may have used that much.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use wasmtime::{Store, Trap, UpdateDeadline};

/// Maximum fuel that a guest uses before the host knows of it: about 5 ms of computing, so that the two or three
/// microseconds of each yield are not measurable.
pub(crate) const FLUSH_INTERVAL: u64 = 10_000_000;

/// Fuel of one call.
#[derive(Debug)]
pub(crate) struct FuelCounter {
    /// Fuel of the store at the start.
    limit: u64,
    /// True while the guest has fuel that it has not stored.
    is_unknown: Arc<AtomicBool>,
}

impl FuelCounter {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            is_unknown: Arc::default(),
        }
    }

    /// Gives the store its fuel, and makes its guest yield at each epoch and each interval.
    pub(crate) fn start<T>(&self, store: &mut Store<T>, ticks: u64) -> wasmtime::Result<()> {
        store.set_fuel(self.limit)?;
        store.fuel_async_yield_interval(Some(FLUSH_INTERVAL))?;
        store.set_epoch_deadline(ticks);
        let is_unknown = self.is_unknown.clone();
        store.epoch_deadline_callback(move |_| {
            is_unknown.store(true, Ordering::Relaxed);
            let preempted = Preempted {
                is_unknown: is_unknown.clone(),
                has_yielded: false,
            };
            Ok(UpdateDeadline::YieldCustom(ticks, Box::pin(preempted)))
        });
        Ok(())
    }

    /// Notes the error that ended the guest.
    pub(crate) fn ended(&self, error: &wasmtime::Error) {
        let is_known = match error.downcast_ref::<Trap>() {
            // These are raised after the fuel was stored, and so is every error of a host function.
            Some(Trap::OutOfFuel | Trap::UnreachableCodeReached | Trap::StackOverflow) | None => true,
            Some(_) => false,
        };
        self.is_unknown.store(!is_known, Ordering::Relaxed);
    }

    /// Returns the fuel used, rounded up by at most one interval, and at most the fuel at the start.
    pub(crate) fn used<T>(&self, store: &Store<T>) -> u64 {
        let known = self.limit.saturating_sub(store.get_fuel().unwrap_or(0));
        let unknown = match self.is_unknown.load(Ordering::Relaxed) {
            true => FLUSH_INTERVAL,
            false => 0,
        };
        known.saturating_add(unknown).min(self.limit)
    }
}

/// A guest that was preempted by an epoch. It lets other tasks run once, and then goes on.
struct Preempted {
    is_unknown: Arc<AtomicBool>,
    has_yielded: bool,
}

impl Future for Preempted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_yielded {
            self.is_unknown.store(false, Ordering::Relaxed);
            return Poll::Ready(());
        }
        self.has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
