//! Host memory held for a guest counts as memory of its call.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed; its numbers are small"
)]

mod support;

use support::{Probe, call, hoard, load, only_tool, sandbox};
use toolcell_core::{Limit, Limits, Policy, Receipt, ToolError};

const KIB: u64 = 1 << 10;
const PAGE: u64 = 64 * KIB;

/// Price of a headers object.
const FIELDS: u64 = 192 * KIB;

async fn run(probe: &Probe, memory: u64, grants: &[String]) -> (Result<(), ToolError>, Receipt) {
    let component = load(&sandbox(), probe).await.unwrap();
    let policy = Policy {
        limits: Limits {
            memory,
            ..Limits::default()
        },
        grants: Policy::granting(grants.iter().map(String::as_str))
            .unwrap()
            .grants,
    };
    let (result, observed) = call(&*only_tool(&component, policy)).await;
    (result.map(drop), observed.receipt().clone())
}

fn stopped(memory: u64) -> Result<(), ToolError> {
    Err(ToolError::Limit {
        limit: Limit::Memory(memory),
    })
}

#[tokio::test]
async fn host_objects_beyond_the_memory_limit_end_the_call() {
    let memory = 2 * PAGE + 10 * FIELDS;
    let (result, receipt) = run(&hoard::headers(10), memory, &[]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(
        (receipt.peak_memory, receipt.peak_host_memory),
        (memory, 10 * FIELDS)
    );

    let (result, receipt) = run(&hoard::headers(10), memory - 1, &[]).await;
    assert_eq!(result, stopped(memory - 1));
    assert_eq!(receipt.peak_host_memory, 9 * FIELDS, "what was granted");
}

#[tokio::test]
async fn every_kind_of_hoard_ends_with_the_memory_limit() {
    let directory = tempfile::tempdir().unwrap();
    let grants = [format!("read={}", directory.path().display())];
    let memory = 12 << 20;
    for (name, probe, memory) in [
        ("headers", hoard::headers(1_000), memory),
        ("methods", hoard::methods(100), memory),
        ("bodies", hoard::bodies(300), memory),
        ("listings", hoard::listings(1_000), 1 << 20),
        ("waiting", hoard::waiting(900), 102 * PAGE + 32 * KIB),
        ("random", hoard::random(1_000), memory),
    ] {
        let (result, receipt) = run(&probe, memory, &grants).await;
        assert_eq!(result, stopped(memory), "{name}");
        assert!(receipt.peak_memory <= memory, "{name}: {receipt:?}");
        assert!(receipt.peak_host_memory > 0, "{name}: {receipt:?}");
    }
}

#[tokio::test]
async fn moderate_use_of_each_kind_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let grants = [format!("read={}", directory.path().display())];
    for (name, probe) in [
        ("headers", hoard::headers(10)),
        ("methods", hoard::methods(5)),
        ("bodies", hoard::bodies(5)),
        ("listings", hoard::listings(100)),
        ("waiting", hoard::waiting(900)),
        ("random", hoard::random(5)),
    ] {
        let (result, receipt) = run(&probe, Limits::default().memory, &grants).await;
        assert_eq!(result, Ok(()), "{name}");
        assert!(receipt.peak_host_memory > 0, "{name}: {receipt:?}");
    }
}
