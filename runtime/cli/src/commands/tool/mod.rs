//! `toolcell tool`: writes, builds, tests, lists, adds, inspects and calibrates tools, and manages trust.

pub(crate) mod build;
pub(crate) mod calibrate;
pub(crate) mod dev;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod new;
mod package;
pub(crate) mod test;
pub(crate) mod trust;

use clap::Subcommand;

use crate::config::Overrides;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::Console;

/// Write, build, test, list, add and inspect tools, and trust components of a project.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    New(new::New),
    Build(build::Build),
    List(list::List),
    Inspect(inspect::Inspect),
    Add(package::Add),
    Update(package::Update),
    Remove(package::Remove),
    Push(package::Push),
    Test(test::Test),
    Dev(dev::Dev),
    Calibrate(calibrate::Calibrate),
    Trust(trust::Trust),
    Trusted(trust::Trusted),
    Forget(trust::Forget),
}

impl Tool {
    pub(crate) async fn run(
        self,
        overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        match self {
            Self::New(command) => command.run(environment, console),
            Self::Build(command) => command.run(overrides, environment, console).await,
            Self::List(command) => command.run(overrides, environment, console).await,
            Self::Inspect(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Add(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Update(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Push(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Remove(command) => command.run(environment, console).await,
            Self::Test(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Dev(command) => Box::pin(command.run(overrides, environment, console)).await,
            Self::Calibrate(command) => command.run(overrides, environment, console).await,
            Self::Trust(command) => command.run(overrides, environment, console),
            Self::Trusted(command) => command.run(environment, console),
            Self::Forget(command) => command.run(environment, console),
        }
    }
}
