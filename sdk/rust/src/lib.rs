//! SDK for tools of Toolcell in Rust: an attribute turns a function into a tool.
//!
//! ```
//! use toolcell_sdk::{Result, ToolError, tool};
//!
//! /// Divides one number by another.
//! #[tool(read_only, idempotent)]
//! fn divide(
//!     /// The number to divide.
//!     dividend: f64,
//!     /// The number to divide by; not zero.
//!     divisor: f64,
//! ) -> Result<String> {
//!     if divisor == 0.0 {
//!         return Err(ToolError::invalid("`divisor` is zero"));
//!     }
//!     Ok((dividend / divisor).to_string())
//! }
//!
//! toolcell_sdk::export!(divide);
//!
//! # fn main() {
//! assert_eq!(divide(6.0, 3.0).unwrap(), "2");
//! # }
//! ```
//!
//! The crate type is `cdylib`, the target `wasm32-wasip2`, and `toolcell-sdk` is the only required dependency:
//!
//! ```sh
//! cargo build --release --target wasm32-wasip2
//! toolcell call target/wasm32-wasip2/release/divide.wasm '{"dividend": 6, "divisor": 3}'
//! ```
//!
//! # Definition for the model
//!
//! - The name is the name of the function, the description its doc comment. See [`tool`] for the options.
//! - The schema of the arguments comes from the parameters: their types ([`Parameter`]) and their doc comments. An
//!   `Option` may be left out, `#[default(10)]` names a value for a parameter that was left out, integers carry their
//!   range, and no other arguments are accepted. `#[format("path")]` over a parameter marks it as a path, which the host
//!   judges by where it leads.
//! - Structures and enums become parameter types with [`input`], and result types with [`output`].
//!
//! # Results
//!
//! Text, a serialisable value (sent to the model as JSON; an object is also returned as structured output, with its
//! schema), or an [`Output`] of several parts; see [`Answer`]. `Result` of any of these: `?` converts every
//! [`std::error::Error`] to a [`ToolError`].
//!
//! # Inside a call
//!
//! Files, environment, clocks and random numbers are those of `std`, empty or denied until the policy of the tool
//! grants them. [`http`] sends requests, and [`keyvalue`] has buckets of values that outlive the call. [`log`] and [`progress`] reach the user. A
//! `&`[`Context`] parameter has the identifier of the call and the values that the host shares with every tool. Each
//! call runs in its own instance: nothing in memory outlives it.
//!
//! # Hooks
//!
//! A component can also run at fixed points of a turn, and change or refuse operations: see [`hook`](mod@hook).
//!
//! # Resources and prompts
//!
//! A component with tools can also provide [`resources`](mod@resources), which clients read by URI, and
//! [`prompts`](mod@prompts), which users begin conversations with.
//!
//! # Tests
//!
//! The function itself stays callable in tests; [`testing`] calls the tool with JSON, as the host does.

mod answer;
mod arguments;
mod component;
mod context;
mod docs;
mod error;
pub mod files;
mod future;
#[doc(hidden)]
pub mod generated;
pub mod hook;
pub mod http;
pub mod keyvalue;
pub mod log;
mod output;
pub mod progress;
pub mod prompts;
pub mod resources;
mod schema;
pub mod show;
mod signature;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod tool;

pub use schemars;
pub use serde;
pub use serde_json;
pub use toolcell_sdk_macros::{hook, input, output, tool};

pub use answer::Answer;
pub use arguments::{Arguments, Optional, Parameter};
pub use context::Context;
pub use error::{ErrorKind, Result, ResultExt, ToolError};
pub use output::{Content, Output};
pub use tool::{Definition, Hints, Tool};

/// Items used by code that the macros generate. Not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use crate::arguments::{InputField, OutputField};
    pub use crate::component::{Entry, assert_distinct_names, definitions, run};
    pub use crate::future::block_on;
    pub use crate::schema::{Parameters, with_format};
    pub use crate::signature::{
        ConvertibleError, OtherError, SendableError, all_arguments, answer, error_type, parameter,
        parameter_with_default,
    };
    pub use crate::tool::define;
}

/// The examples of the README and the guide, which are compiled and run like every other example.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../runtime/guide/src/writing-tools.md")]
    struct WritingTools;
}
