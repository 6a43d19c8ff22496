//! Runs WebAssembly components as tools, each call in a cell of its own.
//!
//! A [`Sandbox`] is the engine, one a process. [`Sandbox::load`] turns the bytes of a component into a [`Component`]:
//! looked at, compiled or taken from the cache, its definitions read. [`Component::tools`] joins it with a
//! [`toolcell_core::Policy`] and gives one [`toolcell_core::Tool`] for each definition; a call of it runs in a fresh
//! instance, the *cell*, with its own memory, fuel, deadline and grants, and leaves a receipt whatever happens.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use toolcell_core::{CallContext, Policy, ToolCall};
//! use toolcell_sandbox::{Sandbox, SandboxOptions};
//!
//! let sandbox = Sandbox::new(SandboxOptions::default())?;
//! let component = sandbox.load("clock.wasm", &std::fs::read("clock.wasm")?).await?;
//! for tool in component.tools(Policy::default()) {
//!     let call = ToolCall { id: "1".into(), name: tool.spec().name.clone(), arguments: Default::default() };
//!     println!("{:?}", tool.call(call, CallContext::unobserved()).await);
//! }
//! # Ok(()) }
//! ```
//!
//! | concept | module |
//! |---|---|
//! | engine, settings, pool, the clock of epochs | `engine`, `ticker` |
//! | bytes to component: shape, imports, contract | `shape`, `imports`, `contract`, `component` |
//! | compiling, and compiling only once | `compile`, `cache` |
//! | what the tools say of themselves | `definitions` |
//! | a hook: what it says of itself, what it is asked, what it may answer | [`hook`] |
//! | one call | `cell`, `state`, `meter`, `tool`, `failure` |
//! | its memory, in the guest and in the host | `memory`, `limiter`, `objects` |
//! | HTTP requests of a guest | `egress` |
//! | its files | `files` |
//! | what it keeps between calls | `keyvalue` |
//! | what a guest can say and ask | `voice`, `plumbing`, `sockets`, `ledger` |
//!
//! # What holds
//!
//! | what | how much | test in `tests/` |
//! |---|---|---|
//! | a component | 32 MiB, and no more parts, functions and instances than `shape` says | `load`, `attacks` |
//! | compiling it | [`CompileLimits`], in a process of its own where [`Compiler::Child`] is set | `compile_child` |
//! | components that compile and that wait for it | 2 and 64 | `load` |
//! | one moment of a hook | [`toolcell_core::Limits`], and what [`hook`] says of its answers | `hook`, and `tests/it/hooks.rs` of the project |
//! | reading its definitions | nothing granted, 10^9 units of fuel, 10 s; 128 tools, 10 KiB of description each | `load` |
//! | one call | [`toolcell_core::Limits`] | `limits` |
//! | WebAssembly stack | 512 KiB | `attacks` |
//! | what passes to the host at once | the output limit and 1 MiB | `limits` |
//! | random bytes at once | 1 MiB | `wasi` |
//! | log lines of a call | 1,000 of 8 KiB each, within the log limit | `limits`, `wasi` |
//! | time until a cancelled call is gone | one tick of 10 ms | `limits` |
//! | memory of the host for 1,000 hostile calls | their limit together and 32 MiB | `crowd` |
//! | calls of others while 200 hostile ones run | twice their usual time | `crowd` |
//! | any bytes as a component | an error or a tool, no panic | `any_bytes`, `invalid` |
//!
//! The crate reads no environment and prints nothing.

mod bindings;
mod cell;
mod component;
mod egress;
mod engine;
mod error;
mod files;
#[cfg(test)]
#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz_runner;
pub mod hook;
#[cfg(test)]
mod import_bounds;
mod keyvalue;
mod load;
mod places;
mod sandbox;
mod tool;

pub use component::{Component, Digest, Identity, InvalidDigest};
pub use egress::{HostNetwork, InvalidBinding, Network};
pub use engine::EngineError;
pub use error::{CompileLimit, LoadError};
pub use files::overlay;
pub use hook::{CellHook, HookComponent};
pub use load::cache::CacheError;
pub use load::compile::{
    CompileCommand, CompileLimits, Compiler, CompilerIsolation, Protection, compile_child_main,
};
pub use load::imports::{Ability, Import};
pub use load::preflight::{ComplexityLimit, MAX_CORE_INSTANCES};
pub use sandbox::{CompileEvent, CompileListener, Sandbox, SandboxOptions, Statistics};
