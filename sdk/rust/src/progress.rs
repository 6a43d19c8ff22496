//! Progress of a long call, for the person who waits. The host drops reports beyond a rate of its own.

/// Reports that `done` steps of `total` are done, in steps of the tool's own choice.
pub fn report(done: u64, total: impl Into<Option<u64>>) {
    sink(done, total.into(), None);
}

/// Reports progress with words about what goes on.
pub fn report_with(done: u64, total: impl Into<Option<u64>>, message: &str) {
    sink(done, total.into(), Some(message));
}

#[cfg(target_family = "wasm")]
fn sink(done: u64, total: Option<u64>, message: Option<&str>) {
    crate::bindings::toolcell::tool::progress::report(done, total, message);
}

#[cfg(not(target_family = "wasm"))]
fn sink(_: u64, _: Option<u64>, _: Option<&str>) {}
