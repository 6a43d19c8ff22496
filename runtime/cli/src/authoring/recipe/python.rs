//! Python: componentize-py makes a component with CPython of the modules that the tool imports.

use std::path::Path;

use super::super::compiler::Workshop;
use super::super::language::{Language, Wasi};
use super::super::world::{self, WORLD};
use super::MODULE;
use crate::error::Failure;
use crate::ui::terminal::text;

/// Module with the exports of the component, among the intermediate files.
const ENTRY: &str = "toolcell_entry";

/// Directory of packages that become part of the tool.
const PACKAGES: &str = "deps";

pub(super) async fn build(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let componentize = workshop.find("componentize-py", Language::Python.preparation())?;
    let main = Path::new(&workshop.manifest.main);
    let module = main.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !module.chars().all(is_word) || module.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(workshop
            .failed()
            .why(text!("`{}` cannot be imported in Python", workshop.manifest.main))
            .hint("name the file with letters, digits and `_`"));
    }
    let has_wasi = !workshop.manifest.wasi.is_empty();
    // CPython imports everything but HTTP by itself.
    let http: &[Wasi] = if workshop.manifest.uses(Wasi::Http) { &[Wasi::Http] } else { &[] };
    world::write(workshop, http, "wasi")?;
    let without = if has_wasi { "" } else { "import toolcell.no_wasi\n" };
    let entry = format!("from toolcell.component import Tools\nimport {module}\n{without}");
    workshop.write(&format!("{ENTRY}.py"), entry.as_bytes())?;

    let (wit, build, output) = (
        workshop.intermediate(world::DIR),
        workshop.intermediate(""),
        workshop.intermediate(MODULE),
    );
    let parent = main.parent().and_then(Path::to_str).unwrap_or_default();
    let sources = if parent.is_empty() { "." } else { parent };
    let mut arguments = vec!["-d", &wit, "-w", WORLD, "componentize"];
    if !has_wasi {
        arguments.push("--stub-wasi");
    }
    arguments.extend(["-p", ".", "-p", sources, "-p", &build]);
    if workshop.dir.join(PACKAGES).is_dir() {
        arguments.extend(["-p", PACKAGES]);
    }
    arguments.extend([ENTRY, "-o", &output]);
    workshop.run(&componentize, arguments).await?;
    workshop.output(&output)
}
