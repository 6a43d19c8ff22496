//! The integration suite: one binary, one file for each subject.
//!
//! It drives the built `toolcell` the way a person does, and checks the house itself: who may depend on whom, the
//! contract in `wit/`, the prebuilt tools, and every command of the README.

mod cli_call;
mod cli_person;
mod cli_policy;
mod cli_tool;
mod config;
mod contract;
mod dependencies;
mod house;
mod prebuilt;
mod promises;
mod readme;
mod run_approval;
mod run_session;
mod run_turn;

/// Tools written in WebAssembly text, as the tests of the sandbox use them.
#[path = "../../runtime/sandbox/tests/support/mod.rs"]
mod probe;
