//! The `toolcell` command line: builds tools and a model from configuration and arguments, and prints events and
//! errors.
//!
//! This is the only crate that reads the environment, the home directory and the working directory, and the only one
//! that depends on all the others.

mod agent;
mod approval;
mod command_line;
mod commands;
mod components;
mod config;
mod environment;
mod error;
mod exit;
mod flags;
mod scratch;
mod session;
mod telemetry;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    if environment::is_compile_child() {
        return toolcell_sandbox::compile_child_main();
    }
    environment::forbid_core_dumps();
    let parsed = command_line::parse();
    let environment = match environment::Environment::read() {
        Ok(environment) => environment,
        Err(error) => {
            eprintln!("error: could not read the working directory: {error}");
            eprintln!(" hint: change into a directory that exists");
            return exit::Exit::Usage.into();
        }
    };
    let console = ui::render::Console::new(&environment);
    let cli = match parsed {
        Ok(cli) => cli,
        Err(failure) => return console.finish(Err(failure)).into(),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            console.report(
                &error::Failure::new(exit::Exit::Internal, "could not start the async runtime")
                    .because(error),
            );
            return exit::Exit::Internal.into();
        }
    };
    let ended = runtime.block_on(commands::dispatch(cli, &environment, &console));
    // A call that does not stop when cancelled must not keep the process alive.
    runtime.shutdown_background();
    // A question that is no longer awaited may still hold the terminal in raw mode.
    ui::terminal::restore();
    console.finish(ended).into()
}
