//! The engines of a sandbox, each with its linker.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::cell::state::{self, CellState};
use crate::engine::{self, EngineKind};
use crate::error::{EngineError, LoadError};

/// An engine and what its components can import.
pub(super) struct LinkedEngine {
    pub(super) engine: Engine,
    pub(super) linker: Linker<CellState>,
    pub(super) has_pool: bool,
}

/// The engine of most components, and the one of asynchronous components once it is needed.
pub(super) struct Engines {
    sequential: LinkedEngine,
    /// Empty until a start succeeds: what one start lacked, the next may have.
    concurrent: OnceLock<LinkedEngine>,
    /// Held by the one that starts it.
    start: Mutex<()>,
    slots: u32,
    optimize: bool,
}

impl LinkedEngine {
    fn start(kind: EngineKind, slots: u32, optimize: bool) -> Result<Self, EngineError> {
        let (engine, has_pool) = engine::start(kind, slots, optimize)?;
        let linker = state::linker(&engine, kind).map_err(|e| EngineError::Engine(e.into()))?;
        Ok(Self {
            engine,
            linker,
            has_pool,
        })
    }
}

impl Engines {
    /// Starts the first engine, with a pool of `slots`.
    pub(super) fn start(slots: u32, optimize: bool) -> Result<Self, EngineError> {
        let sequential = LinkedEngine::start(EngineKind::Sequential, slots, optimize)?;
        Ok(Self {
            // Without a pool for the first, calls are not limited in number to the slots of one.
            slots: if sequential.has_pool { slots } else { 0 },
            sequential,
            concurrent: OnceLock::new(),
            start: Mutex::new(()),
            optimize,
        })
    }

    pub(super) fn sequential(&self) -> &LinkedEngine {
        &self.sequential
    }

    /// Returns the engine of a kind, which is started if it does not run yet.
    ///
    /// # Errors
    /// If it cannot be started. The next request tries it again.
    pub(super) fn get(&self, kind: EngineKind) -> Result<&LinkedEngine, LoadError> {
        match kind {
            EngineKind::Sequential => Ok(&self.sequential),
            EngineKind::Concurrent => once(&self.concurrent, &self.start, || {
                LinkedEngine::start(kind, self.slots, self.optimize)
            })
            .map_err(|error| LoadError::Engine {
                source: Arc::new(error),
            }),
        }
    }
}

/// Returns the value of a cell, which `start` makes once. Its errors are not kept.
fn once<'a, T, E>(
    cell: &'a OnceLock<T>,
    starting: &Mutex<()>,
    start: impl FnOnce() -> Result<T, E>,
) -> Result<&'a T, E> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    // It guards nothing that a panic could leave half done.
    let _starting = starting.lock().unwrap_or_else(PoisonError::into_inner);
    match cell.get() {
        Some(value) => Ok(value),
        None => start().map(|value| cell.get_or_init(|| value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_that_failed_is_tried_again_and_one_that_succeeded_is_kept() {
        let (cell, starting) = (OnceLock::new(), Mutex::new(()));
        for n in 1..3 {
            assert_eq!(once(&cell, &starting, || Err::<u8, _>(n)), Err(n));
        }
        assert_eq!(once(&cell, &starting, || Ok::<_, u8>(3)), Ok(&3));
        assert_eq!(once(&cell, &starting, || Err::<u8, _>(4)), Ok(&3));
        // One start at a time: a pool reserves address space for all slots.
        let (cell, starts) = (OnceLock::new(), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let start = || {
                        *starts.lock().unwrap() += 1;
                        std::thread::sleep(std::time::Duration::from_millis(5));
                        Ok::<_, ()>(1)
                    };
                    assert_eq!(once(&cell, &starting, start), Ok(&1));
                });
            }
        });
        assert_eq!(*starts.lock().unwrap(), 1);
    }

    #[test]
    fn second_engine_is_started_once() {
        let engines = Engines::start(2, false).unwrap();
        let concurrent: *const _ = engines.get(EngineKind::Concurrent).unwrap();
        assert_eq!(
            concurrent,
            std::ptr::from_ref(engines.get(EngineKind::Concurrent).unwrap())
        );
        assert!(!std::ptr::eq(concurrent, engines.sequential()));
    }
}
