//! Event sinks.

use toolcell_core::{Event, EventSink};

/// Event sink that discards all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn event(&self, _event: &Event) {}
}
