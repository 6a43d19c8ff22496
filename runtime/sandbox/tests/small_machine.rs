//! Without sufficient address space there is no pool, and calls still run.
//!
//! It limits its own process, and therefore has its own `main`.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use rustix::process::{Resource, Rlimit, setrlimit};
use support::{Probe, call, load, only_tool};
use toolcell_sandbox::{Sandbox, SandboxOptions};

/// Enough for one memory of a cell, 4 GiB of address space with guards, but not for two hundred.
const ADDRESSES: u64 = 12 << 30;

fn main() {
    let limit = Rlimit {
        current: Some(ADDRESSES),
        maximum: Some(ADDRESSES),
    };
    if !cfg!(target_os = "linux") {
        println!("test skipped: only Linux limits addresses reliably");
        return;
    }
    setrlimit(Resource::As, limit).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(without_addresses_for_a_pool_calls_allocate_on_demand());
    println!("test without_addresses_for_a_pool_calls_allocate_on_demand ... ok");
}

async fn without_addresses_for_a_pool_calls_allocate_on_demand() {
    let sandbox = Sandbox::new(SandboxOptions {
        optimize: false,
        ..SandboxOptions::default()
    })
    .unwrap();
    assert!(!sandbox.has_pool());
    let component = load(&sandbox, &Probe::default()).await.unwrap();
    let tool = only_tool(&component, Default::default());
    for _ in 0..10 {
        call(&*tool).await.0.unwrap();
    }
}
