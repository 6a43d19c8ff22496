//! Host memory held for a guest counts as memory of its call.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed; its numbers are small"
)]

mod support;

use support::{Probe, call, hoard, load, only_tool, sandbox};
use toolcell_core::{Limit, Limits, Policy, Receipt, ToolError};
use toolcell_sandbox::{Sandbox, SandboxOptions};

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

/// A hundred times the size of its text, and made when the guest has returned.
#[tokio::test]
async fn structured_result_counts_as_memory_of_the_call() {
    let count = 100_000;
    let (result, receipt) = run(&hoard::objects(count), 256 << 20, &[]).await;
    assert_eq!(result, Ok(()));
    assert!(receipt.peak_host_memory > 600 * u64::from(count), "{receipt:?}");
    let less = receipt.peak_memory - 1;
    let (result, receipt) = run(&hoard::objects(count), less, &[]).await;
    assert_eq!(result, stopped(less));
    assert!(receipt.peak_memory <= less, "{receipt:?}");
    // Beyond the output limit it is not parsed.
    let (result, receipt) = run(&hoard::objects(650_000), 256 << 20, &[]).await;
    let limit = Limit::Output(Limits::default().output);
    assert_eq!(result, Err(ToolError::Limit { limit }));
    assert_eq!(receipt.peak_host_memory, 0);
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

#[tokio::test]
async fn open_files_beyond_those_of_all_calls_are_in_the_receipt() {
    let directory = tempfile::tempdir().unwrap();
    let grant = format!("read={}", directory.path().display());
    for (open_files, listings, expected) in [(4, 3, "done"), (4, 4, "crashed"), (0, 1, "unavailable")] {
        let sandbox = Sandbox::new(SandboxOptions {
            open_files,
            ..SandboxOptions::default()
        })
        .unwrap();
        let component = load(&sandbox, &hoard::listings(listings)).await.unwrap();
        let policy = Policy::granting([grant.as_str()]).unwrap();
        let tool = only_tool(&component, policy);
        // What a call has taken is free again after it.
        for _ in 0..2 {
            let (result, observed) = call(&*tool).await;
            let ended = result.map_or_else(|error| error.kind().to_owned(), |_| "done".to_owned());
            assert_eq!(ended, expected, "{open_files} {listings}");
            let denials = &observed.receipt().denials;
            let told = denials.first().map(|denial| denial.target.as_str());
            let full = "all 4 open files of the running calls are in use";
            assert_eq!(told, (expected == "crashed").then_some(full));
        }
    }
}
