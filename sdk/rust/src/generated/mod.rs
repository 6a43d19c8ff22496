//! Bindings generated from `wit/`, one module for each world. `tests/bindings.rs` regenerates them.
#![allow(
    clippy::all,
    clippy::cast_possible_truncation,
    clippy::semicolon_if_nothing_returned,
    clippy::uninlined_format_args,
    clippy::unwrap_used,
    missing_docs,
    rustdoc::all,
    unreachable_pub,
    unsafe_code,
    unused_imports,
    reason = "generated"
)]

pub mod hook;
#[cfg(target_family = "wasm")]
pub(crate) mod keyvalue;
pub mod prompts;
pub mod resources;
pub mod tool;
