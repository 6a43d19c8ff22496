//! Lists the components that ship with Toolcell, so that they are embedded in the binary.
//!
//! They are built from `tools/` by `tools/build` and lie in `tools/prebuilt`. One that is missing is left out with a
//! warning: the command line then works without it, and says so when somebody asks for it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The names of the shipped components, in the order in which they are listed.
const SHIPPED: [&str; 6] = ["clock", "fetch", "files", "json", "memory", "text"];

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let prebuilt = manifest.join("prebuilt");
    println!("cargo::rerun-if-changed={}", prebuilt.display());
    let mut table = String::from("&[\n");
    let mut missing = Vec::new();
    for name in SHIPPED {
        let file = prebuilt.join(format!("{name}.wasm"));
        println!("cargo::rerun-if-changed={}", file.display());
        let file = file.canonicalize().ok().filter(|file| Path::is_file(file));
        let Some(file) = file else {
            println!(
                "cargo::warning=the tool `{name}` is left out: tools/prebuilt/{name}.wasm is missing; tools/build makes it"
            );
            missing.push(name);
            continue;
        };
        writeln!(
            table,
            "    Shipped {{ name: {name:?}, bytes: include_bytes!({file:?}) }},"
        )
        .expect("a string takes every text");
    }
    table.push_str("]\n");
    std::fs::write(out.join("shipped.rs"), table).expect("cargo made the directory");
    std::fs::write(out.join("missing.rs"), format!("&{missing:?}")).expect("cargo made the directory");
}
