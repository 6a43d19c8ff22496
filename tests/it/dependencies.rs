//! What comes into the binary: licences, and versions below which a dependency is known to be unsafe.
//!
//! `cargo deny check` does the same with today's advisories; this needs no database and runs everywhere.

use std::process::Command;

use semver::Version;
use serde_json::Value;

use crate::house::root;

/// Oldest version of a dependency that holds, with the advisory that says why.
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

/// Crates that must not come in at all.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "one TLS stack: rustls with ring"),
    ("native-tls", "one TLS stack: rustls with ring"),
    ("aws-lc-sys", "one TLS stack: rustls with ring"),
    ("html2md", "GPL-3.0-or-later"),
];

fn metadata() -> Value {
    let host = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let host = String::from_utf8(host.stdout).expect("UTF-8");
    let host = host
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .expect("a host")
        .to_owned();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--format-version",
            "1",
            "--all-features",
            "--filter-platform",
            &host,
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn packages(metadata: &Value) -> Vec<(&str, Version, Option<&str>)> {
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|p| {
            let version = p["version"].as_str().expect("a version");
            (
                p["name"].as_str().expect("a name"),
                version.parse().expect("a version"),
                p["license"].as_str(),
            )
        })
        .collect()
}

#[test]
fn every_dependency_has_a_licence_that_we_accept() {
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
    for (name, version, licence) in packages(&metadata) {
        // `A OR B` is fine when one is; `A AND B` when both are; old manifests write `A/B` for `OR`.
        let licence = licence.unwrap_or("none").replace('/', " OR ");
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
    let metadata = metadata();
    for (name, at_least, why) in AT_LEAST {
        let at_least: Version = at_least.parse().expect("a version");
        for (_, version, _) in packages(&metadata).iter().filter(|(n, ..)| n == name) {
            assert!(
                *version >= at_least,
                "{name} {version} is older than {at_least}: {why}"
            );
        }
    }
}

#[test]
fn nothing_banned_comes_in() {
    let metadata = metadata();
    let packages = packages(&metadata);
    for (banned, why) in BANNED {
        assert!(
            !packages.iter().any(|(name, ..)| name == banned),
            "{banned} came in: {why}"
        );
    }
    assert!(
        packages.iter().any(|(name, ..)| *name == "wasmtime"),
        "the list of packages is empty"
    );
}
