//! Lists the built-in components, which are embedded in the binary.
//!
//! They are built from `tools/` by `tools/build` into `tools/prebuilt`. A missing one is omitted with a warning: the command
//! line works without it, and reports it on use. Their digests come from the manifest that `tools/build` writes, so that no
//! command has to hash them.
//!
//! Lists the files of the SDKs as well, which `toolcell tool new` writes and `toolcell tool build` reads.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Names of the built-in components, in listing order.
const SHIPPED: [&str; 6] = ["clock", "fetch", "files", "json", "memory", "text"];

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let prebuilt = manifest.join("prebuilt");
    println!("cargo::rerun-if-changed={}", prebuilt.display());
    let manifest = prebuilt.join("manifest.json");
    println!("cargo::rerun-if-changed={}", manifest.display());
    let manifest = std::fs::read_to_string(manifest).unwrap_or_default();
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
        let bytes = std::fs::read(&file).expect("it is a file");
        let packed = out.join(format!("{name}.deflate"));
        pack(&packed, &bytes);
        writeln!(
            table,
            "    Shipped {{ name: {name:?}, packed: include_bytes!({packed:?}), size: {}, digest: {:?} }},",
            bytes.len(),
            digest(&manifest, name)
        )
        .expect("a string takes every text");
    }
    table.push_str("]\n");
    std::fs::write(out.join("shipped.rs"), table).expect("cargo made the directory");
    std::fs::write(out.join("missing.rs"), format!("&{missing:?}")).expect("cargo made the directory");

    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut files = vec![root.join("Cargo.toml"), root.join(".rustfmt.toml")];
    for dir in ["wit", "sdk"] {
        list(&root.join(dir), &mut files);
    }
    files.sort();
    let mut table = String::from("&[\n");
    let mut contents = String::new();
    for file in files {
        let name = file
            .strip_prefix(&root)
            .expect("below the root")
            .display()
            .to_string();
        if !NOT_EMBEDDED.iter().any(|prefix| name.starts_with(prefix)) {
            println!("cargo::rerun-if-changed={}", file.display());
            let content = std::fs::read_to_string(file).expect("it was listed, and is text");
            writeln!(table, "    ({name:?}, {}),", content.len()).expect("a string takes every text");
            contents.push_str(&content);
        }
    }
    table.push_str("]\n");
    std::fs::write(out.join("sdk.rs"), table).expect("cargo made the directory");
    pack(&out.join("sdk.deflate"), contents.as_bytes());
}

/// Writes a file with these bytes, compressed (RFC 1951).
fn pack(path: &Path, bytes: &[u8]) {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    std::fs::write(path, compressed.expect("memory takes every byte")).expect("cargo made the directory");
}

/// Parts of the folders of SDKs that no tool needs.
const NOT_EMBEDDED: [&str; 11] = [
    "sdk/README.md",
    "sdk/assemblyscript/package.json",
    "sdk/conformance/",
    "sdk/go/go.mod",
    "sdk/javascript/package.json",
    "sdk/python/pyproject.toml",
    "sdk/rust/examples/",
    "sdk/rust/tests/",
    "sdk/wasi/README.md",
    "wit/README.md",
    "wit/frozen/",
];

/// Appends the files below a directory, without those that builds and tests leave behind.
fn list(dir: &Path, files: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", dir.display());
    let Ok(entries) = dir.read_dir() else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || ["__pycache__", "target", "node_modules"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Returns the digest of a component according to the manifest, an object of the form
/// `{"clock": {"component": "64 hexadecimal digits"}}`.
fn digest(manifest: &str, name: &str) -> Option<[u8; 32]> {
    let (_, entry) = manifest.split_once(&format!("\"{name}\": {{"))?;
    let (entry, _) = entry.split_once('}')?;
    let (_, value) = entry.split_once("\"component\": \"")?;
    let (digits, _) = value.split_once('"')?;
    let mut digest = [0; 32];
    if digits.len() != 2 * digest.len() {
        return None;
    }
    for (i, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(digest)
}
