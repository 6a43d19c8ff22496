//! Fuzz target for components: arbitrary bytes yield an error or a tool, never a panic. `tests/fuzz` describes how to
//! run it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuzz::Target;
use support::{Probe, call, only_tool, sandbox};
use toolcell_core::{Limits, Policy, Tool};
use toolcell_sandbox::{Component, Sandbox};

/// Short limits, because some mutants loop.
fn policy() -> Policy {
    Policy {
        limits: Limits {
            fuel: 1_000_000,
            wall_ms: 1_000,
            memory: 4 << 20,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// Components to start from: a tool as often as all others together, because its mutants pass the most checks, and
/// every small attack.
fn seeds() -> Vec<Vec<u8>> {
    let tool = Probe::default().build();
    let corpus = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/corpora/attacks"
    ));
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    let mut seeds: Vec<Vec<u8>> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "wat"))
        .map(|path| wat::parse_str(std::fs::read_to_string(path).unwrap()).unwrap())
        .filter(|bytes| bytes.len() < 10_000)
        .collect();
    seeds.extend(vec![tool; seeds.len()]);
    seeds
}

/// Returns the result of loading a component and, on success, calling it.
async fn end(sandbox: &Sandbox, bytes: &[u8]) -> String {
    match sandbox.load("mutant", bytes).await {
        Ok(component) => match call(&*first_tool(&component)).await.0 {
            Ok(_) => "answers".into(),
            Err(error) => format!("loads, then {}", error.kind()),
        },
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let debug = format!("{error:?}");
            debug.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
        }
    }
}

/// A mutant may have several tools.
fn first_tool(component: &Component) -> Arc<dyn Tool> {
    match component.definitions().len() {
        1 => only_tool(component, policy()),
        _ => component.tools(policy()).remove(0),
    }
}

/// Panics inside of the compiler are caught there, and would be missed.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn watched() -> (Sandbox, tokio::runtime::Runtime) {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        eprintln!("{panic}");
    }));
    (sandbox(), tokio::runtime::Runtime::new().unwrap())
}

#[test]
fn fuzz_arbitrary_bytes_never_make_the_host_panic() {
    let (sandbox, runtime) = watched();
    let tried = Target::new("component", 1_500).seeds(seeds()).run(|bytes| {
        let end = runtime.block_on(end(&sandbox, bytes));
        assert_eq!(PANICS.swap(0, Ordering::Relaxed), 0, "a panic, see above");
        end
    });
    // The mutants are neither all rejected early nor all harmless.
    let ends: Vec<&String> = tried.outcomes.keys().collect();
    assert!(ends.len() >= 6, "{ends:?}");
    assert!(ends.iter().any(|end| *end == "answers"), "{ends:?}");
    assert!(!ends.iter().any(|end| *end == "loads, then host"), "{ends:?}");
}

#[test]
fn every_truncated_tool_is_refused_or_runs_without_a_panic() {
    let (sandbox, runtime) = watched();
    let tool = Probe::default().build();
    for cut in 0..tool.len() {
        runtime.block_on(end(&sandbox, &tool[..cut]));
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a panic, see above");
}
