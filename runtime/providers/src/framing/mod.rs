//! Parsers of server-sent events and JSON lines, with bounded memory.
//!
//! The bytes may arrive in chunks of any size, split anywhere, also inside a character.

mod lines;
mod sse;
mod value;

use toolcell_core::provider::ProviderErrorKind;

use lines::Lines;
use sse::Sse;
pub(crate) use value::{count, parse};

/// Maximum length of a line, in bytes. A picture in base64 fits; a server that never ends a line cannot exhaust memory.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// Maximum size of an event, in bytes of all its data lines.
pub(crate) const MAX_EVENT_BYTES: usize = 16 << 20;

/// Framing of events in a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `text/event-stream` of the HTML standard.
    Sse,
    /// One JSON value per line.
    Lines,
}

/// Event of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The `event` field; empty if there is none.
    pub(crate) name: String,
    /// The data: one JSON value for all supported protocols, or a marker such as `[DONE]`.
    pub(crate) data: String,
}

/// Error in the framing of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingError {
    #[error("a line of the response is longer than {MAX_LINE_BYTES} bytes")]
    LongLine,
    #[error("an event of the response is longer than {MAX_EVENT_BYTES} bytes")]
    LongEvent,
    #[error("the response is not UTF-8")]
    NotUtf8,
}

impl FramingError {
    pub(crate) const KIND: ProviderErrorKind = ProviderErrorKind::Protocol;
}

/// Parser of events.
pub(crate) struct Reader {
    framing: Framing,
    lines: Lines,
    sse: Sse,
    lines_read: u64,
}

impl Reader {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            lines: Lines::new(MAX_LINE_BYTES),
            sse: Sse::new(MAX_EVENT_BYTES),
            lines_read: 0,
        }
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// Marks the end of the body: a last line without a line end is complete.
    pub(crate) fn end(&mut self) {
        self.lines.end();
    }

    /// Number of lines read since the last call, including lines that are not part of an event.
    pub(crate) fn take_lines(&mut self) -> u64 {
        std::mem::take(&mut self.lines_read)
    }

    /// Returns the next complete event, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, FramingError> {
        while let Some(line) = self.lines.next()? {
            self.lines_read += 1;
            match self.framing {
                Framing::Lines if line.trim().is_empty() => {}
                Framing::Lines => {
                    return Ok(Some(Event {
                        name: String::new(),
                        data: line,
                    }));
                }
                Framing::Sse => {
                    if let Some(event) = self.sse.line(&line)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
        // The standard drops an event that is not followed by an empty line. Some servers close the connection directly
        // after the last event; an incomplete event is invalid JSON and is detected by the decoder.
        if self.lines.has_ended() && self.framing == Framing::Sse {
            return Ok(self.sse.flush());
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_in_pieces(framing: Framing, bytes: &[u8], cuts: &[usize]) -> Result<Vec<Event>, FramingError> {
        let mut reader = Reader::new(framing);
        let mut events = Vec::new();
        let mut start = 0;
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        for cut in cuts {
            reader.push(&bytes[start..cut]);
            start = cut;
            while let Some(event) = reader.next()? {
                events.push(event);
            }
        }
        reader.end();
        while let Some(event) = reader.next()? {
            events.push(event);
        }
        Ok(events)
    }

    fn data(framing: Framing, text: &str) -> Vec<String> {
        let events = read_in_pieces(framing, text.as_bytes(), &[]).unwrap();
        events.into_iter().map(|e| e.data).collect()
    }

    #[test]
    fn server_sent_events_are_parsed() {
        let text = "\u{feff}: keep-alive\n\nevent: delta\ndata: {\"a\":\ndata: 1}\nid: 7\nretry: 10\n\ndata:x\r\n\r\ndata\n\n";
        assert_eq!(
            read_in_pieces(Framing::Sse, text.as_bytes(), &[]).unwrap(),
            [
                Event {
                    name: "delta".into(),
                    data: "{\"a\":\n1}".into()
                },
                Event {
                    name: String::new(),
                    data: "x".into()
                },
                Event {
                    name: String::new(),
                    data: String::new()
                },
            ]
        );
    }

    #[test]
    fn every_standard_line_end_ends_one_line() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("data: a{end}data: b{end}{end}data: c{end}{end}");
            assert_eq!(data(Framing::Sse, &text), ["a\nb", "c"], "{end:?}");
        }
    }

    #[test]
    fn last_event_needs_no_empty_line() {
        assert_eq!(data(Framing::Sse, "data: a\n\ndata: b"), ["a", "b"]);
        assert_eq!(data(Framing::Sse, "data: a\n\n: end"), ["a"]);
    }

    #[test]
    fn empty_json_lines_are_skipped() {
        assert_eq!(
            data(Framing::Lines, "{}\r\n\n  \n[1]\n{\"a\":2}"),
            ["{}", "[1]", "{\"a\":2}"]
        );
    }

    #[test]
    fn invalid_utf8_is_refused() {
        assert_eq!(
            read_in_pieces(Framing::Sse, b"data: \xff\n\n", &[]),
            Err(FramingError::NotUtf8)
        );
    }

    #[test]
    fn event_beyond_the_limit_is_refused() {
        let of_len = |first: usize, second: usize| {
            let text = format!("data: {}\ndata: {}\n\n", "x".repeat(first), "y".repeat(second));
            let mut sse = Sse::new(10);
            text.lines().map(|l| sse.line(l)).find_map(|r| r.transpose())
        };
        assert!(matches!(of_len(4, 5), Some(Ok(event)) if event.data.len() == 10));
        assert_eq!(of_len(4, 6), Some(Err(FramingError::LongEvent)));
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_matter(
            text in "(data: [aé€🦀]{0,6}(\r\n|\n|\r)|: c(\r\n|\n)|event: n\n|(\r\n|\n)){0,12}",
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            for framing in [Framing::Sse, Framing::Lines] {
                prop_assert_eq!(
                    read_in_pieces(framing, text.as_bytes(), &cuts),
                    read_in_pieces(framing, text.as_bytes(), &[])
                );
            }
        }
    }
}
