//! Compares a call in a new cell with bare wasmtime, in the same run: same component, same engine settings, `InstancePre`,
//! WASI, a typed call. Both get the same arguments, as values, which are made before the time begins. The ratios are the
//! result; times vary between machines.
//!
//! - `cargo bench -p toolcell-sandbox` prints the table, with the number of allocations of a call.
//! - `cargo bench -p toolcell-sandbox -- --without-scan` does so as if the kernel did not have `PAGEMAP_SCAN`.
//! - `cargo bench -p toolcell-sandbox --bench call -- --profile bare|cell TOOL [--all]` only runs calls, with `--all` on
//!   all threads, for a profiler.
//! - `cargo bench -p toolcell-sandbox -- --check` takes a short run and fails if a ratio is twice as bad as its goal.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a benchmark that panics has failed"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use support::Probe;
use tokio::runtime::Runtime;
use toolcell_core::{CallContext, Policy, Tool, ToolCall};
use toolcell_sandbox::{Sandbox, SandboxOptions};
use wasmtime::component::{Component, HasSelf, Linker, ResourceTable};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, StoreLimits,
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

mod contract {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
    wasmtime::component::bindgen!({ path: "wit", world: "provider", exports: { default: async } });
}

use contract::ProviderPre;
use contract::exports::toolcell::tool::tools::Call;

/// Goal for the time of a call, relative to bare wasmtime.
const GOAL_TIME: f64 = 1.2;

/// Goal for the calls per second on all threads, relative to bare wasmtime.
const GOAL_RATE: f64 = 0.9;

/// Concurrent calls per thread.
const IN_FLIGHT: usize = 8;

/// Sequential calls whose arguments are made at once: few, so that they are still in the cache of the processor.
const BATCH: u32 = 50;

/// Slots of both pools.
const SLOTS: u32 = 256;

/// The allocator of the system, with a count of the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[expect(unsafe_code, reason = "there is no other way to count allocations")]
// SAFETY: everything is passed to the allocator of the system as it is; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Refuses `PAGEMAP_SCAN` to this process, as a kernel does that does not have it.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn refuse_scan() {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };
    const SYS_IOCTL: i64 = if cfg!(target_arch = "x86_64") { 16 } else { 29 };
    const PAGEMAP_SCAN: u64 = 0xc060_6610;
    const ENOTTY: u32 = 25;
    let is_scan = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PAGEMAP_SCAN).unwrap();
    let rule = SeccompRule::new(vec![is_scan]).unwrap();
    let refuse = SeccompFilter::new(
        [(SYS_IOCTL, vec![rule])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(ENOTTY),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = refuse.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Other systems do not have it.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn refuse_scan() {}

/// State of a bare store: WASI and limits.
struct Bare {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: StoreLimits,
}

impl WasiView for Bare {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl contract::toolcell::tool::types::Host for Bare {}

impl contract::toolcell::tool::log::Host for Bare {
    fn write(&mut self, _: contract::toolcell::tool::log::Level, _: String) {}
}

impl contract::toolcell::tool::progress::Host for Bare {
    fn report(&mut self, _: u64, _: Option<u64>, _: Option<String>) {}
}

/// One tool with arguments, callable in both ways.
struct Subject {
    engine: Engine,
    pre: ProviderPre<Bare>,
    tool: Arc<dyn Tool>,
    arguments: Map<String, Value>,
}

/// Creates an engine with the settings of `engine.rs` that affect a call.
fn bare_engine() -> Engine {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_memories(SLOTS)
        .total_tables(4 * SLOTS)
        .total_stacks(SLOTS)
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(16 << 10)
        .async_stack_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
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

impl Subject {
    async fn new(engine: &Engine, sandbox: &Sandbox, wasm: &[u8], tool: &str, arguments: Value) -> Self {
        let component = Component::from_binary(engine, wasm).unwrap();
        let mut linker = Linker::<Bare>::new(engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        contract::Provider::add_to_linker::<_, HasSelf<Bare>>(&mut linker, |state| state).unwrap();
        let loaded = sandbox.load(tool, wasm).await.unwrap();
        let mut tools = loaded.tools(Policy::default());
        let at = tools.iter().position(|t| t.spec().name.as_str() == tool).unwrap();
        Self {
            engine: engine.clone(),
            pre: ProviderPre::new(linker.instantiate_pre(&component).unwrap()).unwrap(),
            tool: tools.swap_remove(at),
            arguments: arguments.as_object().unwrap().clone(),
        }
    }

    /// Makes the input of a call.
    fn input(&self) -> ToolCall {
        ToolCall {
            id: "1".into(),
            name: self.tool.spec().name.clone(),
            arguments: self.arguments.clone(),
        }
    }

    async fn call_bare(&self, input: ToolCall) {
        let state = Bare {
            wasi: WasiCtx::builder().build(),
            table: ResourceTable::new(),
            limits: StoreLimits::default(),
        };
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.limits);
        store.set_fuel(1_000_000_000).unwrap();
        store.set_epoch_deadline(1_000_000);
        let call = Call {
            id: input.id,
            name: self.tool.spec().name.to_string(),
            arguments: serde_json::to_string(&input.arguments).unwrap(),
            context: Vec::new(),
        };
        let guest = self.pre.instantiate_async(&mut store).await.unwrap();
        let output = guest.toolcell_tool_tools().call_run(&mut store, &call).await;
        black_box(output.unwrap().unwrap());
    }

    async fn call_cell(&self, input: ToolCall) {
        let result = self.tool.call(input, CallContext::unobserved()).await;
        black_box(result.into_result().unwrap());
    }

    async fn call(&self, bare: bool, input: ToolCall) {
        if bare {
            self.call_bare(input).await;
        } else {
            self.call_cell(input).await;
        }
    }
}

/// Returns the mean time of sequential calls.
fn sequential(runtime: &Runtime, subject: &Arc<Subject>, bare: bool, calls: u32) -> Duration {
    let subject = subject.clone();
    let run = async move {
        let mut time = Duration::ZERO;
        for _ in 0..calls / BATCH {
            let inputs: Vec<_> = (0..BATCH).map(|_| subject.input()).collect();
            let start = Instant::now();
            for input in inputs {
                subject.call(bare, input).await;
            }
            time += start.elapsed();
        }
        time / calls
    };
    runtime.block_on(runtime.spawn(run)).unwrap()
}

/// Returns the mean number of allocations of sequential calls.
fn allocations(runtime: &Runtime, subject: &Subject, bare: bool) -> u64 {
    const CALLS: u64 = 100;
    runtime.block_on(async {
        let inputs: Vec<_> = (0..CALLS).map(|_| subject.input()).collect();
        let before = ALLOCATIONS.get();
        for input in inputs {
            subject.call(bare, input).await;
        }
        (ALLOCATIONS.get() - before) / CALLS
    })
}

/// Returns the mean time of concurrent calls: the duration divided by their number.
fn concurrent(runtime: &Runtime, subject: &Arc<Subject>, bare: bool, calls: u32) -> Duration {
    let tasks = runtime.metrics().num_workers() * IN_FLIGHT;
    let each = calls / u32::try_from(tasks).unwrap();
    let inputs: Vec<Vec<_>> = (0..tasks)
        .map(|_| (0..each).map(|_| subject.input()).collect())
        .collect();
    let start = Instant::now();
    let running: Vec<_> = inputs
        .into_iter()
        .map(|inputs| {
            let subject = subject.clone();
            runtime.spawn(async move {
                for input in inputs {
                    subject.call(bare, input).await;
                }
            })
        })
        .collect();
    for task in running {
        runtime.block_on(task).unwrap();
    }
    start.elapsed() / (each * u32::try_from(tasks).unwrap())
}

/// Way of measuring: returns the time of a call.
type Measure = fn(&Runtime, &Arc<Subject>, bool, u32) -> Duration;

/// Measures bare calls and cells in turns, and returns the medians, in microseconds.
fn compare(
    runtime: &Runtime,
    subject: &Arc<Subject>,
    measure: Measure,
    rounds: usize,
    calls: u32,
) -> (f64, f64) {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (i, bare) in [true, false].into_iter().enumerate() {
            let time = measure(runtime, subject, bare, calls);
            // The first round warms caches.
            if round > 0 {
                times[i].push(time.as_secs_f64() * 1e6);
            }
        }
    }
    let [bare, cell] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    (bare, cell)
}

fn shipped(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/prebuilt");
    std::fs::read(format!("{path}/{name}.wasm")).unwrap()
}

/// Returns the tools: one without imports, and shipped ones with theirs.
async fn subjects(engine: &Engine, sandbox: &Sandbox) -> Vec<Arc<Subject>> {
    let words = "one two three\n".repeat(16);
    let document = json!({ "a": [1, 2, 3], "b": words }).to_string();
    let document = json!({ "json": document, "program": ".a" });
    let note = json!({ "path": "src/main.rs", "pattern": "fn main", "note": "x".repeat(190) });
    let tools = [
        (Probe::default().build(), "probe", note),
        (shipped("text"), "text_count", json!({ "text": words })),
        (shipped("clock"), "clock_now", json!({})),
        (shipped("json"), "json_query", document),
    ];
    let mut subjects = Vec::new();
    for (wasm, name, arguments) in tools {
        subjects.push(Arc::new(
            Subject::new(engine, sandbox, &wasm, name, arguments).await,
        ));
    }
    subjects
}

fn main() -> ExitCode {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let is_short = has("--check");
    if has("--without-scan") {
        refuse_scan();
    }
    let (rounds, calls) = if is_short { (5, 500) } else { (15, 4_000) };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let sandbox = Sandbox::new(SandboxOptions {
        slots: SLOTS,
        ..SandboxOptions::default()
    });
    let subjects = runtime.block_on(subjects(&bare_engine(), &sandbox.unwrap()));
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--profile") {
        let named = |subject: &&Arc<Subject>| subject.tool.spec().name.as_str() == arguments[at + 2];
        let subject = subjects.iter().find(named).unwrap();
        let measure: Measure = if has("--all") { concurrent } else { sequential };
        let time = measure(&runtime, subject, arguments[at + 1] == "bare", 100_000);
        println!("{:.2} us", time.as_secs_f64() * 1e6);
        return ExitCode::SUCCESS;
    }
    let mut is_met = true;
    println!("{:30} {:>9} {:>9}  ratio  goal", "time of a call", "bare", "cell");
    for subject in &subjects {
        let (bare, cell) = compare(&runtime, subject, sequential, rounds, calls);
        let (name, ratio) = (subject.tool.spec().name.as_str(), cell / bare);
        println!("{name:30} {bare:6.1} us {cell:6.1} us  {ratio:5.2}  {GOAL_TIME}");
        is_met &= ratio <= 2.0 * GOAL_TIME;
    }
    println!("{:30} {:>9} {:>9}", "calls a second, all threads", "bare", "cell");
    for subject in &subjects {
        let (bare, cell) = compare(&runtime, subject, concurrent, rounds, 4 * calls);
        let (name, ratio) = (subject.tool.spec().name.as_str(), bare / cell);
        let [bare, cell] = [bare, cell].map(|time| 1e6 / time);
        println!("{name:30} {bare:9.0} {cell:9.0}  {ratio:5.2}  {GOAL_RATE}");
        is_met &= ratio >= GOAL_RATE / 2.0;
    }
    println!("{:30} {:>9} {:>9}", "allocations of a call", "bare", "cell");
    for subject in &subjects {
        let [bare, cell] = [true, false].map(|bare| allocations(&runtime, subject, bare));
        println!("{:30} {bare:9} {cell:9}", subject.tool.spec().name.as_str());
    }
    if is_short && !is_met {
        eprintln!("a ratio is twice as bad as its goal");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
