//! The log of Toolcell itself, for those who look for an error in it: standard error, off unless `TOOLCELL_LOG` names a
//! filter, such as `debug` or `toolcell_sandbox=trace`.

use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use crate::environment::Environment;
use crate::report::{Exit, Failure};
use crate::telemetry::Telemetry;
use crate::terminal::wants_colour;

/// Starts the log, and what sends spans to a collector.
///
/// # Errors
/// When the filter of the log cannot be read.
pub(crate) fn start(environment: &Environment) -> Result<Telemetry, Failure> {
    let log = filter(environment)?.map(|filter| {
        fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(wants_colour(environment, environment.terminals.stderr))
            .with_filter(filter)
    });
    let (telemetry, spans) = Telemetry::start(environment);
    if log.is_some() || spans.is_some() {
        tracing_subscriber::registry().with(spans).with(log).init();
    }
    Ok(telemetry)
}

fn filter(environment: &Environment) -> Result<Option<EnvFilter>, Failure> {
    let Some(filter) = environment.var("TOOLCELL_LOG") else {
        return Ok(None);
    };
    let filter = filter
        .parse()
        .map_err(|e: tracing_subscriber::filter::ParseError| {
            Failure::new(Exit::Config, format!("`TOOLCELL_LOG={filter}` cannot be used"))
                .because(e)
                .hint("use a level (`error`, `warn`, `info`, `debug`, `trace`), or `TARGET=LEVEL`")
        })?;
    Ok(Some(filter))
}
