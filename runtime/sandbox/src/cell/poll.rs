//! `wasi:io/poll` and `wasi:random`, which charge their host memory before it is allocated.

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::p3::bindings::random::{insecure as async_insecure, random as async_random};
use wasmtime_wasi::random::WasiRandomCtx;
use wasmtime_wasi_io::bindings::wasi::io::poll;

use crate::cell::memory::Reservation;

/// Maximum number of random bytes per request. A key has 32.
pub(crate) const MAX_RANDOM: u64 = 1 << 20;

/// Bytes for each pollable in a list: the list itself, the order of the table entries, and the list of those that are
/// ready.
const POLLED: u64 = 64;

/// Host implementation of polling.
pub(crate) struct PollView<'a> {
    pub(crate) table: &'a mut ResourceTable,
    pub(crate) in_flight: &'a mut Reservation,
}

/// Host implementation of random numbers.
pub(crate) struct RandomView<'a> {
    pub(crate) random: &'a mut WasiRandomCtx,
    pub(crate) in_flight: &'a mut Reservation,
}

struct HasPoll;

impl HasData for HasPoll {
    type Data<'a> = PollView<'a>;
}

struct HasRandom;

impl HasData for HasRandom {
    type Data<'a> = RandomView<'a>;
}

/// Replaces `wasi:io/poll`, `wasi:random/random` and `wasi:random/insecure`. The linker must allow shadowing.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    polling: fn(&mut T) -> PollView<'_>,
    randomness: fn(&mut T) -> RandomView<'_>,
) -> wasmtime::Result<()> {
    poll::add_to_linker::<_, HasPoll>(linker, polling)?;
    random::add_to_linker::<_, HasRandom>(linker, randomness)?;
    insecure::add_to_linker::<_, HasRandom>(linker, randomness)
}

/// Replaces `wasi:random/random` and `wasi:random/insecure` of WASI 0.3, likewise.
pub(crate) fn add_async_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    randomness: fn(&mut T) -> RandomView<'_>,
) -> wasmtime::Result<()> {
    async_random::add_to_linker::<_, HasRandom>(linker, randomness)?;
    async_insecure::add_to_linker::<_, HasRandom>(linker, randomness)
}

impl poll::Host for PollView<'_> {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        self.in_flight
            .grow(POLLED.saturating_mul(pollables.len() as u64))?;
        poll::Host::poll(self.table, pollables).await
    }
}

impl poll::HostPollable for PollView<'_> {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        poll::HostPollable::ready(self.table, pollable).await
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::block(self.table, pollable).await
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::drop(self.table, pollable)
    }
}

impl random::Host for RandomView<'_> {
    fn get_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.in_flight.grow(length.min(MAX_RANDOM))?;
        random::Host::get_random_bytes(self.random, length)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        random::Host::get_random_u64(self.random)
    }
}

impl insecure::Host for RandomView<'_> {
    fn get_insecure_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.in_flight.grow(length.min(MAX_RANDOM))?;
        insecure::Host::get_insecure_random_bytes(self.random, length)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        insecure::Host::get_insecure_random_u64(self.random)
    }
}

impl async_random::Host for RandomView<'_> {
    fn get_random_bytes(&mut self, max_len: u64) -> wasmtime::Result<Vec<u8>> {
        // Fewer are allowed.
        random::Host::get_random_bytes(self, max_len.min(MAX_RANDOM))
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        random::Host::get_random_u64(self)
    }
}

impl async_insecure::Host for RandomView<'_> {
    fn get_insecure_random_bytes(&mut self, max_len: u64) -> wasmtime::Result<Vec<u8>> {
        insecure::Host::get_insecure_random_bytes(self, max_len.min(MAX_RANDOM))
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        insecure::Host::get_insecure_random_u64(self)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use wasmtime_wasi::WasiCtx;
    use wasmtime_wasi_io::poll::{Pollable, subscribe};

    use super::*;
    use crate::cell::memory::{MemoryAccount, MemoryPool};

    /// Something that has happened, or never does.
    struct Event {
        has_happened: bool,
    }

    #[wasmtime_wasi::async_trait]
    impl Pollable for Event {
        async fn ready(&mut self) {
            if !self.has_happened {
                pending::<()>().await;
            }
        }
    }

    fn account() -> MemoryAccount {
        MemoryAccount::new(1 << 20, MemoryPool::new(u64::MAX))
    }

    #[tokio::test]
    async fn pollable_is_ready_once_its_event_has_happened() {
        let mut table = ResourceTable::new();
        let mut in_flight = account().empty();
        for has_happened in [true, false] {
            let event = table.push(Event { has_happened }).unwrap();
            let pollable = subscribe(&mut table, event).unwrap();
            let mut view = PollView {
                table: &mut table,
                in_flight: &mut in_flight,
            };
            let ready = poll::HostPollable::ready(&mut view, pollable).await.unwrap();
            assert_eq!(ready, has_happened);
        }
    }

    #[test]
    fn random_numbers_differ() {
        let mut context = WasiCtx::builder().max_random_size(MAX_RANDOM).build();
        let mut in_flight = account().empty();
        let mut view = RandomView {
            random: context.random(),
            in_flight: &mut in_flight,
        };
        let numbers = |view: &mut RandomView<'_>| {
            let bytes = insecure::Host::get_insecure_random_bytes(view, 16).unwrap();
            [
                random::Host::get_random_u64(view).unwrap().into(),
                insecure::Host::get_insecure_random_u64(view).unwrap().into(),
                u128::from_ne_bytes(bytes.try_into().unwrap()),
            ]
        };
        let (first, second) = (numbers(&mut view), numbers(&mut view));
        assert!(
            first.iter().zip(second).all(|(first, second)| *first != second),
            "{first:?} {second:?}"
        );
    }
}
