//! Memory of calls that wait: ten thousand of them at once, and the one for which there is no slot.
//!
//! One test in its own binary, because it measures the whole process.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use support::hoard::with;
use support::{Probe, call_of, load, only_tool};
use toolcell_core::{BoxFuture, CallContext, CallResult, Limits, Policy, ToolError};
use toolcell_sandbox::{Sandbox, SandboxOptions};

/// Number of calls that wait at once.
const CALLS: u32 = 10_000;

/// Memory that they may take in total, in bytes.
const MEMORY: u64 = 1 << 30;

/// Sleeps for an hour.
fn sleeper() -> Probe {
    with(
        r#"(import "wasi:io/poll@0.2.0" (instance $poll
            (export "pollable" (type $p (sub resource)))
            (export "[method]pollable.block" (func (param "self" (borrow $p))))))
        (alias export $poll "pollable" (type $pollable))
        (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
            (export "pollable" (type $p (eq $pollable)))
            (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))"#,
        &[
            (
                "sleep",
                "$clock \"subscribe-duration\"",
                "(param i64) (result i32)",
            ),
            ("block", "$poll \"[method]pollable.block\"", "(param i32)"),
        ],
        "(call $block (call $sleep (i64.const 3600000000000))) unreachable",
    )
}

/// Returns the resident memory of this process in bytes: the line `VmRSS: 1234 kB` of proc_pid_status(5).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a call until it waits for something that is not there yet.
fn run_until_it_waits(call: &mut BoxFuture<'_, CallResult>) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => panic!("it does not wait: {result:?}"),
            Poll::Pending if woken.0.swap(false, Ordering::Relaxed) => {}
            Poll::Pending => return,
        }
    }
}

#[test]
fn ten_thousand_waiting_calls_take_less_than_a_gibibyte() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let sandbox = Sandbox::new(SandboxOptions {
        slots: CALLS,
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap();
    assert!(sandbox.has_pool());
    let component = runtime.block_on(load(&sandbox, &sleeper())).unwrap();
    let policy = |wall_ms| Policy {
        limits: Limits {
            wall_ms,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let tool = only_tool(&component, policy(3_600_000));
    let call = || tool.call(call_of(serde_json::json!({})), CallContext::unobserved());
    let inside = runtime.enter();
    let before = resident();
    let mut calls: Vec<_> = (0..CALLS).map(|_| call()).collect();
    calls.iter_mut().for_each(run_until_it_waits);
    let taken = resident().saturating_sub(before);
    println!("{} KiB for each waiting call", taken / u64::from(CALLS) / 1_024);
    assert!(taken < MEMORY, "{taken} bytes");

    // One more finds no slot until its time is over.
    drop(inside);
    let hasty = only_tool(&component, policy(10));
    let hasty = || hasty.call(call_of(serde_json::json!({})), CallContext::unobserved());
    let busy = ToolError::Unavailable {
        message: "too many calls are running".into(),
    };
    assert_eq!(runtime.block_on(hasty()).into_result(), Err(busy));
    // One call that ends makes room.
    calls.pop();
    let timeout = ToolError::Limit {
        limit: toolcell_core::Limit::WallTimeMs(10),
    };
    assert_eq!(runtime.block_on(hasty()).into_result(), Err(timeout));
}
