//! Rust: cargo for the target `wasm32-wasip2`, which writes components.

use std::path::PathBuf;

use super::super::compiler::Workshop;
use super::super::language::Language;
use crate::error::Failure;
use crate::ui::terminal::text;

const TARGET: &str = "wasm32-wasip2";

pub(super) async fn build(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let cargo = workshop.find("cargo", &["install Rust from https://rustup.rs"])?;
    let arguments = ["build", "--quiet", "--release", "--target", TARGET, "--target-dir", "target"];
    workshop.run(&cargo, arguments).await.map_err(|failure| {
        // Of the compiler, for a target without its standard library.
        if failure.to_string().contains("can't find crate for `core`") {
            failure.hints(workshop.installing(Language::Rust.preparation()))
        } else {
            failure
        }
    })?;
    let file = format!("{}.wasm", workshop.manifest.name.replace('-', "_"));
    let path = PathBuf::from(format!("target/{TARGET}/release/{file}"));
    if !workshop.dir.join(&path).is_file() {
        return Err(workshop
            .failed()
            .why(text!("cargo wrote no `{}`", file))
            .hint("`name` in tool.toml has to be that of the package, which needs `crate-type = [\"cdylib\"]`"));
    }
    workshop.output(&path.display().to_string())
}
