//! Server-sent events of an answer, read with bounded memory (HTML standard, section 9.2).

use std::time::Duration;

use crate::client::link::MAX_ANSWER_BYTES;

/// Maximum size of an event and of a line of it, in bytes: a message, and the name of its field.
const MAX_EVENT_BYTES: usize = MAX_ANSWER_BYTES + 16;

/// Maximum length of the identifier of an event, which is sent back in a header.
const MAX_EVENT_ID: usize = 1 << 10;

/// Reader of events. The bytes may arrive in chunks of any size.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// True after a carriage return, whose line feed belongs to the same line end.
    is_after_return: bool,
    /// Identifier of the last event that had one, from which a stream can be continued.
    pub(super) last_id: Option<String>,
    /// Time after which the server wants a closed stream to be opened again.
    pub(super) retry: Option<Duration>,
}

/// An event is larger than a message can be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// Reads bytes up to the end of the next event. Returns the number of bytes that were read, and the data of the event if
    /// it has some.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(usize, Option<Vec<u8>>), TooLong> {
        let mut read = 0;
        while read < bytes.len() {
            let rest = &bytes[read..];
            if std::mem::take(&mut self.is_after_return) && rest[0] == b'\n' {
                read += 1;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + self.data.len() + part.len() > MAX_EVENT_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            read += part.len();
            let Some(end) = end else { break };
            read += 1;
            self.is_after_return = rest[end] == b'\r';
            if let Some(data) = self.end_of_line() {
                return Ok((read, Some(data)));
            }
        }
        Ok((read, None))
    }

    /// Begins a new stream after the event with this identifier. An incomplete event is dropped.
    pub(super) fn restart(&mut self, last: String) {
        *self = Self {
            last_id: Some(last),
            retry: self.retry,
            ..Self::default()
        };
    }

    /// Handles a complete line. Returns the data of the event that an empty line ends.
    fn end_of_line(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data)
                .then_some(data)
                .filter(|data| !data.is_empty());
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (&line[..], &[][..]),
        };
        match name {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"id" => {
                let id = std::str::from_utf8(value).ok();
                let is_usable =
                    |id: &&str| id.len() <= MAX_EVENT_ID && id.bytes().all(|byte| (32..127).contains(&byte));
                self.last_id = id
                    .filter(is_usable)
                    .filter(|id| !id.is_empty())
                    .map(str::to_owned);
            }
            b"retry" => {
                let time = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.retry = time.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
        // Its memory is used again for the next line.
        line.clear();
        self.line = line;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &mut Events, mut bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (read, data) = events.read(bytes)?;
            all.extend(data.map(|data| String::from_utf8(data).unwrap()));
            bytes = &bytes[read..];
        }
        Ok(all)
    }

    const STREAM: &[u8] = b"id: 7\nretry: 20\ndata:\n\n: alive\r\n\r\ndata: {\"a\":\rdata:1}\r\r\nevent: message\r\ndata:x\r\nother\r\n\r\ndata: cut";

    #[test]
    fn events_are_read_whatever_their_line_ends() {
        let mut events = Events::default();
        assert_eq!(read(&mut events, STREAM).unwrap(), ["{\"a\":\n1}", "x"]);
        assert_eq!(events.last_id.as_deref(), Some("7"));
        assert_eq!(events.retry, Some(Duration::from_millis(20)));
    }

    #[test]
    fn events_may_be_split_anywhere() {
        for size in 1..STREAM.len() {
            let mut events = Events::default();
            let pieces = STREAM
                .chunks(size)
                .flat_map(|piece| read(&mut events, piece).unwrap());
            assert_eq!(pieces.collect::<Vec<_>>(), ["{\"a\":\n1}", "x"], "{size}");
        }
    }

    #[test]
    fn event_is_read_up_to_its_size() {
        let of = |bytes: usize| {
            let mut event = b"data:".to_vec();
            event.extend(vec![b'x'; bytes]);
            event.extend(b"\n\n");
            read(&mut Events::default(), &event).map(|all| all[0].len())
        };
        assert_eq!(of(MAX_EVENT_BYTES - 5), Ok(MAX_EVENT_BYTES - 5));
        assert_eq!(of(MAX_EVENT_BYTES - 4), Err(TooLong));
        // Many lines of one event count together.
        let lines = b"data: 0123456789\n".repeat(MAX_EVENT_BYTES / 10);
        assert_eq!(read(&mut Events::default(), &lines), Err(TooLong));
        // A line without end, and comments without end, keep no memory beyond it.
        assert_eq!(
            read(&mut Events::default(), &vec![b':'; MAX_EVENT_BYTES + 1]),
            Err(TooLong)
        );
        let mut events = Events::default();
        assert_eq!(read(&mut events, &b":\n".repeat(1 << 20)), Ok(vec![]));
        assert!(events.line.capacity() < 100);
    }

    #[test]
    fn identifier_that_no_header_can_hold_is_dropped() {
        for (id, is_kept) in [
            ("x".repeat(MAX_EVENT_ID), true),
            ("x".repeat(MAX_EVENT_ID + 1), false),
            ("a\u{0}b".into(), false),
            ("é".into(), false),
        ] {
            let mut events = Events::default();
            read(&mut events, format!("id: {id}\n").as_bytes()).unwrap();
            assert_eq!(events.last_id.is_some(), is_kept);
        }
    }
}
