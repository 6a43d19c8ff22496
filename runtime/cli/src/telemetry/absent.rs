//! Telemetry of a build without the feature `otel`: nothing is exported.

use tracing_subscriber::layer::Identity;

use crate::environment::Environment;
use crate::ui::render::Console;

/// Telemetry that exports nothing.
#[derive(Debug)]
pub(crate) struct Telemetry;

impl Telemetry {
    /// Returns a disabled exporter.
    pub(crate) fn start(_environment: &Environment) -> (Self, Option<Identity>) {
        (Self, None)
    }

    /// Does nothing.
    #[expect(clippy::unused_async, reason = "the other build waits here")]
    pub(crate) async fn end(self, _console: &Console) {}
}
