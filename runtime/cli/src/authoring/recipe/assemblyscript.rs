//! AssemblyScript: its compiler `asc`, with a transform of the SDK that makes tools of classes with decorators.

use toolcell_sandbox::componentize::{Preview1, Strings};

use super::super::compiler::BuildContext;
use super::super::language::{Language, Wasi};
use super::{MODULE, NODE, component_of_module};
use crate::error::Failure;

/// Module that the compiler starts with, among the intermediate files: the exports of a component, and the tools.
const ENTRY: &str = "entry.ts";

/// Functions that programs in AssemblyScript import, in the SDK. Random numbers come from the host if the tool uses them.
const FUNCTIONS: [&str; 3] = [
    "abort=toolcell/runtime/abort",
    "trace=toolcell/runtime/trace",
    "seed=toolcell/runtime/seed",
];

pub(super) async fn build(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let asc = context.find("asc", Language::AssemblyScript.preparation())?;
    context.find("node", NODE)?;
    let entry = entry(&context.manifest.main);
    context.write(ENTRY, entry.as_bytes())?;
    let (entry, module) = (context.intermediate(ENTRY), context.intermediate(MODULE));
    let has_random = context.manifest.uses(Wasi::Random);
    let mut arguments = vec![
        entry.as_str(),
        "--outFile",
        &module,
        "--optimizeLevel",
        "2",
        "--shrinkLevel",
        "1",
        "--runtime",
        "incremental",
        // The functions of the host cannot be called before.
        "--exportStart",
        "_initialize",
        "--transform",
        "./toolcell/transform.mjs",
    ];
    for function in FUNCTIONS {
        arguments.extend(["--use", function]);
    }
    if has_random {
        arguments.extend(["--use", "seed=toolcell/random/seed"]);
    }
    context.run(&asc, arguments).await?;
    component_of_module(context, Strings::Utf16, Preview1::Removed)
}

/// Returns the module with the exports of the component.
fn entry(main: &str) -> String {
    let main = main.strip_suffix(".ts").unwrap_or(main);
    let main = serde_json::Value::from(format!("../{main}"));
    format!("import {main};\nexport {{ cabi_realloc, definitions, run }} from \"../toolcell/component\";\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_imports_the_tools_and_exports_the_component() {
        insta::assert_snapshot!(entry("src/a\"b.ts"), @r#"
        import "../src/a\"b";
        export { cabi_realloc, definitions, run } from "../toolcell/component";
        "#);
    }
}
