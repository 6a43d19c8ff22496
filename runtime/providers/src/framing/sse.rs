//! Parser of server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! Fields for reconnecting (`id`, `retry`) are ignored: an answer of a model cannot be resumed.

use super::{Event, FramingError};

/// Collects lines until an empty line ends the event.
pub(super) struct Sse {
    max: usize,
    name: String,
    data: Option<String>,
}

impl Sse {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            name: String::new(),
            data: None,
        }
    }

    pub(super) fn line(&mut self, line: &str) -> Result<Option<Event>, FramingError> {
        if line.is_empty() {
            return Ok(self.flush());
        }
        // A line that starts with a colon is a comment: its field name is empty.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                let data = match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data
                    }
                    empty => empty.insert(String::new()),
                };
                if data.len() + value.len() > self.max {
                    return Err(FramingError::LongEvent);
                }
                data.push_str(value);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Ends the current event; an event without data is dropped.
    pub(super) fn flush(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        self.data.take().map(|data| Event { name, data })
    }
}
