//! Builds of tools, by language: the compiler is found and run, and its output becomes a component.

mod assemblyscript;
mod go;
mod javascript;
mod native;
mod python;
mod rust;

use toolcell_sandbox::componentize::{ComponentizeError, Interfaces, Preview1, Strings, componentize};

use super::compiler::{BUILD, BuildContext};
use super::language::{Language, Wasi};
use super::world;
use crate::error::Failure;
use crate::ui::terminal::{Own, text};

/// Module that a compiler writes, among the intermediate files.
const MODULE: &str = "module.wasm";

/// Installation of Node.js, which the programs of npm are run by.
const NODE: &[&str] = &["install Node.js 20 or later from https://nodejs.org, or with your package manager"];

/// Builds the component of a tool.
///
/// # Errors
/// Returns an error if the compiler is missing or fails, or if its output is no component with tools.
pub(crate) async fn build(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let main = context.dir.join(&context.manifest.main);
    if !main.is_file() {
        return Err(context
            .failed()
            .why(text!("there is no file `{}`", context.manifest.main))
            .hint("set `main` in tool.toml to the file with the tools"));
    }
    std::fs::create_dir_all(context.dir.join(BUILD)).map_err(|error| context.failed().because(error))?;
    match context.manifest.language {
        Language::Rust => rust::build(context).await,
        Language::Js | Language::Ts => javascript::build(context).await,
        Language::Python => python::build(context).await,
        Language::C | Language::Cpp => native::build_c(context).await,
        Language::Zig => native::build_zig(context).await,
        Language::Go => go::build(context).await,
        Language::AssemblyScript => assemblyscript::build(context).await,
    }
}

/// Makes a component of the module that a compiler wrote. It may import the parts of WASI that the manifest names.
fn component_of_module(
    context: &BuildContext<'_>,
    strings: Strings,
    preview_1: Preview1,
) -> Result<Vec<u8>, Failure> {
    let module = context.output(&context.intermediate(MODULE))?;
    let interfaces = Interfaces {
        packages: &world::packages(),
        imports: &world::imports(&context.manifest.wasi, "wasi"),
    };
    componentize(&module, strings, preview_1, interfaces).map_err(|error| not_a_tool(context, error))
}

fn not_a_tool(context: &BuildContext<'_>, error: ComponentizeError) -> Failure {
    let message = error.to_string();
    let failure = context.failed().because(error);
    let is_imported = |part: &Wasi| {
        let interfaces = world::imports(&[*part], "wasi");
        interfaces.iter().any(|name| message.contains(name))
    };
    let missing = Wasi::ALL
        .into_iter()
        .find(|part| !context.manifest.uses(*part) && is_imported(part));
    match missing {
        Some(part) => failure.hint(text!("add \"{}\" to `wasi` in tool.toml", Own(part.name()))),
        None => failure,
    }
}
