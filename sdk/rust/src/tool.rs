//! A tool, as the macro makes it.

use serde_json::Value;

use crate::{Arguments, Context, Output, ToolError, docs};

/// A tool. [`tool`](macro@crate::tool) implements it on a type with the name of the function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no tool",
    label = "no tool",
    note = "put `#[toolcell_sdk::tool]` over the function"
)]
pub trait Tool {
    /// Name, unique in the component.
    const NAME: &'static str;

    /// What the model is told. The same each time; does no input or output.
    fn definition() -> Definition;

    /// Runs the tool.
    ///
    /// # Errors
    /// What the tool says, or what is wrong with the arguments.
    fn call(arguments: Arguments, context: &Context) -> Result<Output, ToolError>;
}

/// What the model is told about a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Name: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_` and `-`, the first one a letter.
    pub name: &'static str,
    /// Name for people.
    pub title: Option<&'static str>,
    /// What the tool does and when to use it.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured output, if there is any.
    pub output_schema: Option<Value>,
    /// What the author says about the effects of the tool.
    pub hints: Hints,
}

/// Claims of the author about a tool. They help the host to decide when to ask the user, and grant nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// The tool changes nothing outside itself.
    pub read_only: bool,
    /// The tool may delete or overwrite data.
    pub destructive: bool,
    /// Calling twice with the same arguments does no more than calling once.
    pub idempotent: bool,
    /// The tool talks to systems that its policy cannot list beforehand.
    pub open_world: bool,
}

/// A definition out of what the macro knows.
#[doc(hidden)]
pub fn define(
    name: &'static str,
    title: Option<&'static str>,
    docs: &str,
    hints: Hints,
    input_schema: Value,
    output_schema: Option<Value>,
) -> Definition {
    Definition {
        name,
        title,
        description: docs::reflow(docs),
        input_schema,
        output_schema,
        hints,
    }
}
