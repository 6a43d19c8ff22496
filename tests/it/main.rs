//! Integration suite: one binary, one file per subject.
//!
//! It runs the built `toolcell` as a user does, and checks the repository itself: dependencies between packages, the
//! contract in `wit/`, the prebuilt tools, and every command of the README.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how it fails")]

mod cli_call;
mod cli_policy;
mod cli_tool;
mod cli_user;
mod config;
mod contract;
mod denials;
mod dependencies;
mod guide;
mod hooks;
mod keyring;
mod memory;
mod model_server;
#[cfg(feature = "otel")]
mod otel;
mod planted;
mod planted_files;
mod prebuilt;
mod project_tools;
mod promises;
mod pty;
mod question;
mod readme;
mod run_agents;
mod run_approval;
mod run_budget;
mod run_log;
mod run_model;
mod run_scratch;
mod run_session;
mod run_turn;
mod sessions;
mod snippets;
mod workspace;

/// Tools in WebAssembly text, shared with the tests of the sandbox.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the components of tests are small"
)]
#[path = "../../runtime/sandbox/tests/support/mod.rs"]
mod probe;
