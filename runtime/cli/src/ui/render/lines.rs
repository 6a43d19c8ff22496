//! Events as JSON lines on standard output: one event, one line.

use tokio_util::sync::CancellationToken;
use toolcell_core::EventSink;
use toolcell_core::event::Event;

use super::json;

/// Writes each event as one line of JSON.
pub(crate) struct JsonLines {
    /// Cancelled when nobody reads any more.
    pub(crate) gone: CancellationToken,
}

impl EventSink for JsonLines {
    fn event(&self, event: &Event) {
        if json::print_line(event).is_err() {
            self.gone.cancel();
        }
    }
}
