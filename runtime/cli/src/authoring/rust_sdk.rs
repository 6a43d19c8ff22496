//! The crates of the Rust SDK for a tool outside of the repository, until they are published.

use toml_edit::{DocumentMut, InlineTable, Item, Table, Value};

use super::embedded;

/// Directory of the crates in a tool.
const DIR: &str = "toolcell-sdk/";

/// Tables of a manifest that only the repository needs.
const REMOVED: [&str; 3] = ["dev-dependencies", "example", "lints"];

/// Returns the files of the crates by their paths.
pub(super) fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for dir in ["", "macros/"] {
        let crate_dir = format!("sdk/rust/{dir}");
        let sources = format!("{crate_dir}src/");
        let copied =
            embedded::below(&sources).map(|(path, text)| (format!("{DIR}{dir}src/{path}"), text.to_owned()));
        files.extend(copied);
        let manifest = standalone(embedded::file(&format!("{crate_dir}Cargo.toml")));
        files.push((format!("{DIR}{dir}Cargo.toml"), manifest));
    }
    // Its sources are formatted in this style.
    let style = embedded::file(".rustfmt.toml");
    files.push((format!("{DIR}rustfmt.toml"), style.to_owned()));
    let readme = embedded::file("sdk/rust/README.md");
    files.push((format!("{DIR}README.md"), readme.to_owned()));
    files
}

/// Returns a manifest with the values that it inherits from the workspace.
fn standalone(manifest: &str) -> String {
    let parse = |text: &str| text.parse::<DocumentMut>().unwrap_or_default();
    let (mut manifest, root) = (parse(manifest), parse(embedded::file("Cargo.toml")));
    let workspace = &root["workspace"];
    for table in REMOVED {
        manifest.remove(table);
    }
    if let Some(package) = manifest["package"].as_table_mut() {
        inherit(package, &workspace["package"]);
    }
    inherit_dependencies(manifest.as_table_mut(), &workspace["dependencies"]);
    if let Some(targets) = manifest.get_mut("target").and_then(Item::as_table_mut) {
        for (_, target) in targets.iter_mut() {
            if let Some(target) = target.as_table_mut() {
                for table in REMOVED {
                    target.remove(table);
                }
                inherit_dependencies(target, &workspace["dependencies"]);
            }
        }
        targets.retain(|_, target| target.as_table().is_none_or(|table| !table.is_empty()));
    }
    manifest.to_string()
}

fn inherit_dependencies(table: &mut Table, from: &Item) {
    if let Some(dependencies) = table.get_mut("dependencies").and_then(Item::as_table_mut) {
        inherit(dependencies, from);
    }
}

/// Replaces `key.workspace = true` by the value of the workspace.
fn inherit(table: &mut Table, from: &Item) {
    let inherited: Vec<String> = table
        .iter()
        .filter(|(_, value)| {
            value
                .as_table_like()
                .is_some_and(|value| value.get("workspace").is_some())
        })
        .map(|(key, _)| key.to_owned())
        .collect();
    for key in inherited {
        let mut value = from.get(&key).cloned().unwrap_or_default();
        if let Some(own) = value.as_table_like_mut()
            && own.get("path").is_some()
        {
            // The macros are below the crate.
            let path = InlineTable::from_iter([("path", Value::from("macros"))]);
            value = Item::Value(path.into());
        }
        table.insert(&key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_inherit_nothing() {
        for (path, content) in files() {
            if path.ends_with("Cargo.toml") {
                assert!(!content.contains("workspace"), "{path}: {content}");
                let manifest: DocumentMut = content.parse().unwrap();
                assert_eq!(manifest["package"]["edition"].as_str(), Some("2024"));
                assert!(manifest.get("dev-dependencies").is_none());
            }
        }
    }
}
