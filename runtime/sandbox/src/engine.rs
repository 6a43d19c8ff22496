//! The engines and their settings. Most components run in one; a second one is made for asynchronous components when the
//! first of them is loaded. Types of two engines must never be mixed.
//!
//! | setting | value | reason |
//! |---|---|---|
//! | fuel | on | measures work, identically on every machine |
//! | epochs | a tick of 10 ms | a guest yields at each tick, so that deadlines and cancellation take effect |
//! | allocation | pool of slots, 64 KiB of each kept resident | makes a new instance cost microseconds |
//! | memory reservation | 4 GiB of address space per slot | no bounds checks in compiled code |
//! | WebAssembly stack | 512 KiB of a 2 MiB fiber | recursion ends in an error, with room for host functions |
//! | native unwind tables, address maps | off | only debuggers need them, and they are a sixth of the compiled code |
//! | garbage collection, exceptions, threads, 64-bit memories, relaxed SIMD | off | no tool needs them, and most advisories of the last year concern them |
//! | asynchronous ABI of components | only in the second engine | the bookkeeping of its tasks costs 1.5 microseconds a call, and twice that for calls with dynamic values |
//! | stackful tasks, component threads, further built-in functions of the asynchronous ABI, error contexts | off | they are not part of WASI 0.3 |
//! | maps and lists of fixed length in interfaces | on | functions with them can be tools |
//! | multiple memories, reference types | on | the engine panics on valid components without them (48.0.8) |

use serde::{Deserialize, Serialize};
use wasmparser::WasmFeatures;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Strategy,
};

use crate::cell::epoch;
use crate::error::EngineError;
use crate::load::complexity::{MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLE_START, MAX_TABLES};

/// Features that are disabled although the engine enables some of them by default.
const SWITCHED_OFF: WasmFeatures = WasmFeatures::GC
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::FUNCTION_REFERENCES)
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::LEGACY_EXCEPTIONS)
    .union(WasmFeatures::THREADS)
    .union(WasmFeatures::SHARED_EVERYTHING_THREADS)
    .union(WasmFeatures::MEMORY64)
    .union(WasmFeatures::RELAXED_SIMD)
    .union(WasmFeatures::STACK_SWITCHING)
    .union(WasmFeatures::CM_MORE_ASYNC_BUILTINS)
    .union(WasmFeatures::CM_ASYNC_STACKFUL)
    .union(WasmFeatures::CM_THREADING)
    .union(WasmFeatures::CM_ERROR_CONTEXT);

/// Features that are enabled although the engine disables them by default.
const SWITCHED_ON: WasmFeatures = WasmFeatures::CM_MAP.union(WasmFeatures::CM_FIXED_LENGTH_LISTS);

/// Engine in which a component runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EngineKind {
    /// One function of a component runs at a time.
    #[default]
    Sequential,
    /// Functions of a component can wait while others run, as the asynchronous ABI and WASI 0.3 need it.
    Concurrent,
}

/// Stack size for WebAssembly, in bytes.
pub(crate) const WASM_STACK: usize = 512 << 10;

/// Stack size of a fiber, in bytes, for WebAssembly and the host functions it calls.
pub(crate) const FIBER_STACK: usize = 2 << 20;

/// Bytes of a memory slot that stay resident between calls; the rest is returned to the system after each call.
const KEEP_RESIDENT: usize = 64 << 10;

/// The same for a table: 2,000 elements.
const KEEP_TABLE_RESIDENT: usize = 16 << 10;

/// Tables per slot of the pool. A component has one or two for each of its modules.
pub(crate) const TABLES_PER_SLOT: u32 = 4;

/// Stacks per slot of the pool of the concurrent engine. A task that waits keeps its stack, and each component instance with
/// functions has at most one such task: no other one enters it meanwhile.
pub(crate) const STACKS_PER_SLOT: u32 = 4;

/// Maximum metadata of one core instance, in bytes. It grows with the number of functions and globals.
const MAX_CORE_INSTANCE_BYTES: usize = 4 << 20;

/// Maximum metadata of one component with all its instances, in bytes.
const MAX_COMPONENT_INSTANCE_BYTES: usize = 16 << 20;

/// Creates an engine with a pool of `slots`, or without one if `slots` is 0 or its address space cannot be reserved;
/// also returns whether it has a pool.
pub(crate) fn start(kind: EngineKind, slots: u32, optimize: bool) -> Result<(Engine, bool), EngineError> {
    let config = || config(kind, optimize);
    let pooled = (slots > 0).then(|| Engine::new(config().allocation_strategy(pool(kind, slots))));
    let (engine, has_pool) = match pooled {
        Some(Ok(engine)) => (engine, true),
        other => {
            if let Some(Err(error)) = other {
                tracing::warn!("no pool of {slots} slots, calls allocate on demand: {error:#}");
            }
            let engine = Engine::new(&config()).map_err(|e| EngineError::Engine(e.into()))?;
            (engine, false)
        }
    };
    epoch::start(engine.weak()).map_err(EngineError::EpochThread)?;
    Ok((engine, has_pool))
}

/// Creates an engine that only compiles: no pool, no epoch thread. Its code runs in every engine of [`start`] of the same
/// kind and with the same settings.
pub(crate) fn compiler(kind: EngineKind, optimize: bool) -> Result<Engine, EngineError> {
    Engine::new(&config(kind, optimize)).map_err(|e| EngineError::Engine(e.into()))
}

fn config(kind: EngineKind, optimize: bool) -> Config {
    let is_concurrent = kind == EngineKind::Concurrent;
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(if optimize { OptLevel::Speed } else { OptLevel::None })
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(FIBER_STACK)
        .memory_reservation(4 << 30)
        .memory_init_cow(true)
        .native_unwind_info(false)
        .generate_address_map(false)
        .concurrency_support(is_concurrent)
        .shared_memory(false)
        .gc_support(false)
        .wasm_features(SWITCHED_OFF, false)
        .wasm_features(SWITCHED_ON, true)
        .wasm_features(WasmFeatures::CM_ASYNC, is_concurrent);
    config
}

fn pool(kind: EngineKind, slots: u32) -> InstanceAllocationStrategy {
    let stacks = match kind {
        EngineKind::Sequential => slots,
        EngineKind::Concurrent => slots.saturating_mul(STACKS_PER_SLOT),
    };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_memories(slots)
        .total_tables(slots.saturating_mul(TABLES_PER_SLOT))
        .total_stacks(stacks)
        .total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(MAX_CORE_INSTANCES))
        .max_core_instances_per_component(MAX_CORE_INSTANCES)
        .max_memories_per_component(MAX_MEMORIES)
        .max_memories_per_module(MAX_MEMORIES.min(slots))
        .max_tables_per_component(MAX_TABLES)
        .max_tables_per_module(MAX_TABLES.min(slots.saturating_mul(TABLES_PER_SLOT)))
        .max_core_instance_size(MAX_CORE_INSTANCE_BYTES)
        .max_component_instance_size(MAX_COMPONENT_INSTANCE_BYTES)
        .table_elements(MAX_TABLE_START as usize)
        .linear_memory_keep_resident(KEEP_RESIDENT)
        .table_keep_resident(KEEP_TABLE_RESIDENT)
        .async_stack_keep_resident(KEEP_RESIDENT)
        .pagemap_scan(Enabled::Auto);
    InstanceAllocationStrategy::Pooling(pool)
}
