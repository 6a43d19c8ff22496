//! Memory and tables of one call, summed over all of its instances, and the memory of all calls together.
//!
//! The limiter that comes with the engine limits each memory for itself, and a component may have many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use toolcell_core::{Limit, Limits, ToolError};
use wasmtime::ResourceLimiter;

use crate::shape::{MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLES};

/// Grants or refuses memory and table elements to one call, and remembers what it refused.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: Account,
    tables: Account,
    budget: Share,
    peak_memory: u64,
    /// The last refusal. A guest may live with it; if it traps instead, this is why.
    refused: Option<Refusal>,
}

/// The linear memory of all calls together, in bytes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Pot>);

#[derive(Debug)]
struct Pot {
    limit: u64,
    taken: AtomicU64,
}

/// What one call has taken from the budget; given back when it is dropped.
#[derive(Debug)]
struct Share {
    budget: Budget,
    taken: u64,
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The call has reached a limit of its own.
    Limit(Limit),
    /// All calls together have.
    Budget,
}

/// A quantity that grows up to a limit.
#[derive(Debug)]
struct Account {
    limit: u64,
    now: u64,
    /// What the last request added, to take back if the engine could not provide it.
    last: u64,
}

enum Verdict {
    Granted,
    OverLimit,
    OverItsOwnMaximum,
}

impl Refusal {
    /// The error of a call that ended for this reason.
    pub(crate) fn into_error(self) -> ToolError {
        match self {
            Self::Limit(limit) => ToolError::Limit { limit },
            Self::Budget => ToolError::Unavailable {
                message: "the calls that run at the moment leave no memory for it".into(),
            },
        }
    }
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Pot {
            limit,
            taken: AtomicU64::new(0),
        }))
    }
}

impl Share {
    fn take(&mut self, bytes: u64) -> bool {
        let pot = &self.budget.0;
        let sum = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= pot.limit);
        let granted = pot
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum)
            .is_ok();
        if granted {
            self.taken += bytes;
        }
        granted
    }

    fn give_back(&mut self, bytes: u64) {
        self.taken -= bytes;
        self.budget.0.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

impl Limiter {
    pub(crate) fn new(limits: &Limits, budget: Budget) -> Self {
        Self {
            memory: Account::new(limits.memory),
            tables: Account::new(limits.table_elements),
            budget: Share { budget, taken: 0 },
            peak_memory: 0,
            refused: None,
        }
    }

    /// Largest sum of all memories so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.peak_memory
    }

    /// What was refused last, if anything was.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.refused
    }
}

impl Account {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            now: 0,
            last: 0,
        }
    }

    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Verdict {
        self.last = 0;
        let added = desired.saturating_sub(current) as u64;
        let sum = self.now.saturating_add(added);
        if sum > self.limit {
            return Verdict::OverLimit;
        }
        if maximum.is_some_and(|max| desired > max) {
            return Verdict::OverItsOwnMaximum;
        }
        self.last = added;
        self.now = sum;
        Verdict::Granted
    }

    /// Undoes the last growth, and says how much it was.
    fn take_back(&mut self) -> u64 {
        let last = std::mem::take(&mut self.last);
        self.now -= last;
        last
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        match self.memory.grow(current, desired, maximum) {
            Verdict::Granted if self.budget.take(self.memory.last) => {
                self.peak_memory = self.peak_memory.max(self.memory.now);
                Ok(true)
            }
            Verdict::Granted => {
                self.memory.take_back();
                self.refused = Some(Refusal::Budget);
                Ok(false)
            }
            Verdict::OverLimit => {
                self.refused = Some(Refusal::Limit(Limit::Memory(self.memory.limit)));
                Ok(false)
            }
            Verdict::OverItsOwnMaximum => Ok(false),
        }
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let bytes = self.memory.take_back();
        self.budget.give_back(bytes);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let verdict = self.tables.grow(current, desired, maximum);
        if matches!(verdict, Verdict::OverLimit) {
            self.refused = Some(Refusal::Limit(Limit::TableElements(self.tables.limit)));
        }
        Ok(matches!(verdict, Verdict::Granted))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.tables.take_back();
        Ok(())
    }

    fn instances(&self) -> usize {
        MAX_CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        MAX_TABLES as usize
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter_with(budget: &Budget) -> Limiter {
        let limits = Limits {
            memory: 100,
            table_elements: 10,
            ..Limits::default()
        };
        Limiter::new(&limits, budget.clone())
    }

    fn limiter() -> Limiter {
        limiter_with(&Budget::new(u64::MAX))
    }

    #[test]
    fn the_memory_of_all_calls_counts_together_and_is_given_back() {
        let budget = Budget::new(150);
        let mut first = limiter_with(&budget);
        let mut second = limiter_with(&budget);
        assert!(first.memory_growing(0, 100, None).unwrap());
        assert!(second.memory_growing(0, 50, None).unwrap());
        assert!(!second.memory_growing(50, 51, None).unwrap());
        assert_eq!(second.refused(), Some(Refusal::Budget));
        assert_eq!(second.peak_memory(), 50);
        drop(first);
        assert!(second.memory_growing(50, 100, None).unwrap());
        second.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(limiter_with(&budget).memory_growing(0, 100, None).unwrap());
    }

    #[test]
    fn memories_count_together_up_to_the_limit_and_not_beyond() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert_eq!(limiter.refused(), None);
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!(limiter.refused(), Some(Refusal::Limit(Limit::Memory(100))));
        assert_eq!(limiter.peak_memory(), 100);
    }

    #[test]
    fn tables_count_together_up_to_the_limit_and_not_beyond() {
        let mut limiter = limiter();
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(10, 11, None).unwrap());
        assert_eq!(limiter.refused(), Some(Refusal::Limit(Limit::TableElements(10))));
    }

    #[test]
    fn memory_that_the_engine_could_not_provide_is_not_counted() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(limiter.memory_growing(0, 100, None).unwrap());
    }

    #[test]
    fn a_memory_grows_no_further_than_its_own_maximum() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 50, Some(50)).unwrap());
        assert!(!limiter.memory_growing(50, 51, Some(50)).unwrap());
        assert_eq!(limiter.refused(), None);
    }
}
