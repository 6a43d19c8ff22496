//! The world of a tool, as WIT files for generators of bindings.

use super::compiler::BuildContext;
use super::embedded;
use super::language::Wasi;
use crate::error::Failure;

/// Name of the world.
pub(super) const WORLD: &str = "component";

/// Directory of the WIT files among the intermediate files.
pub(super) const DIR: &str = "wit";

/// Namespace in place of `wasi`, of the same length. A runtime with imports of WASI of its own cannot share them with those of
/// the tool; these are renamed in the component.
pub(super) const HOST: &str = "host";

/// Version of the interfaces in `sdk/wasi`.
const VERSION: &str = "0.2.12";

/// Packages in `sdk/wasi`, each after those that it refers to.
const PACKAGES: [&str; 7] = ["io", "clocks", "random", "filesystem", "sockets", "cli", "http"];

/// Returns the interfaces of a part of WASI.
fn interfaces(wasi: Wasi) -> &'static [&'static str] {
    match wasi {
        Wasi::Files => &["filesystem/preopens", "filesystem/types"],
        Wasi::Http => &["http/outgoing-handler", "http/types"],
        Wasi::Environment => &["cli/environment"],
        Wasi::Clock => &["clocks/wall-clock"],
        Wasi::Random => &["random/random"],
    }
}

/// Returns the WIT of all packages, each after those that it refers to.
pub(super) fn packages() -> [&'static str; PACKAGES.len()] {
    PACKAGES.map(|package| embedded::file(&format!("sdk/wasi/{package}.wit")))
}

/// Returns the identifiers of the interfaces of these parts of WASI.
pub(super) fn imports(wasi: &[Wasi], namespace: &str) -> Vec<String> {
    let interfaces = wasi.iter().flat_map(|part| interfaces(*part));
    interfaces
        .map(|interface| format!("{namespace}:{interface}@{VERSION}"))
        .collect()
}

/// Writes the world with these parts of WASI, in this namespace.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub(super) fn write(context: &BuildContext<'_>, wasi: &[Wasi], namespace: &str) -> Result<(), Failure> {
    for (path, content) in files(wasi, namespace) {
        context.write(&format!("{DIR}/{path}"), content.as_bytes())?;
    }
    Ok(())
}

fn files(wasi: &[Wasi], namespace: &str) -> Vec<(String, String)> {
    let imports: String = imports(wasi, namespace)
        .iter()
        .map(|interface| format!("    import {interface};\n"))
        .collect();
    let world = format!(
        "package local:tool;\n\nworld {WORLD} {{\n    include toolcell:tool/provider@0.1.0;\n{imports}}}\n"
    );
    let mut files = vec![("tool.wit".to_owned(), world)];
    let contract = embedded::below("wit/").filter(|(path, _)| !path.contains('/'));
    files.extend(contract.map(|(path, content)| (format!("deps/toolcell/{path}"), content.to_owned())));
    files.extend(embedded::below("sdk/wasi/").map(|(path, content)| {
        let package = path.trim_end_matches(".wit");
        let content = content.replace("wasi:", &format!("{namespace}:"));
        (format!("deps/{package}/{path}"), content)
    }));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authoring::language::Wasi;

    #[test]
    fn world_is_valid_with_every_part_of_wasi() {
        let dir = tempfile::tempdir().unwrap();
        for namespace in ["wasi", HOST] {
            let dir = dir.path().join(namespace);
            for (path, content) in files(&Wasi::ALL, namespace) {
                let path = dir.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
            let mut resolve = wit_parser::Resolve::default();
            let (package, _) = resolve.push_path(&dir).unwrap();
            let world = resolve.select_world(&[package], Some(WORLD)).unwrap();
            let imports = &resolve.worlds[world].imports;
            let names: Vec<String> = imports.keys().map(|key| resolve.name_world_key(key)).collect();
            let handler = format!("{namespace}:http/outgoing-handler@{VERSION}");
            assert!(names.contains(&handler), "{names:?}");
        }
    }
}
