//! Accounting of the memory of each call, in guest and host, and of all calls in total.
//!
//! One [`MemoryAccount`] per call adds up three parts, and their sum never exceeds [`Limits::memory`]:
//!
//! | part | charged | released |
//! |---|---|---|
//! | guest: linear memories and tables | before they grow (`limiter`) | with the cell |
//! | reserved: host allocations for the guest | before the allocation ([`Reservation`]) | when the reservation is dropped |
//! | objects: resources in the cell's table | when the guest enters the host again (`objects`) | likewise |
//!
//! [`Limits::memory`]: toolcell_core::Limits::memory

pub(crate) mod limiter;
pub(crate) mod objects;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcell_core::{Limit, ToolError};

/// Memory of all calls in total, in bytes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    limit: u64,
    taken: AtomicU64,
}

/// Memory of one call, in bytes. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct MemoryAccount(Arc<Mutex<Usage>>);

#[derive(Debug)]
struct Usage {
    pool: MemoryPool,
    limit: u64,
    guest: u64,
    reserved: u64,
    objects: u64,
    /// Bytes that are kept free for the host ([`Aside`]); they are in use by nothing yet.
    aside: u64,
    peak: u64,
    peak_host: u64,
    /// Largest total that the limit of the call refused.
    needed: u64,
    /// Last refusal. A guest may tolerate it; if it traps instead, this is the reason.
    refused: Option<OutOfMemory>,
    /// True if the objects in the table exceed the limit of the call.
    overdrawn: bool,
}

/// Bytes charged to a call until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    account: MemoryAccount,
    bytes: u64,
}

/// Bytes that are kept free until this is dropped.
#[derive(Debug)]
pub(crate) struct Aside {
    account: MemoryAccount,
    bytes: u64,
}

impl Drop for Aside {
    fn drop(&mut self) {
        let mut usage = self.account.lock();
        usage.aside -= self.bytes;
        usage.pool.give_back(self.bytes);
    }
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call has no memory left for it")]
pub(crate) enum OutOfMemory {
    /// The call has reached one of its limits.
    Limit(Limit),
    /// The pool of all calls is exhausted.
    Pool,
}

impl OutOfMemory {
    /// Returns the error of a call that ended for this reason.
    pub(crate) fn into_error(self) -> ToolError {
        match self {
            Self::Limit(limit) => ToolError::Limit { limit },
            Self::Pool => ToolError::Unavailable {
                message: "the running calls leave no memory for it".into(),
            },
        }
    }
}

impl MemoryPool {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Pool {
            limit,
            taken: AtomicU64::new(0),
        }))
    }

    fn take(&self, bytes: u64) -> bool {
        // All threads write to this counter: it is left alone where nothing changes, as in most host calls.
        if bytes == 0 {
            return true;
        }
        let sum = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.0.limit);
        let relaxed = Ordering::Relaxed;
        self.0.taken.fetch_update(relaxed, relaxed, sum).is_ok()
    }

    /// Takes bytes that are already in use; returns `false` if the pool is exceeded.
    fn overdraw(&self, bytes: u64) -> bool {
        let before = self.0.taken.fetch_add(bytes, Ordering::Relaxed);
        before.saturating_add(bytes) <= self.0.limit
    }

    fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.0.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Usage {
    fn sum(&self) -> u64 {
        self.guest.saturating_add(self.host()).saturating_add(self.aside)
    }

    fn host(&self) -> u64 {
        self.reserved.saturating_add(self.objects)
    }

    /// Takes bytes from the limit of the call and from the pool.
    fn take(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        let total = self.sum().saturating_add(bytes);
        let refused = if total > self.limit {
            self.needed = self.needed.max(total);
            OutOfMemory::Limit(Limit::Memory(self.limit))
        } else if self.pool.take(bytes) {
            return Ok(());
        } else {
            OutOfMemory::Pool
        };
        self.refused = Some(refused);
        Err(refused)
    }

    fn note_peak(&mut self) {
        self.peak = self.peak.max(self.sum() - self.aside);
        self.peak_host = self.peak_host.max(self.host());
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.pool.give_back(self.sum());
    }
}

impl MemoryAccount {
    /// Creates an account limited to `limit` bytes and by the pool.
    pub(crate) fn new(limit: u64, pool: MemoryPool) -> Self {
        Self(Arc::new(Mutex::new(Usage {
            pool,
            limit,
            guest: 0,
            reserved: 0,
            objects: 0,
            aside: 0,
            peak: 0,
            peak_host: 0,
            needed: 0,
            refused: None,
            overdrawn: false,
        })))
    }

    /// Creates an account without a limit, for tests of other modules.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX, MemoryPool::new(u64::MAX))
    }

    /// Charges bytes that the host needs for the whole call.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let mut usage = self.lock();
        usage.take(bytes)?;
        usage.reserved += bytes;
        usage.note_peak();
        Ok(())
    }

    /// Charges bytes that the host is about to allocate.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation, OutOfMemory> {
        let mut reservation = self.empty();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Keeps bytes free for what the engine may allocate, without counting them as used. `None` if the call or the pool does
    /// not have them; that is no refusal.
    pub(crate) fn set_aside(&self, bytes: u64) -> Option<Aside> {
        let mut usage = self.lock();
        if usage.sum().saturating_add(bytes) > usage.limit || !usage.pool.take(bytes) {
            return None;
        }
        usage.aside += bytes;
        Some(Aside {
            account: self.clone(),
            bytes,
        })
    }

    /// Records that the call needs more than its limit for something that this account does not count, and returns the
    /// refusal.
    pub(crate) fn refuse(&self) -> OutOfMemory {
        let mut usage = self.lock();
        let refused = OutOfMemory::Limit(Limit::Memory(usage.limit));
        usage.refused = Some(refused);
        refused
    }

    /// Creates an empty reservation that can grow.
    pub(crate) fn empty(&self) -> Reservation {
        Reservation {
            account: self.clone(),
            bytes: 0,
        }
    }

    /// Charges bytes by which a memory or a table is about to grow.
    pub(crate) fn grow_guest(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let mut usage = self.lock();
        usage.take(bytes)?;
        usage.guest += bytes;
        usage.note_peak();
        Ok(())
    }

    /// Releases bytes of a growth that failed.
    pub(crate) fn shrink_guest(&self, bytes: u64) {
        let mut usage = self.lock();
        usage.guest -= bytes;
        usage.pool.give_back(bytes);
    }

    /// Sets the total size of the objects in the cell's table. They exist already and are charged even if no memory is
    /// left; then this returns `false`, and the guest must not create more.
    pub(crate) fn set_objects(&self, bytes: u64) -> bool {
        let mut usage = self.lock();
        let before = std::mem::replace(&mut usage.objects, bytes);
        let Some(more) = bytes.checked_sub(before).filter(|more| *more > 0) else {
            usage.pool.give_back(before - bytes);
            return !usage.overdrawn;
        };
        let in_pool = usage.pool.overdraw(more);
        let refused = if usage.sum() > usage.limit {
            usage.needed = usage.needed.max(usage.sum());
            OutOfMemory::Limit(Limit::Memory(usage.limit))
        } else if in_pool {
            usage.note_peak();
            return !usage.overdrawn;
        } else {
            OutOfMemory::Pool
        };
        usage.refused = Some(refused);
        usage.overdrawn = true;
        false
    }

    /// Returns the bytes that the call can still use.
    pub(crate) fn left(&self) -> u64 {
        let usage = self.lock();
        usage.limit.saturating_sub(usage.sum())
    }

    /// Returns the peak of the total, and the peak of the two parts in the host.
    pub(crate) fn peaks(&self) -> (u64, u64) {
        let usage = self.lock();
        (usage.peak, usage.peak_host)
    }

    /// Returns the largest total that the limit of the call refused, or 0.
    pub(crate) fn needed(&self) -> u64 {
        self.lock().needed
    }

    /// Records a refusal of something that this account does not count.
    pub(crate) fn note_refusal(&self, refusal: OutOfMemory) {
        self.lock().refused = Some(refusal);
    }

    /// Returns the last refusal, if any.
    pub(crate) fn refused(&self) -> Option<OutOfMemory> {
        self.lock().refused
    }

    /// Returns the reason why the call must end, if its objects exceed the limit.
    pub(crate) fn overdrawn(&self) -> Option<OutOfMemory> {
        let usage = self.lock();
        usage.refused.filter(|_| usage.overdrawn)
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Charges more bytes, all or none.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.account.charge(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes by which it can still grow, limited by the pool.
    pub(crate) fn left(&self) -> u64 {
        let usage = self.account.lock();
        usage.limit.saturating_sub(usage.sum())
    }

    /// Releases all bytes; the reservation can grow again.
    pub(crate) fn clear(&mut self) {
        self.shrink(self.bytes);
    }

    /// Releases bytes, at most those that it holds.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if bytes > 0 {
            let mut usage = self.account.lock();
            usage.reserved -= bytes;
            usage.pool.give_back(bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(limit: u64, pool: &MemoryPool) -> MemoryAccount {
        MemoryAccount::new(limit, pool.clone())
    }

    fn taken(pool: &MemoryPool) -> u64 {
        pool.0.taken.load(Ordering::Relaxed)
    }

    #[test]
    fn guest_and_host_memory_share_one_limit() {
        let pool = MemoryPool::new(u64::MAX);
        let account = account(100, &pool);
        account.grow_guest(40).unwrap();
        let held = account.reserve(30).unwrap();
        assert!(account.set_objects(30));
        assert_eq!(account.left(), 0);
        let limit = OutOfMemory::Limit(Limit::Memory(100));
        assert_eq!(account.grow_guest(1), Err(limit));
        assert_eq!(account.reserve(1).unwrap_err(), limit);
        assert_eq!((account.refused(), account.overdrawn()), (Some(limit), None));
        assert_eq!(account.needed(), 101);
        drop(held);
        account.grow_guest(30).unwrap();
        assert_eq!(account.peaks(), (100, 60));
        drop(account);
        assert_eq!(taken(&pool), 0);
    }

    #[test]
    fn bytes_set_aside_are_free_and_not_used() {
        let pool = MemoryPool::new(150);
        let account = account(100, &pool);
        account.grow_guest(40).unwrap();
        assert!(account.set_aside(61).is_none());
        let aside = account.set_aside(60).unwrap();
        assert_eq!((account.left(), account.peaks()), (0, (40, 0)));
        assert!(account.reserve(1).is_err());
        drop(aside);
        drop(account.reserve(60).unwrap());
        assert_eq!(account.peaks(), (100, 60));
        let other = self::account(200, &pool);
        assert!(other.set_aside(111).is_none());
        assert_eq!(other.refused(), None);
        drop(other.set_aside(110).unwrap());
        drop((account, other));
        assert_eq!(taken(&pool), 0);
    }

    #[test]
    fn objects_beyond_limit_overdraw_the_account() {
        let pool = MemoryPool::new(u64::MAX);
        let account = account(100, &pool);
        assert!(account.set_objects(100));
        assert_eq!(account.needed(), 0);
        assert!(!account.set_objects(101));
        assert_eq!(account.needed(), 101);
        assert_eq!(account.overdrawn(), Some(OutOfMemory::Limit(Limit::Memory(100))));
        assert!(!account.set_objects(1), "an overdrawn call ends");
        assert_eq!(
            account.peaks(),
            (100, 100),
            "the peak counts only what was granted"
        );
        assert_eq!(taken(&pool), 1);
    }

    #[test]
    fn calls_share_the_pool_and_return_their_memory() {
        let pool = MemoryPool::new(150);
        let (first, second) = (account(100, &pool), account(100, &pool));
        let held = first.reserve(100).unwrap();
        second.grow_guest(50).unwrap();
        assert_eq!(second.reserve(1).unwrap_err(), OutOfMemory::Pool);
        assert!(!second.set_objects(1));
        assert!(second.set_objects(0) || second.overdrawn().is_some());
        drop(held);
        second.reserve(50).unwrap();
        drop((first, second));
        assert_eq!(taken(&pool), 0);
    }

    #[test]
    fn reservation_outlives_its_call_until_it_is_dropped() {
        let pool = MemoryPool::new(100);
        let mut held = account(100, &pool).empty();
        held.grow(60).unwrap();
        held.grow(40).unwrap();
        assert!(held.grow(1).is_err());
        assert_eq!(taken(&pool), 100);
        held.clear();
        held.grow(10).unwrap();
        drop(held);
        assert_eq!(taken(&pool), 0);
    }

    #[test]
    fn unchanged_objects_are_charged_once() {
        let pool = MemoryPool::new(100);
        let (first, second) = (account(100, &pool), account(100, &pool));
        assert!(first.set_objects(60));
        assert!(!second.set_objects(60), "the pool is exhausted");
        assert_eq!(second.overdrawn(), Some(OutOfMemory::Pool));
        assert!(first.set_objects(60), "it takes no more than before");
        assert!(first.set_objects(59));
        assert_eq!((first.overdrawn(), taken(&pool)), (None, 119));
    }

    #[test]
    fn reservation_releases_at_most_what_it_holds() {
        let pool = MemoryPool::new(100);
        let account = account(100, &pool);
        let mut held = account.reserve(10).unwrap();
        let other = account.reserve(50).unwrap();
        held.shrink(4);
        assert_eq!((account.left(), held.left(), taken(&pool)), (44, 44, 56));
        held.shrink(7);
        assert_eq!((account.left(), taken(&pool)), (50, 50));
        drop(held);
        assert_eq!((account.left(), taken(&pool)), (50, 50));
        drop(other);
        assert_eq!((account.left(), taken(&pool)), (100, 0));
    }

    #[test]
    fn pool_can_be_taken_to_its_last_byte() {
        let pool = MemoryPool::new(100);
        let account = account(u64::MAX, &pool);
        account.grow_guest(40).unwrap();
        assert!(account.set_objects(60));
        assert_eq!(account.grow_guest(1), Err(OutOfMemory::Pool));
        account.shrink_guest(1);
        account.grow_guest(1).unwrap();
        assert!(!account.set_objects(61));
        assert_eq!(account.peaks(), (100, 60));
    }
}
