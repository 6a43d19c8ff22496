//! Structure of the workspace: dependencies between packages, and required files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Workspace packages that each package may depend on. No other dependency is allowed.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("toolcell-core", &[]),
    ("toolcell-fs", &[]),
    ("toolcell-tls", &[]),
    ("toolcell-http", &[]),
    (
        "toolcell-sandbox",
        &["toolcell-core", "toolcell-fs", "toolcell-tls"],
    ),
    ("toolcell-agent", &["toolcell-core", "toolcell-fs"]),
    (
        "toolcell-providers",
        &["toolcell-core", "toolcell-fs", "toolcell-tls"],
    ),
    ("toolcell-store", &["toolcell-core", "toolcell-fs"]),
    (
        "toolcell-mcp",
        &["toolcell-core", "toolcell-http", "toolcell-tls"],
    ),
    ("toolcell-serve", &["toolcell-core", "toolcell-http"]),
    ("toolcell-local", &["toolcell-core", "toolcell-fs"]),
    (
        "toolcell",
        &[
            "toolcell-core",
            "toolcell-fs",
            "toolcell-sandbox",
            "toolcell-agent",
            "toolcell-providers",
            "toolcell-store",
            "toolcell-http",
            "toolcell-local",
            "toolcell-mcp",
            "toolcell-serve",
            "toolcell-tls",
        ],
    ),
    ("toolcell-sdk", &["toolcell-sdk-macros"]),
    ("toolcell-sdk-macros", &[]),
];

/// Additional workspace packages for tests and benches: session tests of the loop need a store.
const MAY_TEST_WITH: &[(&str, &[&str])] = &[("toolcell-agent", &["toolcell-store"])];

/// Prefix of the packages of shipped tools, which depend on the SDK alone.
const TOOL_PREFIX: &str = "toolcell-tool-";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace has a root")
}

/// Dependencies of a package, by name.
struct Manifest {
    all: Vec<String>,
    /// Dependencies of tests and benches only.
    dev: Vec<String>,
}

/// Returns every package of the workspace.
fn manifests() -> BTreeMap<String, Manifest> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let text = |v: &Value| v.as_str().expect("a string").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let names = |is_wanted: &dyn Fn(&Value) -> bool| {
                let wanted = dependencies.iter().filter(|d| is_wanted(d));
                wanted.map(|d| text(&d["name"])).collect()
            };
            let manifest = Manifest {
                all: names(&|_| true),
                dev: names(&|d| d["kind"] == "dev"),
            };
            (text(&package["name"]), manifest)
        })
        .collect()
}

#[test]
fn packages_depend_on_each_other_as_a_star() {
    let manifests = manifests();
    for (package, manifest) in &manifests {
        let tested_with = MAY_TEST_WITH
            .iter()
            .find(|(name, _)| name == package)
            .map_or(&[][..], |(_, with)| with);
        let allowed: &[&str] = if package.starts_with(TOOL_PREFIX) {
            &["toolcell-sdk"]
        } else {
            MAY_DEPEND_ON
                .iter()
                .find(|(name, _)| name == package)
                .unwrap_or_else(|| panic!("{package} is not listed: add it to MAY_DEPEND_ON"))
                .1
        };
        for dependency in manifest.all.iter().filter(|d| manifests.contains_key(*d)) {
            let is_for_tests =
                manifest.dev.contains(dependency) && tested_with.contains(&dependency.as_str());
            assert!(
                is_for_tests || allowed.contains(&dependency.as_str()),
                "{package} must not depend on {dependency}; it may depend on {allowed:?}"
            );
        }
    }
}

#[test]
fn packages_of_sdks_have_version_and_licence_of_workspace() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for folder in ["javascript", "assemblyscript"] {
        let package: Value = serde_json::from_str(&read(&format!("sdk/{folder}/package.json"))).unwrap();
        assert_eq!(package["version"], version, "{folder}");
        assert_eq!(package["license"], env!("CARGO_PKG_LICENSE"), "{folder}");
    }
    let project: toml::Value = toml::from_str(&read("sdk/python/pyproject.toml")).unwrap();
    assert_eq!(project["project"]["version"].as_str(), Some(version));
    assert_eq!(
        project["project"]["license"].as_str(),
        Some(env!("CARGO_PKG_LICENSE"))
    );
    // npm takes these files only if they are named; cargo, setuptools and Go take what is in the directory.
    for folder in ["javascript", "assemblyscript"] {
        let package: Value = serde_json::from_str(&read(&format!("sdk/{folder}/package.json"))).unwrap();
        let files = package["files"].as_array().unwrap();
        assert!(files.iter().any(|file| file == "LICENSE-*"), "{folder}");
    }
    for folder in [
        "javascript",
        "assemblyscript",
        "python",
        "go",
        "rust",
        "rust/macros",
    ] {
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(
                read(&format!("sdk/{folder}/{licence}")),
                read(licence),
                "{folder}"
            );
        }
    }
    let module = read("sdk/go/go.mod");
    assert!(
        module.starts_with("module github.com/toolcell/toolcell/sdk/go\n"),
        "{module}"
    );
}

#[test]
fn wasmtime_version_is_in_one_manifest() {
    let with_wasmtime: Vec<String> = manifests()
        .into_iter()
        .filter(|(_, manifest)| {
            manifest
                .all
                .iter()
                .any(|d| d == "wasmtime" || d.starts_with("wasmtime-"))
        })
        .map(|(package, _)| package)
        .collect();
    assert_eq!(with_wasmtime, ["toolcell-sandbox"]);
}

/// A panic in a host function unwinds to the start of the call and ends that call only.
#[test]
fn released_program_unwinds() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let manifest: toml::Value = toml::from_str(&text).expect("TOML");
    for profile in ["release", "dev"] {
        let panic = manifest["profile"][profile].get("panic");
        assert!(
            panic.is_none_or(|p| p.as_str() == Some("unwind")),
            "profile.{profile}: {panic:?}"
        );
    }
    // Guests abort: a panic is a trap.
    assert_eq!(manifest["profile"]["guest"]["panic"].as_str(), Some("abort"));
}

#[test]
fn core_depends_on_no_async_runtime_or_io() {
    let manifests = manifests();
    for heavy in ["tokio", "reqwest", "hyper", "wasmtime", "cap-std", "tracing"] {
        assert!(
            !manifests["toolcell-core"].all.iter().any(|d| d == heavy),
            "toolcell-core depends on {heavy}"
        );
    }
}

#[test]
fn every_test_file_is_a_module() {
    let mut folders = vec![root().join("tests/it")];
    while let Some(folder) = folders.pop() {
        let file = if folder.ends_with("it") {
            "main.rs"
        } else {
            "mod.rs"
        };
        let declared = std::fs::read_to_string(folder.join(file)).expect("the file of the module");
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_str().expect("ASCII");
            if path.is_dir() {
                folders.push(path.clone());
            }
            assert!(
                path.ends_with(file) || declared.contains(&format!("mod {name};")),
                "{}/{file} does not name `{name}`",
                folder.display()
            );
        }
    }
}

#[test]
fn each_top_level_folder_has_a_short_readme() {
    for folder in ["runtime", "wit", "tools", "sdk", "tests"] {
        let path = root().join(folder).join("README.md");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let lines = text.lines().count();
        assert!((5..=60).contains(&lines), "{folder}/README.md has {lines} lines");
    }
}

#[test]
fn libraries_read_no_environment_and_never_print() {
    let forbidden = [
        "std::env::var",
        "env::vars",
        // Of the process; that of a command takes an argument.
        "current_dir()",
        "home_dir(",
        "println!",
        "eprintln!",
        "print!(",
    ];
    for library in [
        "core",
        "fs",
        "tls",
        "sandbox",
        "agent",
        "providers",
        "store",
        "mcp",
    ] {
        for path in rust_files(&root().join("runtime").join(library).join("src")) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let is_test = path.components().any(|c| c.as_os_str() == "tests") || path.ends_with("tests.rs");
            let code = if is_test {
                ""
            } else {
                text.split("#[cfg(test)]").next().expect("the first part")
            };
            for (number, line) in code.lines().enumerate() {
                let line = line.trim_start();
                if line.starts_with("//") {
                    continue;
                }
                for word in forbidden {
                    assert!(
                        !line.contains(word),
                        "{}:{}: `{word}`",
                        path.display(),
                        number + 1
                    );
                }
            }
        }
    }
}

/// JSON output is escaped in one function.
#[test]
fn json_is_printed_in_one_place() {
    // Streams laid out by a screen, terminal detection and size, a completion script, help without foreign text, an
    // identifier.
    let others = [
        "ui/render/json.rs",
        "ui/render/held.rs",
        "ui/terminal/size.rs",
        "environment.rs",
        "command_line.rs",
        "commands/completions.rs",
        "commands/help.rs",
        // Messages of a protocol, for a program: never on a terminal.
        "commands/mcp/serve/clients.rs",
        "commands/mcp/serve/stdio.rs",
        "commands/session/mod.rs",
    ];
    let source = root().join("runtime/cli/src");
    for path in rust_files(&source) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let is_other = others.iter().any(|other| path == source.join(other));
        let prints = ["stdout()", "println!", "print!(", "to_writer"];
        let is_own = |line: &&str| line.contains("eprintln!") && path.ends_with("main.rs");
        let found = (text.lines().filter(|line| !is_own(line)))
            .find(|line| prints.iter().any(|print| line.contains(print)));
        assert!(is_other || found.is_none(), "{}: {found:?}", path.display());
    }
    let session = std::fs::read_to_string(source.join("commands/session/mod.rs")).expect("a source file");
    assert_eq!(session.matches("stdout()").count(), 1, "the identifier of a fork");
    let parser = std::fs::read_to_string(source.join("command_line.rs")).expect("a source file");
    assert_eq!(parser.matches("stdout()").count(), 1, "the help");
}

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    assert!(
        !files.is_empty() || folder.as_os_str().is_empty(),
        "no sources under {}",
        folder.display()
    );
    files
}
