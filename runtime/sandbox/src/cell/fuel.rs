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

use crate::cell::state::CellState;

/// Epoch ticks between two yields of a guest.
const TICKS: u64 = 1;

/// Maximum fuel that a guest uses before the host knows of it: about 5 ms of computing, so that the two or three
/// microseconds of each yield are not measurable.
pub(crate) const FLUSH_INTERVAL: u64 = 10_000_000;

/// True while the guest has fuel that it has not stored. Part of the state of its store, and created when an epoch ends, which
/// most calls are too short for.
pub(crate) type UnknownFuel = Option<Arc<AtomicBool>>;

/// Fuel of one call.
#[derive(Debug)]
pub(crate) struct FuelCounter {
    /// Fuel of the store at the start.
    limit: u64,
    /// True if fuel was unknown when an error ended the guest; `None` without an error.
    at_end: Option<bool>,
}

impl FuelCounter {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, at_end: None }
    }

    /// Gives the store its fuel, and makes its guest yield at each epoch and each interval.
    pub(crate) fn start(&self, store: &mut Store<CellState>) -> wasmtime::Result<()> {
        store.set_fuel(self.limit)?;
        store.fuel_async_yield_interval(Some(FLUSH_INTERVAL))?;
        store.set_epoch_deadline(TICKS);
        store.epoch_deadline_callback(|mut store| {
            let is_unknown = store.data_mut().unknown_fuel.get_or_insert_default();
            is_unknown.store(true, Ordering::Relaxed);
            let preempted = Preempted {
                is_unknown: is_unknown.clone(),
                has_yielded: false,
            };
            Ok(UpdateDeadline::YieldCustom(TICKS, Box::pin(preempted)))
        });
        Ok(())
    }

    /// Notes the error that ended the guest.
    pub(crate) fn ended(&mut self, error: &wasmtime::Error) {
        let is_known = match error.downcast_ref::<Trap>() {
            // These are raised after the fuel was stored, and so is every error of a host function.
            Some(Trap::OutOfFuel | Trap::UnreachableCodeReached | Trap::StackOverflow) | None => true,
            Some(_) => false,
        };
        self.at_end = Some(!is_known);
    }

    /// Returns the fuel used, rounded up by at most one interval, and at most the fuel at the start.
    pub(crate) fn used(&self, store: &Store<CellState>) -> u64 {
        let known = self.limit.saturating_sub(store.get_fuel().unwrap_or(0));
        let is_preempted =
            || (store.data().unknown_fuel.as_ref()).is_some_and(|it| it.load(Ordering::Relaxed));
        let unknown = match self.at_end.unwrap_or_else(is_preempted) {
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
