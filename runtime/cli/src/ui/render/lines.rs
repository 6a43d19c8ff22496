//! Events as JSON lines on standard output: one event, one line, verbatim.

use std::io::Write as _;

use tokio_util::sync::CancellationToken;
use toolcell_core::EventSink;
use toolcell_core::event::Event;

/// Writes each event as one line of JSON.
pub(crate) struct JsonLines {
    /// Cancelled when nobody reads any more.
    pub(crate) gone: CancellationToken,
}

impl EventSink for JsonLines {
    fn event(&self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("events have only string keys and finite numbers");
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            self.gone.cancel();
        }
    }
}
