//! Attributes of `toolcell-sdk`, which documents them by example.

mod data;
mod hook;
mod options;
mod tool;

use proc_macro::TokenStream;

/// Turns a function into a tool.
///
/// The name of the tool is the name of the function, its description the doc comment. Doc comments on parameters
/// describe them. `toolcell_sdk::export!` exports one or more tools as a component.
///
/// Options, all optional:
///
/// | option | meaning |
/// |---|---|
/// | `name = "..."` | name, if different from the function's |
/// | `title = "..."` | display name |
/// | `read_only` | claims that the tool changes nothing outside itself |
/// | `destructive` | claims that the tool may delete or overwrite data |
/// | `idempotent` | claims that a repeated call has no further effect |
/// | `open_world` | claims that the tool uses systems that its policy cannot list |
/// | `output = Type` | the type of the structured value in an `Output` |
///
/// Attributes of parameters:
///
/// | attribute | meaning |
/// |---|---|
/// | `/// ...` | description for the model |
/// | `#[default(VALUE)]` | value if the argument is missing; its type must implement `Serialize` |
/// | `#[rename("...")]` | name, if different from the parameter's |
/// | `#[alias("...", ...)]` | other names that calls may use; models guess names, and the schema shows the first one alone |
/// | `#[format("path")]` | the string, or each string of a list, is the path of a file or directory; `"uri"`: a URL |
/// | `#[arguments]` | the type holds all arguments: its fields are the parameters |
///
/// Mark every argument that is a path. The host then judges rules of the user by where it leads, shows that in questions,
/// and passes it to hooks. Without a mark it goes by names such as `path` and `output_file`.
///
/// The host replaces an alias by the name before it checks a call: rules, questions and hooks see the name alone.
///
/// A parameter of type `&Context` gets the context of the call, and `&str` is a string; every other parameter owns its
/// value.
///
/// The function itself is unchanged. The tool is a type of the same name (types and functions have separate
/// namespaces), so that `use` and `export!` take the function's path.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into()).into()
}

/// Turns a structure or an enum into a parameter type: derives `serde::Deserialize`, `schemars::JsonSchema`, and
/// `serde::Serialize` for values in `#[default(...)]`.
///
/// Attributes of both, such as `#[serde(rename_all = "snake_case")]`, go below it. Doc comments of fields and variants
/// are part of the schema for the model. `#[format("path")]` over a field marks its strings as over a parameter.
#[proc_macro_attribute]
pub fn input(options: TokenStream, item: TokenStream) -> TokenStream {
    data::expand(data::Direction::Input, options.into(), item.into()).into()
}

/// Turns a structure or an enum into a result type: derives `serde::Serialize`, `schemars::JsonSchema` and, unless it has
/// lifetimes, `serde::Deserialize`.
#[proc_macro_attribute]
pub fn output(options: TokenStream, item: TokenStream) -> TokenStream {
    data::expand(data::Direction::Output, options.into(), item.into()).into()
}

/// Turns an `impl Hook for Type` into a hook.
///
/// The hook runs at the hook points whose functions are in the block. Its name is the name of the type in snake case,
/// its description the doc comment on the block. `toolcell_sdk::export_hook!` has to export it; without it the crate does not compile.
///
/// Options, all optional; the user who configures the hook can override each:
///
/// | option | meaning |
/// |---|---|
/// | `name = "..."` | name, if different from the type's |
/// | `guard` | a failure of the hook refuses the operation |
/// | `priority = 5` | higher comes first; 0 unless set |
/// | `before("...", ...)` | hooks that run after this one |
/// | `after("...", ...)` | hooks that run before this one |
#[proc_macro_attribute]
pub fn hook(options: TokenStream, item: TokenStream) -> TokenStream {
    hook::expand(options.into(), item.into()).into()
}
