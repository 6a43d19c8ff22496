//! Both sides of every limit of a call, and the effects a call leaves behind.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod outcomes;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use support::{Probe, call, call_of, ended, load, observed_context, only_tool, run, sandbox};
use toolcell_core::tool::{CallObserver, LogLine, LogSource};
use toolcell_core::{CallContext, CallResult, Limit, Limits, Policy, RemainingBudget, ToolError};
use toolcell_sandbox::{Sandbox, SandboxOptions};

const PAGE: u64 = 64 << 10;

fn limited(change: impl FnOnce(&mut Limits)) -> Policy {
    let mut policy = Policy::default();
    change(&mut policy.limits);
    policy
}

fn stopped_by(limit: Limit) -> Result<CallResult, ToolError> {
    Err(ToolError::Limit { limit })
}

const DONE: &str = "(call $text (i32.const 0) (i32.const 0))";

#[tokio::test]
async fn arguments_and_context_reach_the_guest_and_are_counted() {
    let component = load(&sandbox(), &Probe::default()).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    let (mut context, observer) = observed_context();
    context.values.insert("session".into(), json!("s1"));
    let result = tool.call(call_of(json!({"a": "é"})), context).await;
    let (result, observed) = ended(result, &observer);
    assert_eq!(result, Ok(CallResult::text(r#"{"a":"é"}"#)));
    let receipt = observed.receipt();
    assert_eq!(
        receipt.bytes_in,
        10 + "session".len() as u64 + r#""s1""#.len() as u64
    );
    assert_eq!(receipt.bytes_out, 10);
    assert_eq!(receipt.peak_memory, 2 * PAGE);
    assert!(
        receipt.fuel > 0 && receipt.wall_us >= receipt.cpu_us,
        "{receipt:?}"
    );
}

#[tokio::test]
async fn fuel_is_deterministic_and_exactly_enough() {
    let probe = Probe::running(&format!(
        "(local.set $i (i32.const 1000)) (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) {DONE}"
    ));
    let component = load(&sandbox(), &probe).await.unwrap();
    let mut used = Vec::new();
    for _ in 0..2 {
        let (result, observed) = call(&*only_tool(&component, Policy::default())).await;
        result.unwrap();
        used.push(observed.receipt().fuel);
    }
    assert_eq!(used[0], used[1]);
    let fuel = used[0];
    assert!(fuel > 3_000, "{fuel}");
    let with = |fuel| only_tool(&component, limited(|l| l.fuel = fuel));
    assert!(call(&*with(fuel)).await.0.is_ok());
    // Fuel is checked at the start of functions and loops, so that the last few instructions are free.
    let too_little = fuel - 100;
    let (result, observed) = call(&*with(too_little)).await;
    assert_eq!(result, stopped_by(Limit::Fuel(too_little)));
    assert!(observed.receipt().fuel <= fuel);
}

/// Fuel of one call of a tool that counts to a thousand. It depends only on the engine: not on the process, the
/// machine, the load or the optimisation.
const FUEL_OF_A_THOUSAND: u64 = 5_241;

#[tokio::test]
async fn fuel_does_not_depend_on_process_or_optimisation() {
    let probe = Probe::running(&format!(
        "(local.set $i (i32.const 1000)) (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) {DONE}"
    ));
    for optimize in [false, true] {
        let sandbox = Sandbox::new(SandboxOptions {
            slots: 4,
            optimize,
            ..SandboxOptions::default()
        })
        .unwrap();
        let component = load(&sandbox, &probe).await.unwrap();
        let (result, observed) = call(&*only_tool(&component, Policy::default())).await;
        result.unwrap();
        assert_eq!(
            observed.receipt().fuel,
            FUEL_OF_A_THOUSAND,
            "optimised: {optimize}"
        );
    }
}

#[tokio::test]
async fn memory_beyond_limit_is_denied() {
    // Grows by two pages and traps if that fails, like an allocator.
    let probe = Probe::running(&format!(
        "(if (i32.eq (memory.grow (i32.const 2)) (i32.const -1)) (then unreachable)) {DONE}"
    ));
    let component = load(&sandbox(), &probe).await.unwrap();
    let (result, observed) = call(&*only_tool(&component, limited(|l| l.memory = 4 * PAGE))).await;
    result.unwrap();
    assert_eq!(observed.receipt().peak_memory, 4 * PAGE);
    let (result, observed) = call(&*only_tool(&component, limited(|l| l.memory = 4 * PAGE - 1))).await;
    assert_eq!(result, stopped_by(Limit::Memory(4 * PAGE - 1)));
    assert_eq!(observed.receipt().peak_memory, 2 * PAGE);
    // Not even its initial memory.
    let (result, _) = call(&*only_tool(&component, limited(|l| l.memory = 2 * PAGE - 1))).await;
    assert_eq!(result, stopped_by(Limit::Memory(2 * PAGE - 1)));
}

#[tokio::test]
async fn memory_of_all_calls_has_a_common_limit() {
    let sandbox = Sandbox::new(SandboxOptions {
        slots: 4,
        memory: 5 * PAGE,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap();
    // Starts with two pages; the arguments state how many more it requests.
    let probe = Probe::running(&format!(
        "(if (i32.eq (memory.grow (i32.sub (i32.load8_u offset=5 (local.get $args)) (i32.const 48))) (i32.const -1))
           (then unreachable)) {DONE}"
    ));
    let component = load(&sandbox, &probe).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    let wants = async |pages: u32| {
        tool.call(call_of(json!({"n": pages})), CallContext::unobserved())
            .await
            .into_result()
    };
    for _ in 0..5 {
        assert!(wants(3).await.is_ok());
        let result = wants(4).await;
        assert!(matches!(result, Err(ToolError::Unavailable { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn table_elements_beyond_limit_are_denied() {
    let probe = Probe {
        module: "(table $t 10 funcref)".into(),
        run: format!(
            "(if (i32.eq (table.grow $t (ref.null func) (i32.const 10)) (i32.const -1)) (then unreachable)) {DONE}"
        ),
        ..Probe::default()
    };
    // The imports of a module precede its tables.
    let component = load(&sandbox(), &probe).await.unwrap();
    let with = |n| only_tool(&component, limited(|l| l.table_elements = n));
    assert!(call(&*with(20)).await.0.is_ok());
    assert_eq!(call(&*with(19)).await.0, stopped_by(Limit::TableElements(19)));
}

#[tokio::test]
async fn component_has_up_to_64_tables() {
    let probe = |count| Probe {
        module: "(table 1 funcref)".repeat(count),
        ..Probe::running(DONE)
    };
    assert!(run(&probe(64), Policy::default()).await.0.is_ok());
    let refused = load(&sandbox(), &probe(65)).await.unwrap_err();
    assert!(refused.to_string().contains("tables"), "{refused}");
}

#[tokio::test]
async fn result_beyond_the_output_limit_is_refused() {
    let probe = Probe::running("(call $text (i32.const 70000) (i32.const 5000))");
    let component = load(&sandbox(), &probe).await.unwrap();
    let with = |n| only_tool(&component, limited(|l| l.output = n));
    let (result, observed) = call(&*with(5000)).await;
    assert_eq!(result.unwrap().content[0].byte_len(), 5000);
    assert_eq!(observed.receipt().bytes_out, 5000);
    assert_eq!(call(&*with(4999)).await.0, stopped_by(Limit::Output(4999)));
}

#[tokio::test]
async fn strings_sharing_memory_are_counted_separately() {
    // 10,000 texts, all of the same megabyte: ten gigabytes for a host that copies before it counts.
    let probe = Probe {
        pages: 32,
        run: "(local.set $i (i32.const 65536))
            (loop $next
              (i32.store8 (local.get $i) (i32.const 0))
              (i32.store offset=4 (local.get $i) (i32.const 0))
              (i32.store offset=8 (local.get $i) (i32.const 0x100000))
              (local.set $i (i32.add (local.get $i) (i32.const 32)))
              (br_if $next (i32.lt_u (local.get $i) (i32.const 385536))))
            (call $answer (i32.const 65536) (i32.const 10000) (i32.const 0) (i32.const 0))"
            .into(),
        ..Probe::default()
    };
    let (result, observed) = run(&probe, Policy::default()).await;
    assert_eq!(result, stopped_by(Limit::Output(Limits::default().output)));
    observed.receipt();
}

#[tokio::test]
async fn result_of_64_mebibytes_is_stopped_before_it_is_copied() {
    let probe = Probe {
        pages: 1_100,
        ..Probe::running("(call $text (i32.const 65536) (i32.const 0x4000000))")
    };
    let component = load(&sandbox(), &probe).await.unwrap();
    let tool = |output| only_tool(&component, limited(|l| l.output = output));
    let (result, observed) = call(&*tool(Limits::default().output)).await;
    assert_eq!(result, stopped_by(Limit::Output(Limits::default().output)));
    assert_eq!(observed.receipt().bytes_out, 0);
    // The user can allow it.
    let (result, _) = call(&*tool(64 << 20)).await;
    assert_eq!(result.unwrap().content[0].byte_len(), 64 << 20);
}

#[tokio::test]
async fn handles_beyond_limit_are_denied() {
    let probe = |n: u32| Probe {
        items: "(type $r (resource (rep i32))) (core func $new (canon resource.new $r))
            (core instance $made (export \"new\" (func $new)))"
            .into(),
        with: "(with \"made\" (instance $made))".into(),
        module: "(import \"made\" \"new\" (func $new (param i32) (result i32)))".into(),
        run: format!(
            "(local.set $i (i32.const {n}))
             (loop (drop (call $new (i32.const 1)))
               (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) {DONE}"
        ),
        ..Probe::default()
    };
    let policy = || limited(|l| l.handles = 50);
    assert!(run(&probe(50), policy()).await.0.is_ok());
    assert_eq!(run(&probe(51), policy()).await.0, stopped_by(Limit::Handles(50)));
}

#[tokio::test]
async fn loop_ends_at_the_deadline_and_leaves_a_receipt() {
    let policy = limited(|l| {
        l.wall_ms = 50;
        l.fuel = u64::MAX;
    });
    let (result, observed) = run(&Probe::running("(loop br 0) unreachable"), policy).await;
    assert_eq!(result, stopped_by(Limit::WallTimeMs(50)));
    let receipt = observed.receipt();
    assert!(receipt.wall_us >= 50_000, "{receipt:?}");
    assert!(receipt.cpu_us > 0, "{receipt:?}");
    // The guest was preempted in a loop, whose fuel is not known up to an interval.
    assert!(receipt.fuel >= FUEL_INTERVAL, "{receipt:?}");
}

/// Maximum rounding of the fuel of a call that did not return.
const FUEL_INTERVAL: u64 = 10_000_000;

#[tokio::test]
async fn fuel_of_a_loop_that_does_not_return_is_charged() {
    let counting = |end: &str| {
        Probe::running(&format!(
            "(local.set $i (i32.const 21000000)) (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) {end}"
        ))
    };
    let policy = || {
        limited(|l| {
            l.fuel = 1 << 60;
            l.wall_ms = 600_000;
        })
    };
    let (result, observed) = run(&counting(DONE), policy()).await;
    result.unwrap();
    let exact = observed.receipt().fuel;
    assert!(exact > 4 * FUEL_INTERVAL, "{exact}");
    // The last interval is far from its ends, so that its rounding shows.
    assert!(
        (1_000_000..9_000_000).contains(&(exact % FUEL_INTERVAL)),
        "{exact}"
    );
    // The instructions around the result, and what the crossings of an interval are too late.
    let slack = 10_000;
    for (end, rounding) in [
        ("unreachable", 0),
        (
            "(drop (i32.div_u (i32.const 1) (i32.const 0))) unreachable",
            FUEL_INTERVAL,
        ),
        ("(drop (i32.load (i32.const -4))) unreachable", FUEL_INTERVAL),
    ] {
        let (result, observed) = run(&counting(end), policy()).await;
        assert!(matches!(result, Err(ToolError::Crashed { .. })), "{result:?}");
        let fuel = observed.receipt().fuel;
        assert!(
            fuel + slack >= exact && fuel <= exact + rounding + slack,
            "{end}: {fuel} of {exact}"
        );
        // However it ends, no call is charged more than its limit, which is what was reserved for it.
        let least = limited(|l| {
            l.fuel = exact;
            l.wall_ms = 600_000;
        });
        assert!(
            run(&counting(end), least).await.1.receipt().fuel <= exact,
            "{end}"
        );
    }
}

#[tokio::test]
async fn call_without_wall_time_does_not_run() {
    let (result, observed) = run(&Probe::running(DONE), limited(|l| l.wall_ms = 0)).await;
    assert_eq!(result, stopped_by(Limit::WallTimeMs(0)));
    assert_eq!(observed.receipt().fuel, 0);
}

#[tokio::test]
async fn dropped_call_ends_at_once_and_leaves_a_receipt() {
    let policy = limited(|l| l.fuel = u64::MAX);
    let component = load(&sandbox(), &Probe::running("(loop br 0) unreachable"))
        .await
        .unwrap();
    let tool = only_tool(&component, policy);
    let (context, observer) = observed_context();
    let running = tool.call(call_of(json!({})), context);
    // Without yielding this timer would never fire: one thread runs both.
    let timeout = tokio::time::timeout(Duration::from_millis(30), running).await;
    assert!(timeout.is_err());
    assert!(observer.observed().receipt().fuel >= FUEL_INTERVAL);
}

#[tokio::test]
async fn call_dropped_before_its_start_leaves_no_receipt() {
    let component = load(&sandbox(), &Probe::default()).await.unwrap();
    let tool = only_tool(&component, Policy::default());
    let (context, observer) = observed_context();
    drop(tool.call(call_of(json!({})), context));
    assert!(observer.observed().receipts.is_empty());
}

/// A probe that calls `log.write` with the text at 1024.
fn logging(run: &str) -> Probe {
    Probe {
        items: r#"(import "toolcell:tool/log@0.1.0" (instance $log
              (type $l (enum "trace" "debug" "info" "warn" "error"))
              (export "level" (type $level (eq $l)))
              (export "write" (func (param "level" $level) (param "message" string)))))
            (core func $write (canon lower (func $log "write") (memory $memory)))
            (core instance $log-core (export "write" (func $write)))"#
            .into(),
        with: "(with \"log\" (instance $log-core))".into(),
        module:
            "(import \"log\" \"write\" (func $log (param i32 i32 i32))) (data (i32.const 1024) \"hello\")"
                .into(),
        run: run.into(),
        ..Probe::default()
    }
}

#[tokio::test]
async fn flood_of_log_messages_is_cut_and_the_call_continues() {
    let probe = logging(&format!(
        "(local.set $i (i32.const 100000))
         (loop (call $log (i32.const 2) (i32.const 1024) (i32.const 5))
           (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) {DONE}"
    ));
    let (result, observed) = run(&probe, limited(|l| l.log = 50)).await;
    result.unwrap();
    assert_eq!(observed.messages(LogSource::Log), ["hello"; 10]);
    assert_eq!(observed.messages(LogSource::Host).len(), 1);
    assert!(observed.messages(LogSource::Host)[0].starts_with("99990 lines dropped"));
    assert_eq!(observed.receipt().log_bytes, 500_000);
}

#[tokio::test]
async fn data_passed_to_the_host_at_once_is_limited() {
    let probe = |megabytes: u32| {
        logging(&format!(
            "(drop (memory.grow (i32.const 1700)))
             (call $log (i32.const 2) (i32.const 65536) (i32.const {})) {DONE}",
            megabytes << 20
        ))
    };
    let (result, observed) = run(&probe(1), Policy::default()).await;
    result.unwrap();
    assert_eq!(observed.receipt().log_bytes, 1 << 20);
    let (result, observed) = run(&probe(100), Policy::default()).await;
    assert_eq!(result, stopped_by(Limit::Output(Limits::default().output)));
    assert_eq!(observed.receipt().log_bytes, 0);
}

/// A session with this remaining budget.
struct LowBudget(RemainingBudget);

impl CallObserver for LowBudget {
    fn left(&self) -> RemainingBudget {
        self.0
    }
}

#[tokio::test]
async fn remaining_budget_of_the_session_caps_the_limits_of_a_call() {
    let component = load(&sandbox(), &Probe::running("(loop br 0) unreachable"))
        .await
        .unwrap();
    let mut policy = Policy::default();
    policy.limits.fuel = 1_000_000;
    let tool = only_tool(&component, policy);
    let limit_of = async |left: RemainingBudget| {
        let context = CallContext {
            observer: Arc::new(LowBudget(left)),
            ..CallContext::unobserved()
        };
        let result = tool.call(call_of(json!({})), context).await;
        match result.error {
            Some(ToolError::Limit { limit }) => (limit, result.receipt.unwrap().fuel),
            other => panic!("{other:?}"),
        }
    };
    let fuel = |fuel| RemainingBudget {
        fuel: Some(fuel),
        ..RemainingBudget::default()
    };
    let (limit, used) = limit_of(fuel(1_000)).await;
    assert_eq!(limit, Limit::Fuel(1_000));
    assert!(used <= 1_000, "{used}");
    assert_eq!(limit_of(fuel(2_000_000)).await.0, Limit::Fuel(1_000_000));
    assert_eq!(
        limit_of(RemainingBudget::default()).await.0,
        Limit::Fuel(1_000_000)
    );
    let mut patient = Policy::default();
    patient.limits.fuel = u64::MAX;
    let tool = only_tool(&component, patient);
    for (wall_ms, call_ms) in [(Some(20), None), (Some(2_000), Some(20)), (Some(20), Some(2_000))] {
        let left = RemainingBudget {
            wall_ms,
            call_ms,
            ..RemainingBudget::default()
        };
        let context = CallContext {
            observer: Arc::new(LowBudget(left)),
            ..CallContext::unobserved()
        };
        let result = tool.call(call_of(json!({})), context).await;
        assert_eq!(
            result.error,
            Some(ToolError::Limit {
                limit: Limit::WallTimeMs(20)
            })
        );
    }
}

#[tokio::test]
async fn host_memory_of_instances_counts_as_memory_of_the_call() {
    // Each instance has a copy of the elements, 16 bytes each.
    let elements = "$f ".repeat(100_000);
    let probe = Probe {
        items: format!(
            "(core module $many (func $f) (elem func {elements}))
             (core instance (instantiate $many)) (core instance (instantiate $many))"
        ),
        ..Probe::running(DONE)
    };
    let component = load(&sandbox(), &probe).await.unwrap();
    let (result, observed) = call(&*only_tool(&component, limited(|l| l.memory = 4 << 20))).await;
    result.unwrap();
    let host = observed.receipt().peak_host_memory;
    assert!((3_000_000..3_200_000).contains(&host), "{host}");
    let (result, _) = call(&*only_tool(&component, limited(|l| l.memory = 3_000_000))).await;
    assert_eq!(result, stopped_by(Limit::Memory(3_000_000)));
}
