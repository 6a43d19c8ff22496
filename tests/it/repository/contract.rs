//! The tool contract in `wit/`, and its compatibility rules.

use std::path::Path;

use wit_component::semver_check;
use wit_parser::{PackageId, Resolve, WorldId};

use crate::repository::dependencies;
use crate::repository::workspace::root;

/// Frozen releases, each a folder of `wit/frozen`.
const FROZEN: &[&str] = &["0.1.0"];

/// Worlds that components are built for.
const WORLDS: &[&str] = &["provider", "hook-provider"];

fn package(folder: &Path) -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e:#}", folder.display()));
    (resolve, package)
}

/// Merges the frozen and the current world into one resolve, as the check requires.
fn both_worlds(frozen: &str, world: &str) -> (Resolve, WorldId, WorldId) {
    let (mut resolve, old) = package(&root().join("wit/frozen").join(frozen));
    let old_world = resolve
        .select_world(&[old], Some(world))
        .expect("the frozen world");
    let (mut new_resolve, new) = package(&root().join("wit"));
    // Two packages of one name and version cannot coexist; the check ignores versions.
    let name = new_resolve.packages[new].name.clone();
    new_resolve.package_names.shift_remove(&name);
    let later = semver::Version::new(0, 1, u64::MAX);
    let name = wit_parser::PackageName {
        version: Some(later),
        ..name
    };
    new_resolve.packages[new].name = name.clone();
    new_resolve.package_names.insert(name, new);
    let remap = resolve.merge(new_resolve).expect("the packages merge");
    let new_world = resolve
        .select_world(&[remap.packages[new.index()]], Some(world))
        .expect("today's world");
    (resolve, old_world, new_world)
}

#[test]
fn component_built_for_any_frozen_release_links() {
    for frozen in FROZEN {
        for world in WORLDS {
            let (resolve, old, new) = both_worlds(frozen, world);
            semver_check(resolve, old, new)
                .unwrap_or_else(|e| panic!("wit/ breaks what was built for {world} of {frozen}: {e:#}"));
        }
    }
}

#[test]
fn contract_check_detects_a_break() {
    // A missing function of an import is a break. Without this check, the test above could pass for any contract.
    let (mut resolve, old, new) = both_worlds("0.1.0", "provider");
    let log = resolve.worlds[new]
        .imports
        .shift_remove_index(0)
        .expect("an import");
    assert!(
        semver_check(resolve, old, new).is_err(),
        "removing {log:?} was not seen"
    );
}

#[test]
fn every_frozen_release_is_checked() {
    let mut folders: Vec<String> = std::fs::read_dir(root().join("wit/frozen"))
        .expect("wit/frozen")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("ASCII"))
        .collect();
    folders.sort();
    assert_eq!(folders, FROZEN);
}

#[test]
fn everything_in_contract_is_documented_and_dated() {
    let (resolve, package) = package(&root().join("wit"));
    for (name, id) in &resolve.packages[package].interfaces {
        let interface = &resolve.interfaces[*id];
        assert!(interface.docs.contents.is_some(), "interface {name} has no words");
        assert!(
            !interface.stability.is_unknown(),
            "interface {name} has no @since"
        );
        for (name, function) in &interface.functions {
            assert!(function.docs.contents.is_some(), "function {name} has no words");
            assert!(!function.stability.is_unknown(), "function {name} has no @since");
        }
        for (name, id) in &interface.types {
            let definition = &resolve.types[*id];
            let is_use = matches!(definition.kind, wit_parser::TypeDefKind::Type(_));
            assert!(
                is_use || definition.docs.contents.is_some(),
                "type {name} has no words"
            );
        }
    }
}

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
