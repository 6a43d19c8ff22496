//! The log of Toolcell itself, for those who look for an error in it: standard error, off unless `TOOLCELL_LOG` names a
//! filter, such as `debug` or `toolcell_sandbox=trace`.

use tracing_subscriber::EnvFilter;

use crate::environment::Environment;
use crate::report::{Exit, Failure};
use crate::terminal::wants_colour;

/// Starts the log.
///
/// # Errors
/// When the filter cannot be read.
pub(crate) fn start(environment: &Environment) -> Result<(), Failure> {
    let Some(filter) = environment.var("TOOLCELL_LOG") else {
        return Ok(());
    };
    let filter: EnvFilter = filter
        .parse()
        .map_err(|e: tracing_subscriber::filter::ParseError| {
            Failure::new(Exit::Config, format!("`TOOLCELL_LOG={filter}` cannot be used"))
                .because(e)
                .hint("use a level (`error`, `warn`, `info`, `debug`, `trace`), or `TARGET=LEVEL`")
        })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(wants_colour(environment, environment.terminals.stderr))
        .init();
    Ok(())
}
