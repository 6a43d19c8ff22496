//! From the bytes of an answer to its events: server-sent events and JSON lines, both bounded.
//!
//! The bytes come in pieces of any size, cut anywhere, also inside a character.

mod lines;
mod sse;

use toolcell_core::provider::ProviderErrorKind;

use lines::Lines;
use sse::Sse;

/// Longest line of an answer. A picture in base64 fits; a server that never ends a line does not fill the memory.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// Longest event of an answer, all its data lines together.
pub(crate) const MAX_EVENT_BYTES: usize = 16 << 20;

/// How a wire separates its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `text/event-stream` of the HTML standard.
    Sse,
    /// One JSON value a line.
    Lines,
}

/// One event of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The `event` field; empty where there is none.
    pub(crate) name: String,
    /// The data, which is one JSON value on every wire that we speak, or a marker such as `[DONE]`.
    pub(crate) data: String,
}

/// Why bytes are not events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingError {
    #[error("a line of the answer is longer than {MAX_LINE_BYTES} bytes")]
    LongLine,
    #[error("an event of the answer is longer than {MAX_EVENT_BYTES} bytes")]
    LongEvent,
    #[error("the answer is not UTF-8")]
    NotUtf8,
}

impl FramingError {
    pub(crate) const KIND: ProviderErrorKind = ProviderErrorKind::Protocol;
}

/// Takes bytes and gives events.
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

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The body has ended: a last line without a line end counts.
    pub(crate) fn end(&mut self) {
        self.lines.end();
    }

    /// Lines that were read since the last time, also those that are no event or a part of one.
    pub(crate) fn take_lines(&mut self) -> u64 {
        std::mem::take(&mut self.lines_read)
    }

    /// The next complete event, if there is one.
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
        // The standard drops an event that no empty line ends. Servers that close early after a complete last event
        // exist; half an event is no JSON and is found out by whoever reads the data.
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
    fn server_sent_events_are_read_with_comments_names_and_several_data_lines() {
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
    fn all_line_ends_of_the_standard_end_one_line() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("data: a{end}data: b{end}{end}data: c{end}{end}");
            assert_eq!(data(Framing::Sse, &text), ["a\nb", "c"], "{end:?}");
        }
    }

    #[test]
    fn a_last_event_counts_without_its_empty_line() {
        assert_eq!(data(Framing::Sse, "data: a\n\ndata: b"), ["a", "b"]);
        assert_eq!(data(Framing::Sse, "data: a\n\n: end"), ["a"]);
    }

    #[test]
    fn json_lines_are_read_without_empty_ones() {
        assert_eq!(
            data(Framing::Lines, "{}\r\n\n  \n[1]\n{\"a\":2}"),
            ["{}", "[1]", "{\"a\":2}"]
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(
            read_in_pieces(Framing::Sse, b"data: \xff\n\n", &[]),
            Err(FramingError::NotUtf8)
        );
    }

    #[test]
    fn an_event_is_accepted_up_to_its_limit_and_refused_beyond() {
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
        fn cutting_the_bytes_anywhere_changes_nothing(
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
