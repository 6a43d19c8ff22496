//! Packages: `toolcell tool add`, `update`, `remove` and `push`.

mod files;
mod hostile;
#[cfg(target_os = "linux")]
mod registry;
mod signatures;
#[cfg(feature = "sigstore")]
mod sigstore;
#[cfg(not(feature = "sigstore"))]
mod sigstore_absent;

use std::path::PathBuf;

use toolcell_sandbox::Digest;

use crate::probe::Probe;
use crate::support::cli_user::User;

/// A component whose tool has this description.
fn component(description: &str) -> Vec<u8> {
    let probe = Probe {
        description: description.into(),
        ..Probe::default()
    };
    probe.build()
}

/// Digest of bytes, in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    Digest::of(bytes).hex()
}

/// Files of stored components.
fn stored(user: &User) -> Vec<PathBuf> {
    let dir = user.home().join(".local/share/toolcell/packages/sha256");
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn configuration(user: &User) -> String {
    std::fs::read_to_string(user.home().join(".config/toolcell/config.toml")).unwrap_or_default()
}
