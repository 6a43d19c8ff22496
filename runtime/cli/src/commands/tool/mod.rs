//! `toolcell tool`: what tools there are, and what they are.

pub(crate) mod calibrate;
pub(crate) mod inspect;
pub(crate) mod list;

use clap::Subcommand;

use crate::config::Overrides;
use crate::environment::Environment;
use crate::render::Console;
use crate::report::{Exit, Failure};

/// List and inspect tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    List(list::List),
    Inspect(inspect::Inspect),
    Calibrate(calibrate::Calibrate),
}

impl Tool {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        match self {
            Self::List(command) => command.run(overrides, environment, console).await,
            Self::Inspect(command) => command.run(overrides, environment, console).await,
            Self::Calibrate(command) => command.run(overrides, environment, console).await,
        }
    }
}
