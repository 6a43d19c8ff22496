//! AssemblyScript: its compiler, with a transform that names the exports.

use toolcell_sandbox::componentize::Strings;

use super::super::compiler::Workshop;
use super::super::language::Language;
use super::{MODULE, component_of_module};
use crate::error::Failure;

pub(super) async fn build(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let asc = workshop.find("asc", Language::AssemblyScript.preparation())?;
    let output = workshop.intermediate(MODULE);
    let arguments = [
        workshop.manifest.main.as_str(),
        "-o",
        &output,
        "-O2",
        "--runtime",
        "incremental",
        "--use",
        "abort=toolcell/component/abort",
        "--transform",
        "./toolcell/exports.mjs",
    ];
    workshop.run(&asc, arguments).await?;
    component_of_module(workshop, Strings::Utf16)
}
