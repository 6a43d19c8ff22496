//! C, C++ and Zig: the compiler of Zig, which contains clang and a C library for WASI.

use std::path::Path;

use super::super::compiler::{Program, Workshop};
use super::super::language::Language;
use super::{MODULE, component_of_module};
use crate::error::Failure;

/// Size of the stack in bytes. Zig makes it 16 MiB, which each call would have to allocate.
const STACK: &str = "1048576";

/// Finds Zig: of the system, or as the package `ziglang` of PyPI.
fn zig(workshop: &Workshop<'_>) -> Result<Program, Failure> {
    workshop.find_any(&["zig", "python-zig"], Language::Zig.preparation())
}

pub(super) async fn build_c(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let zig = zig(workshop)?;
    let is_cpp = workshop.manifest.language == Language::Cpp;
    let output = workshop.intermediate(MODULE);
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
    arguments.extend(sources(workshop, "toolcell"));
    let main = Path::new(&workshop.manifest.main);
    let dir = main.parent().and_then(Path::to_str).unwrap_or_default();
    arguments.extend(sources(workshop, if dir.is_empty() { "." } else { dir }));
    workshop.run(&zig, arguments).await?;
    component_of_module(workshop)
}

/// Returns the source files in a directory of the tool, sorted.
fn sources(workshop: &Workshop<'_>, dir: &str) -> Vec<String> {
    let endings: &[&str] = if workshop.manifest.language == Language::Cpp {
        &["cc", "cpp", "cxx"]
    } else {
        &["c"]
    };
    let entries = workshop.dir.join(dir).read_dir().into_iter().flatten().flatten();
    let mut files: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending)))
        // A leading hyphen would be an option.
        .map(|name| format!("./{dir}/{name}"))
        .collect();
    files.sort();
    files
}

pub(super) async fn build_zig(workshop: &Workshop<'_>) -> Result<Vec<u8>, Failure> {
    let zig = zig(workshop)?;
    // Without WASI the standard library has no files, and its absence is a compile error.
    let target = if workshop.manifest.wasi.is_empty() {
        "wasm32-freestanding"
    } else {
        "wasm32-wasi"
    };
    let root = format!("-Mroot={}", workshop.manifest.main);
    let output = format!("-femit-bin={}", workshop.intermediate(MODULE));
    let mut arguments = vec![
        "build-exe", "-target", target, "-fno-entry", "-rdynamic", "-fstrip", "--stack", STACK, &output, "-OReleaseSmall",
    ];
    if !workshop.manifest.wasi.is_empty() {
        arguments.push("-mexec-model=reactor");
    }
    arguments.extend(["--dep", "toolcell", &root, "-Mtoolcell=toolcell/toolcell.zig"]);
    workshop.run(&zig, arguments).await?;
    component_of_module(workshop)
}
