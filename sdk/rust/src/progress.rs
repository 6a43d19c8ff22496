//! Progress of a long call, shown to the user. The host drops reports beyond a rate limit.

/// Reports that `done` of `total` steps are completed, in units of the tool's choice.
pub fn report(done: u64, total: impl Into<Option<u64>>) {
    sink(done, total.into(), None);
}

/// Reports progress with a message.
pub fn report_with(done: u64, total: impl Into<Option<u64>>, message: &str) {
    sink(done, total.into(), Some(message));
}

#[cfg(target_family = "wasm")]
fn sink(done: u64, total: Option<u64>, message: Option<&str>) {
    crate::generated::tool::toolcell::tool::progress::report(done, total, message);
}

#[cfg(not(target_family = "wasm"))]
fn sink(_: u64, _: Option<u64>, _: Option<&str>) {}
