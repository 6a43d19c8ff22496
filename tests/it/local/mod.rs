//! Models that run on this machine.

#[cfg(feature = "local")]
mod engine;
mod models;
