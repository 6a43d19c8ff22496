//! The engines of a sandbox, each with its linker.

use std::sync::OnceLock;

use toolcell_core::error_chain;
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
    concurrent: OnceLock<Result<LinkedEngine, EngineError>>,
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
            optimize,
        })
    }

    pub(super) fn sequential(&self) -> &LinkedEngine {
        &self.sequential
    }

    /// Returns the engine of a kind, which is started if it does not run yet.
    pub(super) fn get(&self, kind: EngineKind) -> Result<&LinkedEngine, LoadError> {
        match kind {
            EngineKind::Sequential => Ok(&self.sequential),
            EngineKind::Concurrent => self
                .concurrent
                .get_or_init(|| LinkedEngine::start(kind, self.slots, self.optimize))
                .as_ref()
                .map_err(|error| LoadError::Compile {
                    reason: error_chain(error),
                }),
        }
    }
}
