//! The interfaces of WASI for the SDKs.

use std::path::Path;

use crate::repository::dependencies;
use crate::repository::workspace::root;

#[test]
fn interfaces_of_wasi_for_sdks_are_those_of_the_host() {
    let metadata = dependencies::metadata();
    let folder = |name: &str| {
        let packages = metadata["packages"].as_array().expect("packages");
        let package = packages.iter().find(|package| package["name"] == name);
        let manifest = package.expect("a package of the host")["manifest_path"].as_str();
        Path::new(manifest.expect("a path"))
            .parent()
            .expect("a folder")
            .to_owned()
    };
    let base = folder("wasmtime-wasi").join("src/p2/wit/deps");
    let http = folder("wasmtime-wasi-http").join("wit/deps");
    for entry in std::fs::read_dir(root().join("sdk/wasi")).expect("sdk/wasi") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_str().expect("ASCII");
        if !name.ends_with(".wit") {
            continue;
        }
        let from = if name == "http.wit" { &http } else { &base }.join(name);
        let read =
            |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(read(&path) == read(&from), "copy {} to sdk/wasi", from.display());
    }
}
