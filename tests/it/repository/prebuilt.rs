//! The embedded tools match the sources in the repository.

use std::process::Command;

use crate::repository::workspace::root;

#[test]
fn prebuilt_tools_match_their_sources() {
    let check = Command::new("bash")
        .args(["tools/build", "--check"])
        .current_dir(root())
        .output()
        .expect("bash runs");
    assert!(
        check.status.success(),
        "{}{}run tools/build and commit tools/prebuilt",
        String::from_utf8_lossy(&check.stdout),
        String::from_utf8_lossy(&check.stderr)
    );
}

#[test]
fn every_shipped_tool_has_prebuilt_component_and_readme() {
    let mut tools = 0;
    for entry in std::fs::read_dir(root().join("tools")).expect("tools") {
        let folder = entry.expect("an entry").path();
        if !folder.join("Cargo.toml").exists() {
            continue;
        }
        tools += 1;
        let name = folder
            .file_name()
            .expect("a name")
            .to_str()
            .expect("ASCII")
            .to_owned();
        assert!(
            root()
                .join("tools/prebuilt")
                .join(format!("{name}.wasm"))
                .exists(),
            "{name} is not prebuilt"
        );
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap_or_default();
        let lines = readme.lines().count();
        assert!(
            (5..=60).contains(&lines),
            "tools/{name}/README.md has {lines} lines"
        );
    }
    assert!(tools >= 5, "only {tools} tools ship");
}
