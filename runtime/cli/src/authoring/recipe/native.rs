//! C, C++ and Zig: the compiler of Zig, which contains clang and a C library for WASI.

use std::path::Path;

use toolcell_sandbox::componentize::{Preview1, Strings};

use super::super::compiler::{BuildContext, Program};
use super::super::language::{Language, Wasi};
use super::{MODULE, component_of_module};
use crate::error::Failure;

/// Size of the stack in bytes. Zig makes it 16 MiB, which each call would have to allocate.
const STACK: &str = "1048576";

/// Finds Zig: of the system, or as the package `ziglang` of PyPI.
fn zig(context: &BuildContext<'_>) -> Result<Program, Failure> {
    context.find_any(&["zig", "python-zig"], Language::Zig.preparation())
}

/// Returns `true` if the standard library of the language may use WASI. Only HTTP is imported by the SDK itself.
fn has_wasi(context: &BuildContext<'_>) -> bool {
    context.manifest.wasi.iter().any(|part| *part != Wasi::Http)
}

fn component(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let preview_1 = if has_wasi(context) {
        Preview1::Adapted
    } else {
        Preview1::Removed
    };
    component_of_module(context, Strings::Utf8, preview_1)
}

pub(super) async fn build_c(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let zig = zig(context)?;
    let is_cpp = context.manifest.language == Language::Cpp;
    let output = context.intermediate(MODULE);
    let stack = format!("-Wl,-z,stack-size={STACK}");
    let mut arguments = vec![
        if is_cpp { "c++" } else { "cc" }.to_owned(),
        "--target=wasm32-wasi".into(),
        "-mexec-model=reactor".into(),
        if is_cpp { "-std=c++20" } else { "-std=c17" }.into(),
        "-Os".into(),
        "-s".into(),
        "-Wall".into(),
        "-Itoolcell".into(),
        stack,
        "-o".into(),
        output,
    ];
    if is_cpp {
        arguments.extend(["-fno-exceptions".into(), "-fno-rtti".into()]);
    }
    arguments.extend(sources(context, "toolcell"));
    let main = Path::new(&context.manifest.main);
    let dir = main.parent().and_then(Path::to_str).unwrap_or_default();
    arguments.extend(sources(context, if dir.is_empty() { "." } else { dir }));
    context.run(&zig, arguments).await?;
    component(context)
}

/// Returns the source files in a directory of the tool, sorted.
fn sources(context: &BuildContext<'_>, dir: &str) -> Vec<String> {
    let endings: &[&str] = if context.manifest.language == Language::Cpp {
        &["cc", "cpp", "cxx"]
    } else {
        &["c"]
    };
    let entries = context.dir.join(dir).read_dir().into_iter().flatten().flatten();
    let mut files: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            name.rsplit_once('.')
                .is_some_and(|(_, ending)| endings.contains(&ending))
        })
        // A leading hyphen would be an option.
        .map(|name| format!("./{dir}/{name}"))
        .collect();
    files.sort();
    files
}

pub(super) async fn build_zig(context: &BuildContext<'_>) -> Result<Vec<u8>, Failure> {
    let zig = zig(context)?;
    // Without WASI the standard library has no files, and its absence is a compile error.
    let target = if has_wasi(context) {
        "wasm32-wasi"
    } else {
        "wasm32-freestanding"
    };
    let root = format!("-Mroot={}", context.manifest.main);
    let output = format!("-femit-bin={}", context.intermediate(MODULE));
    let mut arguments = vec![
        "build-exe",
        "-target",
        target,
        "-fno-entry",
        "-rdynamic",
        "-fstrip",
        "--stack",
        STACK,
        &output,
        "-OReleaseSmall",
    ];
    if has_wasi(context) {
        arguments.push("-mexec-model=reactor");
    }
    arguments.extend(["--dep", "toolcell", &root, "-Mtoolcell=toolcell/toolcell.zig"]);
    context.run(&zig, arguments).await?;
    component(context)
}
