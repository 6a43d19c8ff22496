//! Many hostile calls at once: the host's memory stays flat and the calls of others go on.
//!
//! One test in a binary of its own, because it measures the whole process.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{Probe, call, load, only_tool};
use toolcell_core::{Limits, Policy, Tool, ToolError, ToolOutput};
use toolcell_sandbox::{Sandbox, SandboxOptions};

const MEMORY: u64 = 16 << 20;

fn policy() -> Policy {
    Policy {
        limits: Limits {
            fuel: u64::MAX,
            wall_ms: 60_000,
            memory: MEMORY,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// Bytes of memory of this process: the line `VmRSS: 1234 kB` of proc_pid_status(5).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

async fn hostile(sandbox: &Sandbox) -> Vec<Arc<dyn Tool>> {
    let mut tools = Vec::new();
    for body in [
        // Touches all the memory it can get, and traps.
        "(loop $more (drop (memory.grow (i32.const 16)))
           (memory.fill (i32.const 65536) (i32.const 1) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 65536)))
           (br_if $more (i32.lt_u (memory.size) (i32.const 240)))) unreachable",
        // Returns more than it may.
        "(drop (memory.grow (i32.const 120))) (call $text (i32.const 65536) (i32.const 7000000))",
        // Recurses without end.
        "(return (call $forever))",
        // Traps at once.
        "unreachable",
    ] {
        let probe = Probe {
            module: "(func $forever (result i32) (i32.add (i32.const 1) (call $forever)))".into(),
            run: body.into(),
            ..Probe::default()
        };
        let component = load(sandbox, &probe).await.unwrap();
        tools.push(only_tool(&component, policy()));
    }
    tools
}

/// Runs every tool of a list again and again, eight at a time.
async fn run_all(tools: &[Arc<dyn Tool>], times: usize) {
    let mut running: tokio::task::JoinSet<Result<ToolOutput, ToolError>> = tokio::task::JoinSet::new();
    for i in 0..times {
        if running.len() >= 8 {
            assert!(running.join_next().await.unwrap().unwrap().is_err());
        }
        let tool = tools[i % tools.len()].clone();
        running.spawn(async move { call(&*tool).await.0 });
    }
    while let Some(result) = running.join_next().await {
        assert!(result.unwrap().is_err());
    }
}

async fn memory_stays_flat_while_a_thousand_hostile_calls_run(sandbox: &Sandbox) {
    let tools = hostile(sandbox).await;
    // Once around, so that what is made once is there.
    run_all(&tools, tools.len()).await;
    let before = resident();
    let mut peak = before;
    for _ in 0..10 {
        run_all(&tools, 100).await;
        peak = peak.max(resident());
    }
    let allowed = MEMORY + (32 << 20);
    assert!(
        peak.saturating_sub(before) <= allowed,
        "from {before} to {peak} bytes"
    );
}

/// The middle of the times of 100 calls.
async fn median(tool: &Arc<dyn Tool>) -> Duration {
    let mut times = Vec::new();
    for _ in 0..100 {
        // From a task of its own, as calls come in a server.
        let tool = tool.clone();
        let began = Instant::now();
        let answer = tokio::spawn(async move { call(&*tool).await.0 }).await.unwrap();
        times.push(began.elapsed());
        answer.unwrap();
    }
    times.sort_unstable();
    times[times.len() / 2]
}

async fn calls_of_others_go_on_while_two_hundred_hostile_ones_run(sandbox: &Sandbox) {
    let echo = load(sandbox, &Probe::default()).await.unwrap();
    let echo = only_tool(&echo, Policy::default());
    let looping = load(sandbox, &Probe::running("(loop br 0) unreachable"))
        .await
        .unwrap();
    let looping = only_tool(&looping, policy());

    let alone = median(&echo).await;
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let looping = looping.clone();
        crowd.spawn(async move { call(&*looping).await.0 });
    }
    // Until each of them had the processor once: from then on they are known to be long.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let began = Instant::now();
    let among_others = median(&echo).await;
    let took = began.elapsed();
    assert_eq!(crowd.len(), 200, "they all run");
    assert!(crowd.try_join_next().is_none(), "they all run");
    crowd.abort_all();
    // In turns of ten milliseconds with 200 others each call would take a second. The bound leaves room for a machine
    // that has other work: each call may wait for one turn of somebody else.
    println!("a call takes {alone:?} alone and {among_others:?} among 200 that loop; 100 took {took:?}");
    assert!(
        among_others < alone * 2 + Duration::from_millis(20),
        "{alone:?} alone, {among_others:?} among 200 that loop"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_hostile_calls_neither_fills_the_memory_nor_stops_the_calls_of_others() {
    if !Path::new("/proc/self/status").exists() {
        println!("this system does not say how much memory a process has");
        return;
    }
    let sandbox = Sandbox::new(SandboxOptions {
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap();
    memory_stays_flat_while_a_thousand_hostile_calls_run(&sandbox).await;
    calls_of_others_go_on_while_two_hundred_hostile_ones_run(&sandbox).await;
}
