//! The attributes of `toolcell-sdk`, which documents them by example.

mod data;
mod hook;
mod options;
mod tool;

use proc_macro::TokenStream;

/// Makes a tool of a function.
///
/// The name of the tool is the name of the function, its description the doc comment. A parameter is described by a doc
/// comment over it. `toolcell_sdk::export!` makes a component of one or more tools.
///
/// Options, all optional:
///
/// | option | meaning |
/// |---|---|
/// | `name = "..."` | another name than the function's |
/// | `title = "..."` | a name for people |
/// | `read_only` | claims that the tool changes nothing outside itself |
/// | `destructive` | says that the tool may delete or overwrite data |
/// | `idempotent` | claims that calling twice does no more than calling once |
/// | `open_world` | says that the tool talks to systems that its policy cannot list |
/// | `output = Type` | the type of the structured value in an `Output` |
///
/// Attributes of parameters:
///
/// | attribute | meaning |
/// |---|---|
/// | `/// ...` | what the model is told about it |
/// | `#[default(VALUE)]` | the value if it is left out; its type is then also `Serialize` |
/// | `#[rename("...")]` | another name than the parameter's |
/// | `#[arguments]` | the type holds all arguments: its fields are the parameters |
///
/// A parameter of the type `&Context` gets what surrounds the call, and `&str` is a string; every other parameter owns its
/// value.
///
/// The function stays what it was. The tool is a type of the same name (types and functions have separate names), so that
/// `use` and `export!` take the function's path.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(options.into(), item.into()).into()
}

/// Makes a parameter type of a structure or an enum: derives `serde::Deserialize`, `schemars::JsonSchema`, and
/// `serde::Serialize` for values in `#[default(...)]`.
///
/// Attributes of both, such as `#[serde(rename_all = "snake_case")]`, go below it. Doc comments of fields and variants
/// reach the model.
#[proc_macro_attribute]
pub fn input(options: TokenStream, item: TokenStream) -> TokenStream {
    data::expand(data::Direction::Input, options.into(), item.into()).into()
}

/// Makes an answer type of a structure or an enum: derives `serde::Serialize` and `schemars::JsonSchema`.
#[proc_macro_attribute]
pub fn output(options: TokenStream, item: TokenStream) -> TokenStream {
    data::expand(data::Direction::Output, options.into(), item.into()).into()
}

/// Makes a hook of an `impl Hook for Type`.
///
/// The hook wants exactly the moments whose functions are written in the block. Its name is the name of the type in snake
/// case, its description the doc comment over the block.
///
/// Options, all optional; each is a claim on which the person who configures the hook has the last word:
///
/// | option | meaning |
/// |---|---|
/// | `name = "..."` | another name than the type's |
/// | `guard` | what the hook looks at must not happen when it fails |
/// | `priority = 5` | higher comes first; 0 unless set |
/// | `before("...", ...)` | names of hooks that it wants to run before |
/// | `after("...", ...)` | names of hooks that it wants to run after |
#[proc_macro_attribute]
pub fn hook(options: TokenStream, item: TokenStream) -> TokenStream {
    hook::expand(options.into(), item.into()).into()
}
