//! Memory and tables of one call, summed over all of its instances.
//!
//! The limiter that comes with the engine limits each memory for itself, and a component may have many.

use toolcell_core::{Limit, Limits};
use wasmtime::ResourceLimiter;

use crate::shape::{MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLES};

/// Grants or refuses memory and table elements to one call, and remembers what it refused.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: Account,
    tables: Account,
    /// The last refusal. A guest may live with it; if it traps instead, this is why.
    refused: Option<Limit>,
}

/// A quantity that grows up to a limit.
#[derive(Debug)]
struct Account {
    limit: u64,
    now: u64,
    peak: u64,
    /// What the last request added, to take back if the engine could not provide it.
    last: u64,
}

enum Verdict {
    Granted,
    OverLimit,
    OverItsOwnMaximum,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory: Account::new(limits.memory),
            tables: Account::new(limits.table_elements),
            refused: None,
        }
    }

    /// Largest sum of all memories so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.memory.peak
    }

    /// What was refused last, if anything was.
    pub(crate) fn refused(&self) -> Option<Limit> {
        self.refused
    }
}

impl Account {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            now: 0,
            peak: 0,
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
        self.peak = self.peak.max(sum);
        Verdict::Granted
    }

    fn take_back(&mut self) {
        self.now -= std::mem::take(&mut self.last);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let verdict = self.memory.grow(current, desired, maximum);
        if matches!(verdict, Verdict::OverLimit) {
            self.refused = Some(Limit::Memory(self.memory.limit));
        }
        Ok(matches!(verdict, Verdict::Granted))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.take_back();
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
            self.refused = Some(Limit::TableElements(self.tables.limit));
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

    fn limiter() -> Limiter {
        Limiter::new(&Limits {
            memory: 100,
            table_elements: 10,
            ..Limits::default()
        })
    }

    #[test]
    fn memories_count_together_up_to_the_limit_and_not_beyond() {
        let mut limiter = limiter();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert_eq!(limiter.refused(), None);
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!(limiter.refused(), Some(Limit::Memory(100)));
        assert_eq!(limiter.peak_memory(), 100);
    }

    #[test]
    fn tables_count_together_up_to_the_limit_and_not_beyond() {
        let mut limiter = limiter();
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(10, 11, None).unwrap());
        assert_eq!(limiter.refused(), Some(Limit::TableElements(10)));
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
