//! The engine: llama.cpp in a child process, and the provider that asks it.
//!
//! llama.cpp ends its process for some defects of a file, which no caller can catch. It therefore runs in a process of its own
//! ([`engine_child_main`]), which is started with the first request and again after it has ended.

mod align;
mod child;
mod host;
mod protocol;
mod provider;
mod runner;
mod stream;

pub use child::engine_child_main;
pub use provider::{LocalModel, LocalOptions, MAX_WAITING, USUAL_CONTEXT};

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
