//! `toolcell mcp`: the Model Context Protocol.

mod http;
mod install;
mod serve;

use clap::Subcommand;

use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;

/// Serve tools to clients of the Model Context Protocol, and tell clients about it.
#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    Serve(serve::Serve),
    Install(install::Install),
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
            Self::Install(command) => command.run(environment, console),
        }
    }
}
