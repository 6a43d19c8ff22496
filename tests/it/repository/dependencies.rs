//! Dependencies of the binary: licences, minimum versions with known fixes, and features with which each is compiled.
//!
//! `cargo deny check` does the same with current advisories; this test needs no database and runs everywhere.

use std::collections::BTreeSet;
use std::process::Command;

use semver::Version;
use serde_json::Value;

use crate::repository::workspace::root;

/// Minimum version of a dependency, with the advisory that requires it.
const AT_LEAST: &[(&str, &str, &str)] = &[
    (
        "wasmtime",
        "48.0.8",
        "36 advisories of the 48.0 line, the last of them fixed here",
    ),
    (
        "wasmtime-wasi",
        "48.0.8",
        "GHSA-m9f7-9w4p-gv38: a way out of the file system sandbox",
    ),
    (
        "wasmtime-wasi-http",
        "48.0.8",
        "GHSA-5qpp-g3j2-8frx: a request addressed to another host",
    ),
    ("h2", "0.4.16", "RUSTSEC-2026-0258: empty DATA frames"),
    (
        "rustls-webpki",
        "0.103.13",
        "RUSTSEC-2026-0104 and three before it",
    ),
    (
        "tracing-subscriber",
        "0.3.20",
        "RUSTSEC-2025-0055: escape sequences in log lines",
    ),
];

/// Crates that are not allowed.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "one TLS stack: rustls with ring"),
    ("native-tls", "one TLS stack: rustls with ring"),
    ("aws-lc-sys", "one TLS stack: rustls with ring"),
    ("html2md", "GPL-3.0-or-later"),
];

/// Returns name and version of every package in Cargo.lock, for all features and platforms.
fn locked() -> Vec<(String, Version)> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let lock: toml::Value = toml::from_str(&lock).expect("Cargo.lock is TOML");
    let packages = lock["package"].as_array().expect("packages");
    let text = |package: &toml::Value, key: &str| package[key].as_str().expect("a string").to_owned();
    packages
        .iter()
        .map(|package| {
            let version = text(package, "version").parse().expect("a version");
            (text(package, "name"), version)
        })
        .collect()
}

/// Returns the manifests of all dependencies, for the features and platform of this build: their crates have been
/// downloaded, others possibly not.
pub(super) fn metadata() -> Value {
    let features = features();
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    let printed = cargo(
        &[&["metadata", "--format-version=1"], &*features].concat(),
        "--filter-platform",
    );
    serde_json::from_str(&printed).expect("cargo prints JSON")
}

/// Returns the optional features of this build, as arguments of cargo.
fn features() -> Vec<String> {
    [
        ("otel", cfg!(feature = "otel")),
        ("local", cfg!(feature = "local")),
        ("sigstore", cfg!(feature = "sigstore")),
    ]
    .into_iter()
    .filter(|(_, is_enabled)| *is_enabled)
    .map(|(name, _)| format!("--features=toolcell/{name}"))
    .collect()
}

/// Runs cargo for the platform of this build, which has an option of the given name.
fn cargo(arguments: &[&str], platform: &str) -> String {
    let host = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let host = String::from_utf8(host.stdout).expect("UTF-8");
    let host = host
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .expect("a host");
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--offline", platform, host])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns each crate with the features it is compiled with, for edges of the dependency graph as `cargo tree` names them, and
/// arguments of cargo.
fn compiled(edges: &str, features: &[String]) -> BTreeSet<String> {
    let mut arguments = vec![
        "tree",
        "--workspace",
        "--prefix=none",
        "--format={p} [{f}]",
        "--edges",
        edges,
    ];
    arguments.extend(features.iter().map(String::as_str));
    (cargo(&arguments, "--target").lines())
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect()
}

#[test]
fn tests_and_optional_features_rebuild_no_dependency() {
    // Without the program itself, which is compiled with its features.
    let program: BTreeSet<String> = (compiled("no-dev", &[]).into_iter())
        .filter(|line| !line.starts_with("toolcell v"))
        .collect();
    let tests = compiled("normal,build,dev", &features());
    let again: Vec<&String> = program.difference(&tests).collect();
    assert!(
        again.is_empty(),
        "compiled with other features for tests; see the dependencies of runtime/cli: {again:#?}"
    );
    assert!(program.len() > 300, "{program:?}");
}

#[test]
fn crates_that_take_long_are_compiled_once() {
    for name in ["cranelift-codegen", "wasmparser", "wasmtime", "wasmtime-environ"] {
        let compiled = compiled("no-dev", &features());
        let of_name: Vec<&String> = (compiled.iter())
            .filter(|line| line.starts_with(&format!("{name} v")))
            .collect();
        assert_eq!(of_name.len(), 1, "{of_name:#?}");
    }
}

#[test]
fn every_dependency_has_accepted_licence() {
    let deny: toml::Value =
        toml::from_str(&std::fs::read_to_string(root().join(".cargo/deny.toml")).expect("deny.toml"))
            .expect("deny.toml is TOML");
    let allowed: Vec<&str> = deny["licenses"]["allow"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|licence| licence.as_str().expect("a string"))
        .collect();
    let metadata = metadata();
    let mut refused = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let (name, version) = (&package["name"], &package["version"]);
        // `A OR B` needs one of them, `A AND B` both; old manifests write `A/B` for `OR`.
        let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
        let fine = licence.split(" OR ").any(|either| {
            either
                .split(" AND ")
                .all(|each| allowed.contains(&each.trim_matches(['(', ')', ' '])))
        });
        if !fine {
            refused.push(format!("{name} {version}: {licence}"));
        }
    }
    assert!(
        refused.is_empty(),
        "licences that .cargo/deny.toml does not allow:\n{}",
        refused.join("\n")
    );
}

#[test]
fn no_dependency_is_older_than_its_last_known_fix() {
    let locked = locked();
    for (name, at_least, why) in AT_LEAST {
        let at_least: Version = at_least.parse().expect("a version");
        for (_, version) in locked.iter().filter(|(n, _)| n == name) {
            assert!(
                *version >= at_least,
                "{name} {version} is older than {at_least}: {why}"
            );
        }
    }
}

#[test]
fn no_banned_dependency_is_present() {
    let locked = locked();
    for (banned, why) in BANNED {
        assert!(
            !locked.iter().any(|(name, _)| name == banned),
            "{banned} came in: {why}"
        );
    }
    assert!(
        locked.iter().any(|(name, _)| name == "wasmtime"),
        "the list of packages is empty"
    );
}
