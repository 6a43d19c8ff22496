//! Checks of what surrounds Toolcell: the saved sessions, the buckets, the terminal, the toolchains of tool authors.

use std::path::{Path, PathBuf};

use toolcell_core::SessionStore as _;

use super::report::Finding;
use crate::components::buckets;
use crate::config::units::Bytes;
use crate::environment::Environment;
use crate::packages::{self, unusable_store};
use crate::session::store;
use crate::session::turn_runner::store_failure;

/// Target of the compilers that make tools.
const TARGET: &str = "wasm32-wasip2";

/// Programs that make tools from other languages than Rust.
const PROGRAMS: [&str; 3] = ["componentize-py", "jco", "wasm-tools"];

/// Checks the file of all sessions.
pub(super) async fn sessions(environment: &Environment) -> Finding {
    let exists = store::path_of(environment).is_some_and(|path| path.symlink_metadata().is_ok());
    if !exists {
        return Finding::Good("none are saved".into());
    }
    let store = match store::open_file(environment) {
        Ok(store) => store,
        Err(failure) => return Finding::Bad(failure),
    };
    let checked = async {
        store.check().await?;
        store.list().await
    };
    match checked.await {
        Ok(all) => {
            let bytes = all.iter().map(|info| info.bytes).sum();
            Finding::Good(format!("{} saved, {}", all.len(), Bytes(bytes)))
        }
        Err(error) => Finding::Bad(store_failure(error)),
    }
}

/// Checks the file of all buckets.
pub(super) async fn buckets(environment: &Environment) -> Finding {
    let store = match buckets::existing(environment) {
        Ok(Some(store)) => store,
        Ok(None) => return Finding::Good("none".into()),
        Err(failure) => return Finding::Bad(failure),
    };
    let checked = async {
        store.check().await?;
        store.buckets().await
    };
    match checked.await {
        Ok(all) => {
            let bytes = Bytes(all.iter().map(|info| info.bytes).sum());
            Finding::Good(match all.len() {
                0 => "none".into(),
                1 => format!("1 bucket, {bytes}"),
                n => format!("{n} buckets, {bytes}"),
            })
        }
        Err(error) => Finding::Bad(buckets::unusable(environment, error)),
    }
}

/// Checks the list of packages.
pub(super) fn packages(environment: &Environment) -> Finding {
    if environment.data_dir.is_none() {
        return Finding::Good("none".into());
    }
    match packages::store::packages(environment) {
        Ok(all) => Finding::Good(match all.len() {
            0 => "none".into(),
            1 => "1 package".into(),
            n => format!("{n} packages"),
        }),
        Err(error) => Finding::Bad(unusable_store(error, environment)),
    }
}

/// Describes the terminal: who can be asked, and what can be drawn.
pub(super) fn terminals(environment: &Environment) -> Finding {
    let terminals = environment.terminals;
    let streams: Vec<&str> = [
        ("input", terminals.stdin),
        ("output", terminals.stdout),
        ("errors", terminals.stderr),
    ]
    .into_iter()
    .filter_map(|(name, is_terminal)| is_terminal.then_some(name))
    .collect();
    if !terminals.stdin || !terminals.stderr {
        let which = match streams.as_slice() {
            [] => "no standard stream is one".to_owned(),
            some => format!("only for {}", some.join(" and ")),
        };
        return Finding::Note(format!("{which}; no user can approve calls"));
    }
    let term = environment.var("TERM").unwrap_or_default();
    match term {
        "" | "dumb" => Finding::Note("no progress line and no completion: `TERM` names no terminal".into()),
        term => Finding::Good(format!("for {}; TERM={term}", streams.join(", "))),
    }
}

/// Names the toolchains for authors of tools. None is run: a directory of the search path could be that of a project.
pub(super) fn toolchains(environment: &Environment) -> Finding {
    let path = environment.var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .collect();
    let has = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    let mut found = Vec::new();
    let mut lacks_target = false;
    if has("cargo") {
        let rustup = match environment.var("RUSTUP_HOME") {
            Some(directory) if !directory.is_empty() => Some(PathBuf::from(directory)),
            _ => environment.home.as_ref().map(|home| home.join(".rustup")),
        };
        lacks_target = !rustup.is_some_and(|rustup| has_target(&rustup));
        found.push(if lacks_target {
            format!("cargo ({TARGET} was not found; rustup target add {TARGET})")
        } else {
            format!("cargo with {TARGET}")
        });
    }
    found.extend(
        PROGRAMS
            .into_iter()
            .filter(|program| has(program))
            .map(str::to_owned),
    );
    match found.as_slice() {
        [] => Finding::Good("none found; only authors of tools need one".into()),
        found if lacks_target => Finding::Note(found.join(", ")),
        found => Finding::Good(found.join(", ")),
    }
}

/// True if a toolchain in the directory of rustup has the target.
fn has_target(rustup: &Path) -> bool {
    let Ok(toolchains) = std::fs::read_dir(rustup.join("toolchains")) else {
        return false;
    };
    toolchains
        .flatten()
        .any(|toolchain| toolchain.path().join("lib/rustlib").join(TARGET).is_dir())
}
