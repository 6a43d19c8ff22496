//! Limiter of memories and tables of one call, in total over all of its instances.
//!
//! The limiter of the engine limits each memory separately, and a component may have many.

use toolcell_core::{Limit, Limits};
use wasmtime::ResourceLimiter;

use crate::cell::memory::{MemoryAccount, OutOfMemory};
use crate::load::complexity::{MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLES};

/// Size of one table element in bytes: a host pointer.
const TABLE_ELEMENT: u64 = 8;

/// Grants or refuses memory and table elements to one call.
#[derive(Debug)]
pub(crate) struct Limiter {
    account: MemoryAccount,
    /// Bytes of the last growth of a memory, reverted if the engine cannot provide it.
    last_memory: u64,
    table_elements: u64,
    max_table_elements: u64,
    /// Elements of the last growth of a table.
    last_table: u64,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits, account: MemoryAccount) -> Self {
        Self {
            account,
            last_memory: 0,
            table_elements: 0,
            max_table_elements: limits.table_elements,
            last_table: 0,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.last_memory = 0;
        let added = desired.saturating_sub(current) as u64;
        if maximum.is_some_and(|max| desired > max) && self.account.left() >= added {
            return Ok(false);
        }
        if self.account.grow_guest(added).is_err() {
            return Ok(false);
        }
        self.last_memory = added;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let bytes = std::mem::take(&mut self.last_memory);
        self.account.shrink_guest(bytes);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.last_table = 0;
        let added = desired.saturating_sub(current) as u64;
        let sum = self.table_elements.saturating_add(added);
        if sum > self.max_table_elements {
            let limit = Limit::TableElements(self.max_table_elements);
            self.account.note_refusal(OutOfMemory::Limit(limit));
            return Ok(false);
        }
        if maximum.is_some_and(|max| desired > max)
            || self
                .account
                .grow_guest(added.saturating_mul(TABLE_ELEMENT))
                .is_err()
        {
            return Ok(false);
        }
        self.last_table = added;
        self.table_elements = sum;
        Ok(true)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let elements = std::mem::take(&mut self.last_table);
        self.table_elements -= elements;
        self.account.shrink_guest(elements.saturating_mul(TABLE_ELEMENT));
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
    use crate::cell::memory::MemoryPool;

    fn limiter_with(memory: u64, pool: &MemoryPool) -> Limiter {
        let limits = Limits {
            table_elements: 10,
            ..Limits::default()
        };
        Limiter::new(&limits, MemoryAccount::new(memory, pool.clone()))
    }

    fn limiter(memory: u64) -> Limiter {
        limiter_with(memory, &MemoryPool::new(u64::MAX))
    }

    #[test]
    fn memory_of_all_calls_counts_in_total_and_is_returned() {
        let pool = MemoryPool::new(150);
        let mut first = limiter_with(100, &pool);
        let mut second = limiter_with(100, &pool);
        assert!(first.memory_growing(0, 100, None).unwrap());
        assert!(second.memory_growing(0, 50, None).unwrap());
        assert!(!second.memory_growing(50, 51, None).unwrap());
        assert_eq!(second.account.refused(), Some(OutOfMemory::Pool));
        assert_eq!(second.account.peaks(), (50, 0));
        drop(first);
        assert!(second.memory_growing(50, 100, None).unwrap());
        second.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(limiter_with(100, &pool).memory_growing(0, 100, None).unwrap());
    }

    #[test]
    fn total_of_memories_is_limited() {
        let mut limiter = limiter(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert_eq!(limiter.account.refused(), None);
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!(
            limiter.account.refused(),
            Some(OutOfMemory::Limit(Limit::Memory(100)))
        );
        assert_eq!(limiter.account.peaks(), (100, 0));
    }

    #[test]
    fn total_of_tables_is_limited() {
        let mut limiter = limiter(100);
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(10, 11, None).unwrap());
        assert_eq!(
            limiter.account.refused(),
            Some(OutOfMemory::Limit(Limit::TableElements(10)))
        );
    }

    #[test]
    fn table_elements_count_as_memory() {
        let mut limiter = limiter(10 * TABLE_ELEMENT + 1);
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(limiter.memory_growing(0, 1, None).unwrap());
        assert!(!limiter.memory_growing(1, 2, None).unwrap());
        limiter.table_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(
            limiter
                .memory_growing(1, usize::try_from(10 * TABLE_ELEMENT).unwrap(), None)
                .unwrap()
        );
        assert!(!limiter.table_growing(0, 10, None).unwrap());
        assert!(limiter.table_growing(0, 0, None).unwrap());
    }

    #[test]
    fn memory_that_the_engine_cannot_provide_is_not_counted() {
        let mut limiter = limiter(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(limiter.memory_growing(0, 100, None).unwrap());
    }

    #[test]
    fn memory_grows_no_further_than_its_own_maximum() {
        let mut limiter = limiter(100);
        assert!(limiter.memory_growing(0, 50, Some(50)).unwrap());
        assert!(!limiter.memory_growing(50, 51, Some(50)).unwrap());
        assert_eq!(limiter.account.refused(), None);
    }

    #[test]
    fn table_grows_no_further_than_its_own_maximum() {
        let mut limiter = limiter(1_000);
        assert!(limiter.table_growing(0, 5, Some(5)).unwrap());
        assert!(!limiter.table_growing(5, 6, Some(5)).unwrap());
        assert_eq!(limiter.account.refused(), None);
        // The elements that the engine could not provide are free again, those before them are not.
        assert!(limiter.table_growing(0, 5, None).unwrap());
        limiter.table_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert!(limiter.table_growing(0, 5, None).unwrap());
        assert!(!limiter.table_growing(0, 1, None).unwrap());
    }
}
