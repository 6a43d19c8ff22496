//! Events as JSON lines on standard output: one event, one line.

use toolcell_core::EventSink;
use toolcell_core::event::Event;

use super::output::Output;
use super::{Console, json};

/// Writes each event as one line of JSON.
pub(crate) struct JsonLines {
    /// Console whose standard output gets the lines.
    pub(crate) console: Console,
    /// Notes that it cannot be written to.
    pub(crate) output: Output,
}

impl EventSink for JsonLines {
    fn event(&self, event: &Event) {
        if let Err(failure) = json::print_line(&self.console, event) {
            self.output.fail(failure);
        }
    }
}
