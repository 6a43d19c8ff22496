//! One file for each command.

pub(crate) mod approval;
pub(crate) mod call;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod lock;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod scratch;
pub(crate) mod secret;
pub(crate) mod session;
pub(crate) mod tool;

use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::{Cli, Command};
use crate::telemetry::log;
use crate::ui::render::Console;

/// Runs the command that was asked for.
///
/// # Errors
/// When it did not work, ready to be told.
pub(crate) async fn dispatch(
    cli: Cli,
    environment: &Environment,
    console: &Console,
) -> Result<Exit, Failure> {
    let telemetry = log::start(environment)?;
    let ended = run(cli, environment, console).await;
    telemetry.end(console).await;
    ended
}

async fn run(cli: Cli, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
    let overrides = Overrides {
        config: cli.config,
        ..Overrides::default()
    };
    match cli.command {
        Command::Run(command) => command.run(overrides, environment, console).await,
        Command::Chat(command) => command.run(overrides, environment, console).await,
        Command::Session(command) => command.run(overrides, environment, console).await,
        Command::Call(command) => command.run(overrides, environment, console).await,
        Command::Tool(command) => command.run(overrides, environment, console).await,
        Command::Scratch(command) => command.run(environment, console),
        Command::Approval(command) => command.run(environment, console),
        Command::Secret(command) => command.run(environment, console),
        Command::Policy(command) => command.run(overrides, environment, console).await,
        Command::Lock(command) => command.run(overrides, environment, console).await,
        Command::Config(command) => command.run(overrides, environment, console),
        Command::Doctor(command) => command.run(overrides, environment, console).await,
        Command::Completions(command) => command.run(),
    }
}
