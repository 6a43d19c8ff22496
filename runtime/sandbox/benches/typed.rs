//! Compares a function called as a tool, from JSON to JSON, with bare wasmtime in the same run: same component, same engine
//! settings, `InstancePre`, a call with dynamic values. The ratios are the result; times vary between machines.
//!
//! - `cargo bench -p toolcell-sandbox --bench typed` prints the table.
//! - `cargo bench -p toolcell-sandbox --bench typed -- --check` takes a short run and fails if a ratio is twice as bad as
//!   the goal.
//! - `cargo bench -p toolcell-sandbox --bench typed -- FILE.wasm TOOL ARGUMENTS` prints the time of a call of any component.

#![allow(clippy::unwrap_used, reason = "a benchmark that panics has failed")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use toolcell_core::{CallContext, Policy, Tool, ToolCall};
use toolcell_sandbox::{Sandbox, SandboxOptions};
use wasmtime::component::{Component, InstancePre, Linker, Val};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, StoreLimits,
};

/// Goal for the time of a call, relative to bare wasmtime.
const GOAL: f64 = 1.5;

/// Slots of both pools.
const SLOTS: u32 = 16;

/// Component with `add`, and `echo`, which returns its list of records.
const COMPONENT: &str = r#"(component
(core module $m
  (memory (export "memory") 2)
  (global $next (mut i32) (i32.const 1024))
  (func (export "realloc") (param i32 i32 i32) (param $len i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get $len)))
    (local.get $at))
  (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "echo") (param $at i32) (param $len i32) (result i32)
    (i32.store (i32.const 16) (local.get $at))
    (i32.store (i32.const 20) (local.get $len))
    (i32.const 16)))
(core instance $i (instantiate $m))
(type $item (record
  (field "name" string) (field "size" u64) (field "mode" u16) (field "ratio" f64)
  (field "tags" (list string)) (field "hidden" bool) (field "owner" (option string)) (field "kind" char)))
(export $named "item" (type $item))
(type $items (list $named))
(func $add (param "a" u32) (param "b" u32) (result u32) (canon lift (core func $i "add")))
(func $echo (param "items" $items) (result $items)
  (canon lift (core func $i "echo") (memory $i "memory") (realloc (func $i "realloc"))))
(export "add" (func $add))
(export "echo" (func $echo)))"#;

/// One function with arguments, callable in both ways.
struct Subject {
    label: &'static str,
    pre: Option<InstancePre<StoreLimits>>,
    values: Vec<Val>,
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
    async fn call_bare(&self) {
        let pre = self.pre.as_ref().unwrap();
        let mut store = Store::new(pre.engine(), StoreLimits::default());
        store.limiter(|limits| limits);
        store.set_fuel(1_000_000_000).unwrap();
        store.set_epoch_deadline(1_000_000);
        let instance = pre.instantiate_async(&mut store).await.unwrap();
        let function = instance
            .get_func(&mut store, self.tool.spec().name.as_str())
            .unwrap();
        let mut results = [Val::Bool(false)];
        let called = function.call_async(&mut store, &self.values, &mut results);
        called.await.unwrap();
        black_box(results);
    }

    /// Returns what a model sends: it exists before the call.
    fn tool_call(&self) -> ToolCall {
        ToolCall {
            id: "1".into(),
            name: self.tool.spec().name.clone(),
            arguments: self.arguments.clone(),
        }
    }

    async fn call_cell(&self, call: ToolCall) {
        let result = self.tool.call(call, CallContext::unobserved()).await;
        black_box(result.into_result().unwrap());
    }
}

/// Returns a record, as a value and in JSON.
fn item(index: u64) -> (Val, Value) {
    let name = format!("file-{index}.txt");
    let tags = ["one", "two", "three"];
    let text = |text: &str| Val::String(text.into());
    let fields = [
        ("name", text(&name)),
        ("size", Val::U64(index * 1_000)),
        ("mode", Val::U16(0o644)),
        ("ratio", Val::Float64(0.5)),
        ("tags", Val::List(tags.map(text).into())),
        ("hidden", Val::Bool(false)),
        ("owner", Val::Option(Some(Box::new(text("root"))))),
        ("kind", Val::Char('f')),
    ];
    let json = json!({
        "name": name, "size": index * 1_000, "mode": 0o644, "ratio": 0.5, "tags": tags, "hidden": false,
        "owner": "root", "kind": "f",
    });
    (
        Val::Record(fields.map(|(name, value)| (name.to_owned(), value)).into()),
        json,
    )
}

/// Returns the functions: one of numbers, and one of few and of many records.
async fn subjects(sandbox: &Sandbox) -> Vec<Subject> {
    let wasm = wat::parse_str(COMPONENT).unwrap();
    let engine = bare_engine();
    let component = Component::from_binary(&engine, &wasm).unwrap();
    let pre = Linker::new(&engine).instantiate_pre(&component).unwrap();
    let tools = sandbox
        .load("typed.wasm", &wasm)
        .await
        .unwrap()
        .tools(Policy::default());
    let subject = |label, name, values, arguments: Value| Subject {
        label,
        pre: Some(pre.clone()),
        values,
        tool: tools
            .iter()
            .find(|tool| tool.spec().name.as_str() == name)
            .unwrap()
            .clone(),
        arguments: arguments.as_object().unwrap().clone(),
    };
    let records = |label, count| {
        let (values, json): (Vec<Val>, Vec<Value>) = (0..count).map(item).unzip();
        subject(label, "echo", vec![Val::List(values)], json!({ "items": json }))
    };
    vec![
        subject(
            "two numbers",
            "add",
            vec![Val::U32(2), Val::U32(3)],
            json!({ "a": 2, "b": 3 }),
        ),
        records("3 records of 8 fields", 3),
        records("50 records of 8 fields", 50),
    ]
}

/// Returns the mean time of sequential calls, in microseconds.
fn measure(runtime: &Runtime, subject: &Subject, bare: bool, calls: u32) -> f64 {
    runtime.block_on(async {
        let mut spent = Duration::ZERO;
        for _ in 0..calls {
            let call = subject.tool_call();
            let start = Instant::now();
            if bare {
                subject.call_bare().await;
            } else {
                subject.call_cell(call).await;
            }
            spent += start.elapsed();
        }
        spent.as_secs_f64() * 1e6 / f64::from(calls)
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Measures bare calls and cells in turns, and returns the medians, in microseconds.
fn compare(runtime: &Runtime, subject: &Subject, rounds: usize, calls: u32) -> (f64, f64) {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (i, bare) in [true, false].into_iter().enumerate() {
            let time = measure(runtime, subject, bare, calls);
            // The first round warms caches.
            if round > 0 {
                times[i].push(time);
            }
        }
    }
    let [bare, cell] = times.map(median);
    (bare, cell)
}

/// Prints the time of a call of a component.
fn measure_file(runtime: &Runtime, sandbox: &Sandbox, file: &str, tool: &str, arguments: &str) {
    let wasm = std::fs::read(file).unwrap();
    let component = runtime.block_on(sandbox.load(file, &wasm)).unwrap();
    let tools = component.tools(Policy::default());
    let subject = Subject {
        label: "",
        pre: None,
        values: Vec::new(),
        tool: tools
            .into_iter()
            .find(|found| found.spec().name.as_str() == tool)
            .unwrap(),
        arguments: serde_json::from_str(arguments).unwrap(),
    };
    let times = (0..16).map(|_| measure(runtime, &subject, false, 200)).skip(1);
    println!("{tool}: {:.1} us", median(times.collect()));
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let sandbox = Sandbox::new(SandboxOptions {
        slots: SLOTS,
        ..SandboxOptions::default()
    })
    .unwrap();
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let [file, tool, arguments] = arguments.as_slice() {
        measure_file(&runtime, &sandbox, file, tool, arguments);
        return ExitCode::SUCCESS;
    }
    let is_short = arguments.iter().any(|argument| argument == "--check");
    let (rounds, calls) = if is_short { (5, 200) } else { (15, 2_000) };
    let mut is_met = true;
    println!("{:30} {:>9} {:>9}  ratio  goal", "time of a call", "bare", "cell");
    for subject in &runtime.block_on(subjects(&sandbox)) {
        let (bare, cell) = compare(&runtime, subject, rounds, calls);
        let (label, ratio) = (subject.label, cell / bare);
        println!("{label:30} {bare:6.1} us {cell:6.1} us  {ratio:5.2}  {GOAL}");
        is_met &= ratio <= 2.0 * GOAL;
    }
    if is_short && !is_met {
        eprintln!("a ratio is twice as bad as its goal");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
