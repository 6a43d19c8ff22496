//! Integration suite: one binary, one file or folder per subject.
//!
//! It runs the built `toolcell` as a user does, and checks the repository itself: dependencies between packages, the
//! contract in `wit/`, the prebuilt tools, and every command of the README.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how it fails")]

mod any_component;
mod authors;
mod bucket;
mod cli;
mod config;
mod denials;
mod foreign_words;
mod hooks;
mod keyring;
mod local;
mod mcp;
mod mcp_client;
mod memory;
#[cfg(feature = "otel")]
mod otel;
mod packages;
mod planted_files;
mod project_tools;
mod question;
mod repository;
mod run;
mod serve;
mod support;
mod tool_test;

/// Tools in WebAssembly text, shared with the tests of the sandbox.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the components of tests are small"
)]
#[path = "../../runtime/sandbox/tests/support/mod.rs"]
mod probe;
