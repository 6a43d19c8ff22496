//! `toolcell mcp`: the Model Context Protocol, as a server and as a client.

mod change;
pub(crate) mod edited;
mod full_paths;
mod install;
pub(crate) mod list;
mod login;
pub(in crate::commands) mod serve;
mod test;

use clap::Subcommand;

use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;

/// Serve tools to clients of the Model Context Protocol, and use the servers of others.
#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    Serve(serve::Serve),
    Install(install::Install),
    List(list::List),
    Test(test::Test),
    Login(login::Login),
    Logout(login::Logout),
    Add(change::Add),
    Remove(change::Remove),
}

impl Mcp {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        match self {
            Self::Serve(command) => command.run(overrides, environment, console).await,
            Self::Install(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::List(command) => command.run(overrides, environment, console),
            Self::Test(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Login(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Logout(command) => command.run(overrides, environment, console).await,
            Self::Add(command) => command.run(overrides, environment, console),
            Self::Remove(command) => command.run(overrides, environment, console),
        }
    }
}
