//! Calls tools as the host does, for tests without a host.
//!
//! ```
//! use toolcell_sdk::serde_json::json;
//! use toolcell_sdk::{testing, tool};
//!
//! /// Repeats a text.
//! #[tool]
//! fn repeat(text: String, #[default(2)] times: u8) -> String {
//!     text.repeat(times.into())
//! }
//!
//! assert_eq!(testing::definition::<repeat>().name, "repeat");
//! let output = testing::call::<repeat>(json!({"text": "ab"})).unwrap();
//! assert_eq!(output.to_text(), "abab");
//! let error = testing::call::<repeat>(json!({"text": "ab", "times": 256})).unwrap_err();
//! assert_eq!(error.message(), "`times`: invalid value: integer `256`, expected u8");
//! ```

use serde_json::Value;

use crate::log::{self, Level};
use crate::{Arguments, Context, Definition, Output, Tool, ToolError};

/// Definition of a tool for the model.
pub fn definition<T: Tool>() -> Definition {
    T::definition()
}

/// Calls a tool with a JSON object, in an empty context.
///
/// # Errors
/// The tool's error, or invalid arguments.
pub fn call<T: Tool>(arguments: Value) -> Result<Output, ToolError> {
    call_in::<T>(&Context::default(), arguments)
}

/// Calls a tool in a context.
///
/// # Errors
/// The tool's error, or invalid arguments.
pub fn call_in<T: Tool>(context: &Context, arguments: Value) -> Result<Output, ToolError> {
    T::call(Arguments::parse(&arguments.to_string())?, context)
}

/// Takes the messages that this thread has logged.
pub fn logs() -> Vec<(Level, String)> {
    log::take()
}
