//! Go: the official compiler for `wasip1`.

use toolcell_sandbox::componentize::{Preview1, Strings};

use super::super::compiler::BuildContext;
use super::super::language::Language;
use super::{MODULE, component_of_module};
use crate::error::Failure;

pub(super) async fn build(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let go = context
        .find("go", Language::Go.preparation())?
        .with("GOOS", "wasip1")
        .with("GOARCH", "wasm")
        .with("GOTOOLCHAIN", "local")
        // A workspace above does not have this module.
        .with("GOWORK", "off");
    let output = context.intermediate(MODULE);
    let arguments = [
        "build",
        "-buildmode=c-shared",
        "-trimpath",
        // The same sources give the same component, also where git refuses to answer.
        "-buildvcs=false",
        "-ldflags=-s -w",
        "-o",
        &output,
        ".",
    ];
    context.run(&go, arguments).await?;
    // The collector reads the clock, also while the host writes into the memory of the tool, when no import may be called.
    component_of_module(context, Strings::Utf8, Preview1::Removed)
}
