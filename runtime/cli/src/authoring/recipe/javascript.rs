//! JavaScript and TypeScript: esbuild joins the modules, componentize-qjs makes a component of them with QuickJS.

use toolcell_sandbox::componentize::rename_imports;

use super::super::compiler::BuildContext;
use super::super::language::{Language, Wasi};
use super::super::world::{self, HOST, WORLD};
use super::{MODULE, NODE, not_a_tool};
use crate::error::Failure;

pub(super) async fn build(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let install = Language::Js.preparation();
    context.find("node", NODE)?;
    let esbuild = context.find("esbuild", install)?;
    let componentize = context.find("componentize-qjs", install)?;
    if context.manifest.language == Language::Ts && context.dir.join("tsconfig.json").is_file() {
        let tsc = context.find("tsc", install)?;
        context.run(&tsc, ["--noEmit"]).await?;
    }
    let wasi = &context.manifest.wasi;
    world::write(context, wasi, HOST)?;
    context.write("entry.js", entry(&context.manifest.main, wasi).as_bytes())?;
    let (entry, bundle) = (
        context.intermediate("entry.js"),
        context.intermediate("bundle.js"),
    );
    let outfile = format!("--outfile={bundle}");
    let external = format!("--external:{HOST}:*");
    let arguments = [
        entry.as_str(),
        "--bundle",
        "--format=esm",
        "--target=es2022",
        "--external:toolcell:*",
        &external,
        &outfile,
        "--log-level=warning",
    ];
    context
        .run(&esbuild, arguments)
        .await
        .map_err(|failure| match failure.says("No matching export") {
            true => failure.hint("the main module exports its tools: export default [first, second]"),
            false => failure,
        })?;
    let (wit, module) = (context.intermediate(world::DIR), context.intermediate(MODULE));
    // The runtime's own imports of WASI are replaced by traps: those that a tool names are imports of its own.
    let arguments = [
        "--wit",
        &wit,
        "--js",
        &bundle,
        "--world",
        WORLD,
        "--sync",
        "--stub-wasi",
        "--opt-size",
        "-o",
        &module,
    ];
    context.run(&componentize, arguments).await?;
    let component = context.output(&module)?;
    rename_imports(&component, HOST, "wasi").map_err(|error| not_a_tool(context, error))
}

/// Returns the module that exports the component: the parts of the host that the tool uses, and its tools.
fn entry(main: &str, wasi: &[Wasi]) -> String {
    let parts = Wasi::ALL.into_iter().filter_map(|part| {
        let name = part.name();
        match (wasi.contains(&part), part) {
            (true, _) => Some(name.to_owned()),
            (false, Wasi::Clock | Wasi::Random) => Some(format!("no-{name}")),
            (false, _) => None,
        }
    });
    let imports: String = std::iter::once("base".to_owned())
        .chain(parts)
        .map(|part| format!("import \"../toolcell/host/{part}.js\";\n"))
        .collect();
    let main = serde_json::Value::from(format!("../{main}"));
    format!(
        "{imports}import {{ component }} from \"../toolcell/toolcell.js\";\nimport tool from {main};\n\
         export const tools = component(tool);\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_imports_what_the_tool_uses_and_replaces_the_rest() {
        insta::assert_snapshot!(entry("src/a\"b.js", &[Wasi::Http, Wasi::Clock]), @r#"
        import "../toolcell/host/base.js";
        import "../toolcell/host/http.js";
        import "../toolcell/host/clock.js";
        import "../toolcell/host/no-random.js";
        import { component } from "../toolcell/toolcell.js";
        import tool from "../src/a\"b.js";
        export const tools = component(tool);
        "#);
    }
}
