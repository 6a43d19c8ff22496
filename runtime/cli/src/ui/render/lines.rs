//! Events as JSON lines on standard output: one event, one line.

use tokio_util::sync::CancellationToken;
use toolcell_core::EventSink;
use toolcell_core::event::Event;

use super::{Console, json};

/// Writes each event as one line of JSON.
pub(crate) struct JsonLines {
    /// Console whose standard output gets the lines.
    pub(crate) console: Console,
    /// Cancelled when the output pipe is closed.
    pub(crate) closed: CancellationToken,
}

impl EventSink for JsonLines {
    fn event(&self, event: &Event) {
        if json::print_line(&self.console, event).is_err() {
            self.closed.cancel();
        }
    }
}
