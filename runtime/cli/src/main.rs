//! The command line of Toolcell: configuration and arguments in, tools and a model put together, events and errors out.
//!
//! It is the only crate that reads the environment, the home directory and the working directory, and the only one that
//! knows all the others.

mod approve;
mod args;
mod assemble;
mod buckets;
mod commands;
mod config;
mod environment;
mod exit;
mod files;
mod flow;
mod grants;
mod hints;
mod history;
mod hook;
mod interrupt;
mod keyring;
mod lock;
mod log;
mod logs;
mod model;
mod near;
mod own;
mod project_rules;
mod quote;
mod remembered;
mod render;
mod report;
mod scratch;
mod scratch_diff;
mod secrets;
mod shipped;
mod subagents;
mod suspicion;
mod telemetry;
mod terminal;
mod toolbox;
mod trust;
mod turns;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    if environment::is_compile_child() {
        return toolcell_sandbox::compile_child_main();
    }
    environment::forbid_core_dumps();
    let cli = args::Cli::parse();
    let environment = match environment::Environment::read() {
        Ok(environment) => environment,
        Err(failure) => {
            eprintln!("error: {failure}");
            return failure.exit.into();
        }
    };
    let console = render::Console::new(&environment);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            console.tell(
                &report::Failure::new(exit::Exit::Internal, "no threads can be started").because(error),
            );
            return exit::Exit::Internal.into();
        }
    };
    let ended = runtime.block_on(commands::dispatch(cli, &environment, &console));
    // A call that ignores its end must not hold the process.
    runtime.shutdown_background();
    // A question that nobody waits for any more may still stand there.
    terminal::restore();
    report::end(ended, &console).into()
}
