//! Compares a call in a new cell with bare wasmtime, in the same run: same component, same engine settings,
//! `InstancePre` and a typed call. The ratio is the result; a cell should cost at most twice the bare call.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serde_json::json;
use support::Probe;
use tokio::runtime::Runtime;
use toolcell_core::{CallContext, Policy, Tool, ToolCall};
use toolcell_sandbox::{Sandbox, SandboxOptions};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, StoreLimits};

mod contract {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
    wasmtime::component::bindgen!({ path: "wit", world: "provider", exports: { default: async } });
}

use contract::ProviderPre;
use contract::exports::toolcell::tool::tools::Call;

/// The settings of `engine.rs` that affect a call.
fn bare_engine() -> Engine {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_memories(256)
        .total_tables(1024)
        .total_stacks(256)
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10);
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(512 << 10)
        .async_stack_size(2 << 20)
        .memory_reservation(4 << 30)
        .concurrency_support(false)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).unwrap()
}

/// Returns 245 bytes of arguments.
fn arguments() -> serde_json::Map<String, serde_json::Value> {
    let json = json!({ "path": "src/main.rs", "pattern": "fn main", "note": "x".repeat(190) });
    json.as_object().unwrap().clone()
}

fn bare(c: &mut Criterion, runtime: &Runtime) {
    let engine = bare_engine();
    let component = Component::from_binary(&engine, &Probe::default().build()).unwrap();
    let pre = ProviderPre::new(
        Linker::<StoreLimits>::new(&engine)
            .instantiate_pre(&component)
            .unwrap(),
    )
    .unwrap();
    let text = serde_json::to_string(&arguments()).unwrap();
    c.bench_function("call/bare wasmtime", |b| {
        b.to_async(runtime).iter(|| async {
            let mut store = Store::new(&engine, StoreLimits::default());
            store.limiter(|limits| limits);
            store.set_fuel(1_000_000_000).unwrap();
            store.set_epoch_deadline(1_000_000);
            let call = Call {
                id: "1".into(),
                name: "probe".into(),
                arguments: text.clone(),
                context: Vec::new(),
            };
            let guest = pre.instantiate_async(&mut store).await.unwrap();
            let output = guest
                .toolcell_tool_tools()
                .call_run(&mut store, &call)
                .await
                .unwrap();
            black_box(output.unwrap());
        });
    });
}

fn cell(c: &mut Criterion, runtime: &Runtime) {
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    let component = runtime
        .block_on(sandbox.load("probe.wasm", &Probe::default().build()))
        .unwrap();
    let tool: Arc<dyn Tool> = component.tools(Arc::new(Policy::default())).remove(0);
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments: arguments(),
    };
    c.bench_function("call/cell", |b| {
        b.to_async(runtime).iter_batched(
            || call.clone(),
            |call| async {
                black_box(
                    tool.call(call, CallContext::unobserved())
                        .await
                        .into_result()
                        .unwrap(),
                )
            },
            BatchSize::SmallInput,
        );
    });
}

fn calls(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    bare(c, &runtime);
    cell(c, &runtime);
}

/// Measures the start of a process until its first call, with cached code.
fn starts(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let home = tempfile::tempdir().unwrap();
    let options = SandboxOptions {
        cache_dir: Some(home.path().join("cache")),
        slots: 8,
        ..SandboxOptions::default()
    };
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/prebuilt/json.wasm");
    let bytes = std::fs::read(shipped).unwrap();
    let load = |sandbox: &Sandbox| runtime.block_on(sandbox.load("json.wasm", &bytes)).unwrap();
    load(&Sandbox::new(options.clone()).unwrap());
    c.bench_function("start/sandbox of 8 slots", |b| {
        b.iter(|| Sandbox::new(options.clone()).unwrap());
    });
    let sandbox = Sandbox::new(options.clone()).unwrap();
    c.bench_function("start/json.wasm from the cache", |b| b.iter(|| load(&sandbox)));
}

criterion_group!(benches, calls, starts);
criterion_main!(benches);
