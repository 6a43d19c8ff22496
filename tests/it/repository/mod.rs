//! The repository itself: packages, documents, contract and prebuilt tools.

use std::process::Command;

mod contract;
mod dependencies;
mod guide;
mod limits_page;
mod prebuilt;
mod promises;
mod readme;
mod settings_page;
pub(crate) mod workspace;

/// Gives a command with an empty environment the place of cargo and its packages, and the settings of rustup: without them, such
/// as `RUSTUP_AUTO_INSTALL=0`, it may replace the user's toolchain.
fn keep_toolchain(command: &mut Command) {
    let home = std::env::var("HOME").expect("HOME");
    for (name, default) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        command.env(name, format!("{home}/{default}"));
    }
    let is_kept = |name: &str| name == "CARGO_HOME" || name.starts_with("RUSTUP_");
    command.envs(std::env::vars().filter(|(name, _)| is_kept(name)));
}
