//! Builds of tools, by language: the compiler is found and run, and its output becomes a component.

mod go;
mod javascript;
mod native;
mod python;
mod rust;

use toolcell_sandbox::componentize::{ComponentizeError, Preview1, Strings, componentize};

use super::compiler::{BUILD, Workshop};
use super::language::Language;
use crate::error::Failure;
use crate::ui::terminal::text;

/// Module that a compiler writes, among the intermediate files.
const MODULE: &str = "module.wasm";

/// Builds the component of a tool.
///
/// # Errors
/// Returns an error if the compiler is missing or fails, or if its output is no component with tools.
pub(crate) async fn build(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let main = workshop.dir.join(&workshop.manifest.main);
    if !main.is_file() {
        return Err(workshop
            .failed()
            .why(text!("there is no file `{}`", workshop.manifest.main))
            .hint("set `main` in tool.toml to the file with the tools"));
    }
    std::fs::create_dir_all(workshop.dir.join(BUILD)).map_err(|error| workshop.failed().because(error))?;
    match workshop.manifest.language {
        Language::Rust => rust::build(workshop).await,
        Language::Js | Language::Ts => javascript::build(workshop).await,
        Language::Python => python::build(workshop).await,
        Language::C | Language::Cpp => native::build_c(workshop).await,
        Language::Zig => native::build_zig(workshop).await,
        Language::Go => go::build(workshop).await,
    }
}

/// Makes a component of the module that a compiler wrote.
fn component_of_module(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let module = workshop.output(&workshop.intermediate(MODULE))?;
    let preview_1 = if workshop.manifest.wasi.is_empty() {
        Preview1::Removed
    } else {
        Preview1::Adapted
    };
    componentize(&module, Strings::Utf8, preview_1).map_err(|error| not_a_tool(workshop, error))
}

fn not_a_tool(workshop: &Workshop<'_>, error: ComponentizeError) -> Failure {
    workshop.failed().because(error)
}
