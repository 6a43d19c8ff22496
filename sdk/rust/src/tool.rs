//! Trait of tools, implemented by the macro.

use serde_json::Value;

use crate::{Arguments, Context, Output, ToolError, docs};

/// Tool. [`tool`](macro@crate::tool) implements it on a type with the name of the function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "not a tool",
    note = "put `#[toolcell_sdk::tool]` on the function"
)]
pub trait Tool {
    /// Name, unique in the component.
    const NAME: &'static str;

    /// Definition for the model. Deterministic; performs no input or output.
    fn definition() -> Definition;

    /// Runs the tool.
    ///
    /// # Errors
    /// The tool's error, or invalid arguments.
    fn call(arguments: Arguments, context: &Context) -> Result<Output, ToolError>;
}

/// Definition of a tool for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Name: 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_` and `-`, starting with a letter.
    pub name: &'static str,
    /// Display name.
    pub title: Option<&'static str>,
    /// Description: function and purpose of the tool.
    pub description: String,
    /// JSON Schema (2020-12) of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured output, if any.
    pub output_schema: Option<Value>,
    /// Claims of the author about effects of the tool.
    pub hints: Hints,
    /// Other names of parameters, each with the parameter's own name. The host replaces them before it checks a call.
    pub aliases: &'static [(&'static str, &'static str)],
}

/// Claims of the author about effects of a tool. They help the host to decide when to ask the user, and grant nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// The tool changes nothing outside itself.
    pub read_only: bool,
    /// The tool may delete or overwrite data.
    pub destructive: bool,
    /// A repeated call with the same arguments has no further effect.
    pub idempotent: bool,
    /// The tool uses systems that its policy cannot list beforehand.
    pub open_world: bool,
}

/// Creates a definition, for the macro.
#[doc(hidden)]
pub fn define(
    name: &'static str,
    title: Option<&'static str>,
    docs: &str,
    hints: Hints,
    input_schema: Value,
    output_schema: Option<Value>,
    aliases: &'static [(&'static str, &'static str)],
) -> Definition {
    Definition {
        name,
        title,
        description: docs::reflow(docs),
        input_schema,
        output_schema,
        hints,
        aliases,
    }
}
