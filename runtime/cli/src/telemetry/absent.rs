//! A build that sends nothing.

use tracing_subscriber::layer::Identity;

use crate::environment::Environment;
use crate::ui::render::Console;

/// What sends nothing.
#[derive(Debug)]
pub(crate) struct Telemetry;

impl Telemetry {
    /// Starts nothing.
    pub(crate) fn start(_environment: &Environment) -> (Self, Option<Identity>) {
        (Self, None)
    }

    /// Has nothing left to send.
    #[expect(clippy::unused_async, reason = "the other build waits here")]
    pub(crate) async fn end(self, _console: &Console) {}
}
