//! Sinks of events.

use toolcell_core::{Event, EventSink};

/// A sink that shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn event(&self, _event: &Event) {}
}
