//! Runs WebAssembly components as tools, each call in its own cell.
//!
//! A [`Sandbox`] contains the engine, one per process. [`Sandbox::load`] turns the bytes of a component into a
//! [`Component`]: checked, compiled or taken from the cache, its definitions read. [`Component::tools`] combines it
//! with a [`toolcell_core::Policy`] and returns one [`toolcell_core::Tool`] for each definition. A call runs in a new
//! instance, the *cell*, with its own memory, fuel, deadline and grants, and always produces a receipt.
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
//! | concept | modules |
//! |---|---|
//! | engine settings and pool | `engine` |
//! | loading: preflight check, imports, compilation, cache, definitions | `load` |
//! | components of the output of compilers | [`componentize`] |
//! | loaded components and their tools | `component`, `tool`, `bindings` |
//! | components whose functions are tools, programs | `typed`, `program` |
//! | files and URLs in arguments | `places` |
//! | resources and prompts beside tools: lists, reading | `context`, `resources`, `prompts` |
//! | hooks: manifest, requests, responses | [`hook`] |
//! | one call: state, epochs, scheduling, errors, receipt | `cell`, `cell::state`, `cell::epoch`, `cell::scheduler`, `cell::failure`, `cell::receipt` |
//! | memory of a call, in the guest and in the host | `cell::memory`, `cell::memory::limiter`, `cell::memory::objects` |
//! | HTTP requests of a guest | `egress` |
//! | files of a guest | `files` |
//! | key-value data of a guest | `keyvalue` |
//! | output and other imports of a guest | `cell::output`, `cell::poll`, `cell::sockets` |
//!
//! # Limits
//!
//! | subject | limit | test in `tests/` |
//! |---|---|---|
//! | component | 64 MiB, and no more parts, functions and instances than `load::preflight` accepts | `load`, `attacks` |
//! | compilation | [`CompileLimits`], in a separate process with [`Compiler::Child`] | `compile_child` |
//! | components being compiled and waiting | 2 and 64 | `load` |
//! | one call of a hook | [`toolcell_core::Limits`], and the limits of responses in [`hook`] | `hook`, and `tests/it/hooks` of the project |
//! | reading definitions | nothing granted, 10^9 units of fuel, 10 s; 128 tools, 10 KiB of description each | `load` |
//! | resources and prompts of a component | 1,024 and 32 templates, 128; and the limits of their texts | unit tests of both |
//! | one call | [`toolcell_core::Limits`] | `limits` |
//! | WebAssembly stack | 512 KiB | `attacks` |
//! | data passed to the host at once | the output limit and 1 MiB | `limits` |
//! | random bytes at once | 1 MiB | `wasi` |
//! | log lines of a call | 1,000 of 8 KiB each, within the log limit | `limits`, `wasi` |
//! | time until a cancelled call has ended | one tick of 10 ms | `limits` |
//! | host memory for 1,000 hostile calls | the sum of their limits and 32 MiB | `crowd` |
//! | other calls while 200 hostile ones run | twice their usual time | `crowd` |
//! | arbitrary bytes as a component | an error or a tool, no panic | `any_bytes`, `invalid` |
//!
//! The crate does not read the environment and prints nothing.

mod bindings;
mod cell;
mod component;
pub mod componentize;
mod context;
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
mod json_length;
mod keyvalue;
mod load;
mod places;
mod program;
mod prompts;
mod resources;
mod sandbox;
mod structured;
mod tool;
mod typed;

pub use component::{Component, ComponentKind, Description, Digest, Identity, InvalidDigest};
pub use context::{ComponentContext, ContextError};
pub use egress::address::is_public_address;
pub use egress::{HostNetwork, InvalidBinding, Network};
pub use error::{CacheError, CompileLimit, EngineError, LoadError};
pub use files::overlay;
pub use hook::{CellHook, HookComponent};
pub use load::compile::{
    CompileCommand, CompileLimits, Compiler, CompilerIsolation, Protection, compile_child_main,
};
pub use load::complexity::{ComplexityLimit, MAX_CORE_INSTANCES};
pub use load::imports::{Ability, Import};
pub use program::service::{
    AccessRecord, PROGRAM_BUFFER, ProgramStream, RunningCell, RunningProgram, StartProgramError,
};
pub use sandbox::{CompileEvent, CompileListener, Sandbox, SandboxOptions, Statistics, TrustedComponent};
pub use typed::{LeftOut, NO_DESCRIPTION};
