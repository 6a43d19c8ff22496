//! Rust: cargo for the target `wasm32-wasip2`, which writes components.

use std::path::PathBuf;

use super::super::compiler::BuildContext;
use super::super::language::Language;
use crate::error::Failure;
use crate::ui::terminal::text;

const TARGET: &str = "wasm32-wasip2";

pub(super) async fn build(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let cargo = context.find("cargo", Language::Rust.preparation())?;
    let arguments = [
        "build",
        "--quiet",
        "--release",
        "--target",
        TARGET,
        "--target-dir",
        "target",
    ];
    context.run(&cargo, arguments).await.map_err(|failure| {
        // Of the compiler, for a target without its standard library.
        let text = failure.to_string();
        if ["core", "std"]
            .iter()
            .any(|name| text.contains(&format!("can't find crate for `{name}`")))
        {
            failure.hint(context.installing(Language::Rust.preparation()))
        } else {
            failure
        }
    })?;
    let file = format!("{}.wasm", context.manifest.name.replace('-', "_"));
    let path = PathBuf::from(format!("target/{TARGET}/release/{file}"));
    if !context.dir.join(&path).is_file() {
        return Err(context.failed().why(text!("cargo wrote no `{}`", file)).hint(
            "`name` in tool.toml has to be that of the package, which needs `crate-type = [\"cdylib\"]`",
        ));
    }
    context.output(&path.display().to_string())
}
