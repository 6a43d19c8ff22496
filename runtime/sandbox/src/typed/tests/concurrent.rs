//! Asynchronous components, in the second engine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolcell_core::tool::{CallObserver, LogLine};
use toolcell_core::{CallContext, Limit, Limits, Policy, Receipt, ToolCall, ToolError};

use super::{ECHO, call, load, sandbox};
use crate::{ComponentKind, Sandbox, SandboxOptions};

/// Exit and yield, as a function of the asynchronous ABI returns them.
const EXIT: &str = "(i32.const 0)";
const YIELD: &str = "(i32.const 1)";

/// A component with the function `double: async func(n: u32) -> u32`. `start` runs first with the parameter in `$n`, then
/// `callback` whenever it waits or yields, with the parameter in the global `$n`.
fn double(start: &str, callback: &str) -> String {
    format!(
        r#"(component
(core module $libc (memory (export "memory") 1))
(core instance $libc (instantiate $libc))
(core module $m
  (import "" "memory" (memory 1))
  (import "" "return" (func $return (param i32)))
  (import "" "set" (func $set (result i32)))
  (global $n (mut i32) (i32.const 0))
  (global $times (mut i32) (i32.const 0))
  (func (export "double") (param $n i32) (result i32) (global.set $n (local.get $n)) {start})
  (func (export "callback") (param i32 i32 i32) (result i32) {callback}))
(core func $return (canon task.return (result u32)))
(core func $set (canon waitable-set.new))
(core instance $i (instantiate $m (with "" (instance
  (export "memory" (memory $libc "memory"))
  (export "return" (func $return))
  (export "set" (func $set))))))
(type $double (func async (param "n" u32) (result u32)))
(func $double (type $double) (canon lift (core func $i "double") async (callback (func $i "callback"))))
(export "double" (func $double)))"#
    )
}

/// Returns twice the parameter at once.
fn at_once() -> String {
    double(
        &format!("(call $return (i32.mul (local.get $n) (i32.const 2))) {EXIT}"),
        EXIT,
    )
}

fn limited(limits: Limits) -> Policy {
    Policy {
        limits,
        ..Policy::default()
    }
}

async fn call_double(text: &str, limits: Limits) -> Result<Value, ToolError> {
    let component = load(&sandbox(), text).await.unwrap();
    let result = call(&component, limited(limits), "double", json!({ "n": 21 })).await;
    result
        .into_result()
        .map(|result| result.structured.unwrap()["result"].clone())
}

#[tokio::test]
async fn asynchronous_function_is_a_tool() {
    let component = load(&sandbox(), &at_once()).await.unwrap();
    assert_eq!(component.kind(), ComponentKind::Functions);
    assert_eq!(component.left_out(), []);
    let result = call(&component, Policy::default(), "double", json!({ "n": 21 })).await;
    assert_eq!(result.structured, Some(json!({ "result": 42 })));
    let receipt = result.receipt.unwrap();
    assert!(receipt.fuel > 0 && receipt.bytes_out == 2, "{receipt:?}");
    let refused = call(&component, Policy::default(), "double", json!({ "n": -1 })).await;
    assert!(matches!(refused.error, Some(ToolError::InvalidArguments { .. })));
    // A function that yields before it returns.
    let later = format!("(call $return (i32.mul (global.get $n) (i32.const 2))) {EXIT}");
    assert_eq!(
        call_double(&double(YIELD, &later), Limits::default()).await,
        Ok(json!(42))
    );
}

/// Only its type says that it is asynchronous, which is found when it is validated.
#[tokio::test]
async fn asynchronous_type_alone_needs_the_second_engine() {
    let text = format!(
        r#"(component {ECHO}
(core module $n (func (export "f") (param i32) (result i32) (i32.add (local.get 0) (local.get 0))))
(core instance $j (instantiate $n))
(type $double (func async (param "n" u32) (result u32)))
(func $double (type $double) (canon lift (core func $j "f")))
(export "double" (func $double)))"#
    );
    let dir = tempfile::tempdir().unwrap();
    let bytes = wat::parse_str(&text).unwrap();
    for from_cache in [0, 1] {
        let sandbox = Sandbox::new(SandboxOptions {
            slots: 8,
            optimize: false,
            cache_dir: Some(dir.path().join("cache")),
            ..SandboxOptions::default()
        })
        .unwrap();
        let component = sandbox.load("x.wasm", &bytes).await.unwrap();
        let result = call(&component, Policy::default(), "double", json!({ "n": 21 })).await;
        assert_eq!(result.structured, Some(json!({ "result": 42 })));
        assert_eq!(sandbox.statistics().from_cache, from_cache);
        let described = sandbox.describe("x.wasm", &bytes).await.unwrap();
        assert_eq!(described.definitions(), component.definitions());
    }
}

#[tokio::test]
async fn fuel_and_time_end_an_asynchronous_call() {
    let fuel = |fuel| Limits {
        fuel,
        ..Limits::default()
    };
    let endless = double("(loop $more (br $more)) (i32.const 0)", EXIT);
    let yielding = double(YIELD, YIELD);
    for text in [&endless, &yielding] {
        let ended = call_double(text, fuel(1_000_000)).await;
        let limit = Limit::Fuel(1_000_000);
        assert_eq!(ended, Err(ToolError::Limit { limit }), "{text}");
        let late = Limits {
            fuel: u64::MAX / 2,
            wall_ms: 30,
            ..Limits::default()
        };
        let limit = Limit::WallTimeMs(30);
        assert_eq!(
            call_double(text, late).await,
            Err(ToolError::Limit { limit }),
            "{text}"
        );
    }
    // A loop of a known length, on both sides of the limit.
    let loops = format!(
        "(loop $more
            (global.set $times (i32.add (global.get $times) (i32.const 1)))
            (br_if $more (i32.lt_u (global.get $times) (i32.const 10000))))
        (call $return (i32.const 1)) {EXIT}"
    );
    let component = load(&sandbox(), &double(&loops, EXIT)).await.unwrap();
    let result = call(&component, Policy::default(), "double", json!({ "n": 1 })).await;
    let used = result.receipt.unwrap().fuel;
    assert!((10_000..200_000).contains(&used), "{used}");
    for (given, is_ok) in [(used + 1_000, true), (used / 2, false)] {
        let result = call(&component, limited(fuel(given)), "double", json!({ "n": 1 })).await;
        assert_eq!(result.error.is_none(), is_ok, "{given}: {:?}", result.error);
    }
}

#[tokio::test]
async fn memory_of_an_asynchronous_call_is_limited() {
    let grows = format!(
        "(if (i32.eq (memory.grow (i32.const 159)) (i32.const -1)) (then unreachable))
        (call $return (i32.const 1)) {EXIT}"
    );
    let memory = |memory| Limits {
        memory,
        handles: 1_000,
        ..Limits::default()
    };
    // 10 MiB of the guest, and what 1,000 handles can hold.
    let text = double(&grows, EXIT);
    assert_eq!(call_double(&text, memory(11 << 20)).await, Ok(json!(1)));
    let limit = Limit::Memory(10 << 20);
    assert_eq!(
        call_double(&text, memory(10 << 20)).await,
        Err(ToolError::Limit { limit })
    );
}

/// The host keeps sets, streams and tasks for a guest, which makes them without a function of ours.
#[tokio::test]
async fn objects_of_the_asynchronous_abi_count_as_handles() {
    let sets = |count: u32| {
        let start = format!(
            "(loop $more
                (drop (call $set))
                (global.set $times (i32.add (global.get $times) (i32.const 1)))
                (br_if $more (i32.lt_u (global.get $times) (i32.const {count}))))
            (call $return (i32.const 1)) {EXIT}"
        );
        double(&start, EXIT)
    };
    let limits = || Limits {
        handles: 100,
        ..Limits::default()
    };
    // The task itself is some of them.
    assert_eq!(call_double(&sets(90), limits()).await, Ok(json!(1)));
    let limit = Limit::Handles(100);
    assert_eq!(
        call_double(&sets(101), limits()).await,
        Err(ToolError::Limit { limit })
    );
    // They are paid for before the call runs: a kibibyte each.
    let poor = |memory| Limits {
        memory,
        handles: 1_000,
        ..Limits::default()
    };
    assert_eq!(call_double(&at_once(), poor(1_200 << 10)).await, Ok(json!(42)));
    let limit = Limit::Memory(1_000 << 10);
    assert_eq!(
        call_double(&at_once(), poor(1_000 << 10)).await,
        Err(ToolError::Limit { limit })
    );
}

#[tokio::test]
async fn call_that_waits_for_nothing_fails_at_once() {
    // Waits for a set in which nothing is.
    let waits = "(i32.or (i32.const 2) (i32.shl (call $set) (i32.const 4)))";
    let ended = call_double(&double(waits, EXIT), Limits::default()).await;
    assert!(matches!(ended, Err(ToolError::Crashed { .. })), "{ended:?}");
    // Ends without a result.
    let ended = call_double(&double(EXIT, EXIT), Limits::default()).await;
    assert!(matches!(ended, Err(ToolError::Crashed { .. })), "{ended:?}");
}

/// Receipts of calls.
#[derive(Default)]
struct Receipts(Mutex<Vec<Receipt>>);

impl CallObserver for Receipts {
    fn log(&self, _: LogLine) {}

    fn receipt(&self, receipt: Receipt) {
        self.0.lock().unwrap().push(receipt);
    }
}

#[tokio::test]
async fn cancelled_asynchronous_call_ends_with_a_receipt() {
    let sandbox = sandbox();
    let component = load(&sandbox, &double(YIELD, YIELD)).await.unwrap();
    let limits = Limits {
        fuel: u64::MAX / 2,
        ..Limits::default()
    };
    let tool = component.tools(limited(limits)).remove(0);
    let receipts = Arc::new(Receipts::default());
    let cx = CallContext {
        observer: receipts.clone(),
        ..CallContext::unobserved()
    };
    let Value::Object(arguments) = json!({ "n": 1 }) else {
        unreachable!()
    };
    let call = ToolCall {
        id: "1".into(),
        name: tool.spec().name.clone(),
        arguments,
    };
    let ended = tokio::time::timeout(Duration::from_millis(50), tool.call(call, cx)).await;
    assert!(ended.is_err());
    let receipts = receipts.0.lock().unwrap();
    assert_eq!(receipts.len(), 1);
    assert!(receipts[0].fuel > 0, "{receipts:?}");
}

#[tokio::test]
async fn values_are_paid_for_twice_where_the_engine_copies_them() {
    // A list is passed in memory, which makes the call asynchronous in its type alone.
    let text = format!(
        r#"(component {ECHO}
(core module $n (func (export "f") (param i32 i32) (result i32) (local.get 1)))
(core instance $j (instantiate $n))
(type $count (func async (param "v" (list u16)) (result u32)))
(func $count (type $count)
  (canon lift (core func $j "f") (memory $i "memory") (realloc (func $i "realloc"))))
(export "count" (func $count)))"#
    );
    let component = load(&sandbox(), &text).await.unwrap();
    let of = async |memory| {
        let limits = Limits {
            memory,
            handles: 10,
            ..Limits::default()
        };
        let arguments = json!({ "v": vec![0_u8; 100_000] });
        call(&component, limited(limits), "count", arguments).await.error
    };
    // 100,000 values of 40 bytes are 4 MB; the guest has a bit more than 1 MiB.
    assert_eq!(of(10 << 20).await, None);
    let limit = Limit::Memory(7 << 20);
    assert_eq!(of(7 << 20).await, Some(ToolError::Limit { limit }));
}

/// Each instance in which a task can wait has a stack meanwhile.
#[tokio::test]
async fn instances_in_which_tasks_wait_take_slots_of_the_pool() {
    let inner = r#"(component $c (core module $m (func (export "f"))) (core instance $i (instantiate $m))
        (type $t (func async)) (func $f (type $t) (canon lift (core func $i "f"))) (export "f" (func $f)))"#;
    // Ten with functions, and two stacks more: twelve, of which a slot has four.
    let instances = "(instance (instantiate $c))".repeat(9);
    let text = format!(
        r#"(component {inner} {instances} (instance $i (instantiate $c)) (export "f" (func $i "f")))"#
    );
    let bytes = wat::parse_str(&text).unwrap();
    for (slots, is_ok) in [(3, true), (2, false)] {
        let sandbox = Sandbox::new(SandboxOptions {
            slots,
            optimize: false,
            ..SandboxOptions::default()
        })
        .unwrap();
        let loaded = sandbox.load("x.wasm", &bytes).await;
        assert_eq!(loaded.is_ok(), is_ok, "{slots}");
        let Ok(component) = loaded else { continue };
        // Nine stacks beyond the first are memory of the call.
        for (memory, is_ok) in [(19 << 20, true), (17 << 20, false)] {
            let limits = Limits {
                memory,
                handles: 100,
                ..Limits::default()
            };
            let result = call(&component, limited(limits), "f", json!({})).await;
            assert_eq!(result.error.is_none(), is_ok, "{memory}: {:?}", result.error);
        }
    }
}

/// An instance in which a task waits on its stack is not entered meanwhile, so that a call takes no more stacks than its slots
/// have.
#[tokio::test]
async fn many_waiting_tasks_take_no_stacks_of_other_calls() {
    let text = r#"(component
(import "wasi:clocks/monotonic-clock@0.3.0" (instance $clock
  (export "wait-for" (func async (param "how-long" u64)))))
(component $b
  (import "wait" (func $wait async (param "how-long" u64)))
  (core func $w (canon lower (func $wait)))
  (core module $m
    (import "" "wait" (func $wait (param i64)))
    (import "" "done" (func $done))
    (func (export "f") (call $wait (i64.const 100000)))
    (func (export "g") (result i32) (call $wait (i64.const 100000)) (call $done) (i32.const 0))
    (func (export "callback") (param i32 i32 i32) (result i32) (i32.const 0)))
  (core func $done (canon task.return))
  (core instance $i (instantiate $m (with "" (instance (export "wait" (func $w)) (export "done" (func $done))))))
  (type $t (func async))
  (func $f (type $t) (canon lift (core func $i "f")))
  (func $g (type $t) (canon lift (core func $i "g") async (callback (func $i "callback"))))
  (export "f" (func $f)) (export "g" (func $g)))
(instance $b (instantiate $b (with "wait" (func $clock "wait-for"))))
(component $a
  (import "wait" (func $wait async (param "how-long" u64)))
  (import "f" (func $f async))
  (core func $f (canon lower (func $f) async))
  (core func $wait (canon lower (func $wait)))
  (core module $m
    (import "" "f" (func $f (result i32)))
    (import "" "wait" (func $wait (param i64)))
    (func (export "run") (result i32) (local $n i32)
      (loop $more
        (drop (call $f))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $n) (i32.const TASKS))))
      (call $wait (i64.const 20000000))
      (local.get $n)))
  (core instance $i (instantiate $m (with "" (instance (export "f" (func $f)) (export "wait" (func $wait))))))
  (type $run (func async (result u32)))
  (func $run (type $run) (canon lift (core func $i "run")))
  (export "run" (func $run)))
(instance $a (instantiate $a (with "wait" (func $clock "wait-for")) (with "f" (func $b "FUNCTION"))))
(export "run" (func $a "run")))"#;
    for (function, tasks) in [("f", 1), ("f", 40), ("g", 1), ("g", 40)] {
        let text = text
            .replace("FUNCTION", function)
            .replace("TASKS", &tasks.to_string());
        let bytes = wat::parse_str(text).unwrap();
        let sandbox = Sandbox::new(SandboxOptions {
            slots: 1,
            optimize: false,
            ..SandboxOptions::default()
        })
        .unwrap();
        let component = sandbox.load("x.wasm", &bytes).await.unwrap();
        // Several at once wait for the only slot, and each takes at most its four stacks.
        let one = || call(&component, Policy::default(), "run", json!({}));
        for result in <[_; 3]>::from(tokio::join!(one(), one(), one())) {
            let ended = (result.structured, result.error);
            let expected = (Some(json!({ "result": tasks })), None);
            assert_eq!(ended, expected, "{function} {tasks}");
        }
    }
}

/// A component with two parts, of which one reads this many values of flags that the other writes, and returns their number.
fn passing(count: u32) -> String {
    let names: String = (0..8).map(|n| format!(" \"eight-f{n}\"")).collect();
    let memory = 1 + 4 * count / 65_536;
    format!(
        r#"(component
(component $a
  (type $f (flags{names})) (export $t "f" (type $f)) (type $s (stream $t))
  (core module $libc (memory (export "memory") {memory}))
  (core instance $libc (instantiate $libc))
  (core func $new (canon stream.new $s))
  (core func $write (canon stream.write $s async (memory $libc "memory")))
  (core module $m
    (import "" "memory" (memory {memory}))
    (import "" "new" (func $new (result i64)))
    (import "" "write" (func $write (param i32 i32 i32) (result i32)))
    (func (export "open") (result i32) (local $ends i64)
      (memory.fill (i32.const 0) (i32.const 255) (i32.mul (i32.const 4) (i32.const {count})))
      (local.set $ends (call $new))
      (drop (call $write (i32.wrap_i64 (i64.shr_u (local.get $ends) (i64.const 32))) (i32.const 0) (i32.const {count})))
      (i32.wrap_i64 (local.get $ends))))
  (core instance $i (instantiate $m (with "" (instance
    (export "memory" (memory $libc "memory")) (export "new" (func $new)) (export "write" (func $write))))))
  (func (export "open") (result $s) (canon lift (core func $i "open"))))
(instance $a (instantiate $a))
(component $b
  (type $f (flags{names})) (import "f" (type $t (eq $f))) (type $s (stream $t))
  (import "open" (func $open (result $s)))
  (core module $libc (memory (export "memory") {memory}))
  (core instance $libc (instantiate $libc))
  (core func $open (canon lower (func $open)))
  (core func $read (canon stream.read $s async (memory $libc "memory")))
  (core module $m
    (import "" "open" (func $open (result i32)))
    (import "" "read" (func $read (param i32 i32 i32) (result i32)))
    (func (export "pass") (result i32)
      (i32.shr_u (call $read (call $open) (i32.const 0) (i32.const {count})) (i32.const 4))))
  (core instance $i (instantiate $m (with "" (instance (export "open" (func $open)) (export "read" (func $read))))))
  (func (export "pass") (result u32) (canon lift (core func $i "pass"))))
(instance $b (instantiate $b (with "f" (type $a "f")) (with "open" (func $a "open"))))
(export "pass" (func $b "pass")))"#
    )
}

/// The engine makes a text of each name of a flag, and counts its length alone.
#[tokio::test]
async fn values_passed_between_parts_take_a_share_of_memory() {
    let memory = 100 << 20;
    for (count, is_ok) in [(40_000, true), (100_000, false)] {
        let component = load(&sandbox(), &passing(count)).await.unwrap();
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        let result = call(&component, limited(limits), "pass", json!({})).await;
        let limit = Limit::Memory(memory);
        let expected = (!is_ok).then_some(ToolError::Limit { limit });
        assert_eq!(result.error, expected, "{count}");
    }
}
