//! The `toolcell` command line: builds tools and a model from configuration and arguments, and prints events and
//! errors.
//!
//! This is the only crate that reads the environment, the home directory and the working directory, and the only one
//! that depends on all the others.

mod agent;
mod approval;
mod authoring;
mod command_line;
mod commands;
mod components;
mod config;
mod databases;
mod environment;
mod error;
mod exit;
mod flags;
mod mcp;
mod packages;
mod scratch;
mod session;
mod telemetry;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    if environment::is_compile_child() {
        return toolcell_sandbox::compile_child_main();
    }
    if environment::is_template_child() {
        return toolcell_local::template::template_child_main();
    }
    #[cfg(feature = "local")]
    if environment::is_engine_child() {
        return toolcell_local::engine::engine_child_main();
    }
    if let Some(failed) = environment::become_session_child() {
        return failed;
    }
    environment::forbid_core_dumps();
    environment::raise_open_files();
    let parsed = command_line::parse();
    match environment::Environment::read() {
        Ok(environment) => commands::execute(parsed, &environment),
        Err(error) => {
            eprintln!("error: could not read the working directory: {error}");
            eprintln!(" hint: change into a directory that exists");
            exit::Exit::Usage.into()
        }
    }
}
