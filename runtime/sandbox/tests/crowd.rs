//! Many concurrent hostile calls: host memory stays flat and other calls proceed.
//!
//! One test in its own binary, because it measures the whole process.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::hoard;
use support::{Probe, call, load, only_tool};
use toolcell_core::{Limits, Policy, Tool};
use toolcell_sandbox::{Sandbox, SandboxOptions};

const MIB: u64 = 1 << 20;

/// Memory limit of one call.
const MEMORY: u64 = 16 * MIB;

/// Memory limit of all calls in total.
const BUDGET: u64 = 64 * MIB;

/// Host memory allowed in addition to the memory of guests.
const OVERHEAD: u64 = 32 * MIB;

fn policy(fuel: u64) -> Policy {
    Policy {
        limits: Limits {
            fuel,
            wall_ms: 60_000,
            memory: MEMORY,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// Returns the resident memory of this process in bytes: the line `VmRSS: 1234 kB` of proc_pid_status(5).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A thread that samples the memory of this process and records the maximum.
struct MemorySampler {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl MemorySampler {
    fn start() -> Self {
        let sampler = Self {
            peak: Arc::new(AtomicU64::new(resident())),
            stop: Arc::default(),
        };
        let (peak, stop) = (sampler.peak.clone(), sampler.stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        sampler
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.peak.load(Ordering::Relaxed).max(resident())
    }
}

const HANDLES: &str = "(type $r (resource (rep i32))) (core func $new (canon resource.new $r))
    (core instance $made (export \"new\" (func $new)))";

const LOG: &str = r#"(import "toolcell:tool/log@0.1.0" (instance $log
      (type $l (enum "trace" "debug" "info" "warn" "error"))
      (export "level" (type $level (eq $l)))
      (export "write" (func (param "level" $level) (param "message" string)))))
    (core func $write (canon lower (func $log "write") (memory $memory)))
    (core instance $log-core (export "write" (func $write)))"#;

/// Returns one tool for each way to exhaust resources.
async fn hostile(sandbox: &Sandbox, directory: &Path) -> Vec<Arc<dyn Tool>> {
    let body = |run: &str| Probe {
        module: "(table $t 10 funcref) (func $forever (result i32) (i32.add (i32.const 1) (call $forever)))"
            .into(),
        run: run.into(),
        ..Probe::default()
    };
    let probes = [
        // Touches all available memory, and traps.
        body(
            "(loop $more (drop (memory.grow (i32.const 16)))
               (memory.fill (i32.const 65536) (i32.const 1) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 65536)))
               (br_if $more (i32.lt_u (memory.size) (i32.const 240)))) unreachable",
        ),
        // Returns more than its limit.
        body("(drop (memory.grow (i32.const 120))) (call $text (i32.const 65536) (i32.const 7000000))"),
        // Returns one megabyte ten thousand times.
        Probe {
            pages: 32,
            ..body(
                "(local.set $i (i32.const 65536))
                 (loop $next
                   (i32.store8 (local.get $i) (i32.const 0))
                   (i32.store offset=4 (local.get $i) (i32.const 0))
                   (i32.store offset=8 (local.get $i) (i32.const 0x100000))
                   (local.set $i (i32.add (local.get $i) (i32.const 32)))
                   (br_if $next (i32.lt_u (local.get $i) (i32.const 385536))))
                 (call $answer (i32.const 65536) (i32.const 10000) (i32.const 0) (i32.const 0))",
            )
        },
        // Recurses, fills a table, loops, and traps.
        body("(return (call $forever))"),
        body("(loop $more (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) unreachable"),
        body("(loop br 0) unreachable"),
        body("unreachable"),
        // Creates handles without end.
        Probe {
            items: HANDLES.into(),
            with: "(with \"made\" (instance $made))".into(),
            module: "(import \"made\" \"new\" (func $new (param i32) (result i32)))".into(),
            run: "(loop (drop (call $new (i32.const 1))) (br 0)) unreachable".into(),
            ..Probe::default()
        },
        // Logs half a megabyte a hundred times, and traps.
        Probe {
            items: LOG.into(),
            with: "(with \"log\" (instance $log-core))".into(),
            module: "(import \"log\" \"write\" (func $log (param i32 i32 i32)))".into(),
            run: "(drop (memory.grow (i32.const 16))) (local.set $i (i32.const 100))
                (loop (call $log (i32.const 2) (i32.const 65536) (i32.const 500000))
                  (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) unreachable"
                .into(),
            ..Probe::default()
        },
    ];
    // Make the host allocate: headers, requests, bodies, listings, poll lists, random bytes.
    let hoards = [
        hoard::headers(1_000),
        hoard::methods(100),
        hoard::bodies(300),
        hoard::listings(1_000),
        hoard::waiting(300_000),
        hoard::random(1_000),
    ];
    let mut granted = policy(20_000_000);
    granted.grants = Policy::granting([format!("write={}", directory.display()).as_str()])
        .unwrap()
        .grants;
    let mut tools = Vec::new();
    for probe in probes.into_iter().chain(hoards) {
        let component = load(sandbox, &probe).await.unwrap();
        tools.push(only_tool(&component, granted.clone()));
    }
    tools
}

/// Runs the tools in rotation with limited concurrency. Each call fails, and none exceeds its memory limit.
async fn run_all(tools: &[Arc<dyn Tool>], times: usize, at_once: usize) {
    let mut running = tokio::task::JoinSet::new();
    let check =
        |ended: Result<bool, tokio::task::JoinError>| assert!(ended.unwrap(), "a hostile call went well");
    for i in 0..times {
        if running.len() >= at_once {
            check(running.join_next().await.unwrap());
        }
        let tool = tools[i % tools.len()].clone();
        running.spawn(async move {
            let (result, observed) = call(&*tool).await;
            observed.receipt().peak_memory <= MEMORY && result.is_err()
        });
    }
    while let Some(ended) = running.join_next().await {
        check(ended);
    }
}

async fn memory_stays_flat_while_a_thousand_hostile_calls_run(sandbox: &Sandbox) {
    // A listing of it would take a mebibyte.
    let directory = tempfile::tempdir().unwrap();
    for i in 0..4_000 {
        std::fs::write(directory.path().join(format!("{i:0200}")), "").unwrap();
    }
    let tools = hostile(sandbox, directory.path()).await;
    // One round, so that one-time allocations have happened.
    run_all(&tools, tools.len(), 1).await;
    for (at_once, limit) in [(1, MEMORY), (16, BUDGET)] {
        let before = resident();
        let sampler = MemorySampler::start();
        run_all(&tools, 1_000, at_once).await;
        let grown = sampler.stop().saturating_sub(before);
        println!(
            "1,000 hostile calls, {at_once} at a time: {} MiB more at most",
            grown / MIB
        );
        assert!(
            grown <= limit + OVERHEAD,
            "{grown} bytes more than {before}, and {limit} are allowed for guests"
        );
    }
}

/// Returns the median time of 100 calls.
async fn median(tool: &Arc<dyn Tool>) -> Duration {
    let mut times = Vec::new();
    for _ in 0..100 {
        // In a separate task, like calls in a server.
        let tool = tool.clone();
        let began = Instant::now();
        let answer = tokio::spawn(async move { call(&*tool).await.0 }).await.unwrap();
        times.push(began.elapsed());
        answer.unwrap();
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns the minimum of several medians, to exclude disturbances by other work on the machine.
async fn best(tool: &Arc<dyn Tool>, times: u32) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..times {
        best = best.min(median(tool).await);
    }
    best
}

async fn calls_of_others_take_twice_their_usual_time_at_most(sandbox: &Sandbox) {
    let echo = load(sandbox, &Probe::default()).await.unwrap();
    let echo = only_tool(&echo, Policy::default());
    let looping = load(sandbox, &Probe::running("(loop br 0) unreachable"))
        .await
        .unwrap();
    let looping = only_tool(&looping, policy(u64::MAX));

    let before = best(&echo, 10).await;
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let looping = looping.clone();
        crowd.spawn(async move { call(&*looping).await.0 });
    }
    // Until each of them was scheduled once: from then on they are known to be long.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    // Both sides are measured in the same way, on the same machine, at the same time. Other work on the machine can
    // disturb every one of some hundreds of calls; effects of the scheduler apply to all of them.
    let among = best(&echo, 10).await;
    assert_eq!(crowd.len(), 200, "they all run");
    assert!(crowd.try_join_next().is_none(), "they all run");
    crowd.shutdown().await;
    let usual = before.max(best(&echo, 10).await);
    println!("a call takes {usual:?} alone and {among:?} among 200 that loop");
    assert!(
        among <= usual * 2,
        "{usual:?} alone, {among:?} among 200 that loop"
    );
}

/// One test, because it measures the whole process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_calls_neither_fill_memory_nor_block_other_calls() {
    if !Path::new("/proc/self/status").exists() {
        println!("this system does not say how much memory a process has");
        return;
    }
    let sandbox = |memory| {
        Sandbox::new(SandboxOptions {
            memory,
            optimize: false,
            ..SandboxOptions::default()
        })
        .unwrap()
    };
    memory_stays_flat_while_a_thousand_hostile_calls_run(&sandbox(BUDGET)).await;
    calls_of_others_take_twice_their_usual_time_at_most(&sandbox(4 << 30)).await;
}
