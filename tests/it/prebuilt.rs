//! The tools that are embedded in the binary are the ones in the tree.

use std::process::Command;

use crate::house::root;

#[test]
fn no_prebuilt_tool_is_older_than_its_source() {
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
fn every_shipped_tool_has_a_prebuilt_component_and_a_readme() {
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
