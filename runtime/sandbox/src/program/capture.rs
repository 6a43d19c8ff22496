//! Standard output and standard error of a program, kept for its result up to a limit. What exceeds it is counted and
//! dropped, and the program continues.

use std::collections::VecDeque;

use toolcell_core::tool::LogSource;

use crate::cell::last_message::LastMessage;
use crate::cell::memory::Reservation;
use crate::program::{MAX_IN_ERROR, streams};

/// Bytes at the end of standard error in which the message of a crash is searched.
const SEARCHED: usize = 64 << 10;

/// Both streams of one call, without secrets.
#[derive(Debug)]
pub(crate) struct Capture {
    stdout: Captured,
    stderr: Captured,
    /// The last bytes of standard error after [`Capture::left`] was used up: what the program says before it fails.
    tail: VecDeque<u8>,
    limit: u64,
    /// Number of bytes that are still kept.
    left: u64,
    memory: Reservation,
}

/// One stream.
#[derive(Debug, Default)]
struct Captured {
    kept: Vec<u8>,
    /// Number of bytes that were dropped.
    missing: u64,
}

/// Text of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StreamText {
    /// The beginning of the stream; bytes that are no UTF-8 are replaced. Empty if it is binary.
    pub(crate) text: String,
    /// The same as it was written, if it is not UTF-8.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Number of bytes that are missing after it.
    pub(crate) missing: u64,
    /// The end of the stream, if some are missing before it.
    pub(crate) tail: String,
}

impl Capture {
    /// Creates a capture of up to `limit` bytes of both streams together, within the memory of the call.
    pub(crate) fn new(limit: u64, memory: Reservation) -> Self {
        Self {
            stdout: Captured::default(),
            stderr: Captured::default(),
            tail: VecDeque::new(),
            limit,
            left: limit,
            memory,
        }
    }

    /// Returns `true` if nothing more of a stream is kept.
    pub(crate) fn is_full(&self, source: LogSource) -> bool {
        self.left == 0 && source != LogSource::Stderr
    }

    /// Keeps the bytes that fit.
    pub(crate) fn keep(&mut self, source: LogSource, bytes: &[u8]) {
        let stream = match source {
            LogSource::Stderr => &mut self.stderr,
            _ => &mut self.stdout,
        };
        let mut room = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let needed = stream.kept.len() + room;
        if needed > stream.kept.capacity() {
            let capacity = needed.max(2 * stream.kept.capacity());
            // Until it is copied, both exist.
            match self.memory.grow(capacity as u64) {
                Ok(()) => {
                    let before = stream.kept.capacity();
                    stream.kept.reserve_exact(capacity - stream.kept.len());
                    self.memory.shrink(before as u64);
                }
                Err(_) => {
                    room = 0;
                    self.left = 0;
                }
            }
        }
        let (kept, rest) = bytes.split_at(room);
        stream.kept.extend_from_slice(kept);
        stream.missing += rest.len() as u64;
        self.left = self.left.saturating_sub(room as u64);
        if source == LogSource::Stderr && !rest.is_empty() {
            self.keep_tail(rest);
        }
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        if self.tail.capacity() == 0 {
            // Without memory for it there is no tail.
            if self.memory.grow(MAX_IN_ERROR as u64).is_err() {
                return;
            }
            self.tail.reserve_exact(MAX_IN_ERROR);
        }
        let bytes = &bytes[bytes.len().saturating_sub(MAX_IN_ERROR)..];
        let excess = (self.tail.len() + bytes.len()).saturating_sub(MAX_IN_ERROR);
        self.tail.drain(..excess);
        self.tail.extend(bytes);
    }

    /// Counts bytes of standard output that were dropped.
    pub(crate) fn drop_bytes(&mut self, count: usize) {
        self.stdout.missing += count as u64;
    }

    /// Returns standard output and standard error, together at most `limit` bytes of text.
    pub(crate) fn finish(self, limit: u64) -> (StreamText, StreamText) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (tail, tail_bytes) = self.tail_text(limit);
        let room = limit - tail.len();
        // The tail takes the place of what is before it, as far as standard error has as much.
        let before = room.saturating_sub(self.stdout.kept.len());
        let mut stderr = self.stderr.text(before.max(room.min(MAX_IN_ERROR)));
        stderr.missing -= tail_bytes.min(stderr.missing);
        let stdout = self.stdout.text(room.saturating_sub(stderr.len()));
        stderr.tail = tail;
        (stdout, stderr)
    }

    /// Returns at most `limit` bytes of the text of the tail, from a whole character on, and the number of bytes of it.
    fn tail_text(&self, limit: usize) -> (String, u64) {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let is_inside = |byte: &&u8| (**byte & 0xc0) == 0x80;
        let skipped = bytes.iter().take(3).take_while(is_inside).count();
        let text = String::from_utf8_lossy(&bytes[skipped..]);
        let from = text.ceil_char_boundary(text.len().saturating_sub(limit));
        (
            text[from..].to_owned(),
            (bytes.len() - skipped - from.min(bytes.len() - skipped)) as u64,
        )
    }

    /// Returns the last message on standard error, followed by both streams, up to the limit, if there is more in them.
    pub(crate) fn into_last_words(self) -> Option<String> {
        let message = self.last_message();
        let limit = self.limit.min(2 * MAX_IN_ERROR as u64);
        let (stdout, stderr) = self.finish(limit);
        let (stdout, stderr) = (stdout.told(), stderr.told());
        let has_more = stderr.trim() != message.as_deref().unwrap_or_default();
        if stdout.is_empty() && !has_more {
            return message;
        }
        let streams = streams(&stdout, if has_more { &stderr } else { "" });
        Some(message.unwrap_or_else(|| "(none)".into()) + &streams)
    }

    /// Returns the last message on standard error.
    fn last_message(&self) -> Option<String> {
        let kept = &self.stderr.kept;
        let mut last = LastMessage::default();
        let mut search = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes)
                .lines()
                .for_each(|line| last.note(line));
        };
        search(&kept[kept.len().saturating_sub(SEARCHED)..]);
        search(&self.tail.iter().copied().collect::<Vec<u8>>());
        last.text
    }
}

impl Captured {
    /// Returns at most `limit` bytes of text: a byte that is no UTF-8 becomes a character of three.
    fn text(self, limit: usize) -> StreamText {
        let Self { kept, mut missing } = self;
        let mut bytes = None;
        let mut text = match String::from_utf8(kept) {
            Ok(text) => text,
            // A character of which the rest was dropped.
            Err(error) if missing > 0 && error.utf8_error().error_len().is_none() => {
                let end = error.utf8_error().valid_up_to();
                let mut kept = error.into_bytes();
                missing += (kept.len() - end) as u64;
                kept.truncate(end);
                String::from_utf8(kept).expect("it is valid up to there")
            }
            Err(error) => {
                let mut kept = error.into_bytes();
                let is_binary = is_binary(&kept);
                let text = match is_binary {
                    true => String::new(),
                    false => String::from_utf8_lossy(&kept).into_owned(),
                };
                let end = kept.len().min(limit);
                if is_binary {
                    missing += (kept.len() - end) as u64;
                }
                kept.truncate(end);
                bytes = Some(kept);
                text
            }
        };
        if text.len() > limit {
            let end = text.floor_char_boundary(limit);
            missing += (text.len() - end) as u64;
            text.truncate(end);
        }
        StreamText {
            text,
            bytes,
            missing,
            tail: String::new(),
        }
    }
}

/// Returns `true` if bytes that are not UTF-8 are no text in another encoding either.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0)
}

impl StreamText {
    /// Returns the text, and how much is missing.
    pub(crate) fn marked(self) -> String {
        match self.missing {
            0 => self.text + &self.tail,
            missing if self.tail.is_empty() => format!("{} [{missing} bytes cut]", self.text),
            missing => format!("{} [{missing} bytes cut] {}", self.text, self.tail),
        }
    }

    /// Returns the bytes of a stream that is no text.
    pub(crate) fn binary(&self) -> Option<&[u8]> {
        self.bytes.as_deref().filter(|bytes| is_binary(bytes))
    }

    /// Returns the text for a message, and how much is missing.
    pub(crate) fn told(self) -> String {
        let told = self
            .binary()
            .map(|bytes| format!("[{} bytes that are not text]", bytes.len()));
        told.unwrap_or_default() + &self.marked()
    }

    /// Returns the number of bytes of a stream.
    pub(crate) fn len(&self) -> usize {
        let bytes = self.bytes.as_ref().map_or(0, Vec::len);
        self.text.len().max(bytes) + self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::memory::{MemoryAccount, MemoryPool};

    fn capture(limit: u64) -> Capture {
        Capture::new(limit, MemoryAccount::unlimited().empty())
    }

    #[test]
    fn streams_are_kept_up_to_their_common_limit() {
        for (limit, stdout, missing) in [(7, "abcd", 0), (6, "abc", 1)] {
            let mut capture = capture(limit);
            capture.keep(LogSource::Stderr, b"xyz");
            capture.keep(LogSource::Stdout, b"ab");
            capture.keep(LogSource::Stdout, b"cd");
            let (out, err) = capture.finish(limit);
            assert_eq!((out.text.as_str(), out.missing), (stdout, missing));
            assert_eq!(err.marked(), "xyz");
        }
        let mut full = capture(0);
        assert!(full.is_full(LogSource::Stdout) && !full.is_full(LogSource::Stderr));
        full.drop_bytes(5);
        assert_eq!(full.finish(0).0.marked(), " [5 bytes cut]");
    }

    #[test]
    fn bytes_that_are_no_text_count_as_their_replacement() {
        let of = |limit| {
            let mut capture = capture(4);
            capture.keep(LogSource::Stdout, b"\xff\xfe");
            capture.finish(limit).0
        };
        assert_eq!(of(6).text, "\u{fffd}\u{fffd}");
        let cut = of(5);
        assert_eq!((cut.text.as_str(), cut.missing), ("\u{fffd}", 3));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_kept_as_they_are() {
        let of = |bytes: &[u8], kept: u64, limit: u64| {
            let mut capture = capture(kept);
            capture.keep(LogSource::Stdout, bytes);
            capture.finish(limit).0
        };
        let binary: &[u8] = b"\x89P\0\xff";
        let whole = of(binary, 4, 4);
        assert_eq!(
            (whole.binary(), whole.text.as_str(), whole.missing),
            (Some(binary), "", 0)
        );
        assert_eq!(whole.told(), "[4 bytes that are not text]");
        for cut in [of(binary, 3, 4), of(binary, 4, 3)] {
            assert_eq!((cut.len(), cut.missing), (3, 1));
            assert_eq!(cut.told(), "[3 bytes that are not text] [1 bytes cut]");
        }
        // Text in another encoding.
        let latin = of(b"caf\xe9", 4, 6);
        assert_eq!(latin.bytes.as_deref(), Some(&b"caf\xe9"[..]));
        assert_eq!((latin.binary(), latin.text.as_str()), (None, "caf\u{fffd}"));
        // A character that the limit divides, and one that the program does not end.
        let divided = of("abé".as_bytes(), 3, 3);
        assert_eq!(
            (divided.bytes, divided.text.as_str(), divided.missing),
            (None, "ab", 2)
        );
        assert!(of(b"ab\xc3", 3, 9).bytes.is_some());
        assert_eq!(of(b"a\0b", 3, 3).bytes, None);
    }

    #[test]
    fn kept_bytes_are_memory_of_the_call() {
        for (memory, kept) in [(4, "abcd"), (3, "")] {
            let account = MemoryAccount::new(memory, MemoryPool::new(u64::MAX));
            let mut capture = Capture::new(100, account.empty());
            capture.keep(LogSource::Stdout, b"abcd");
            assert_eq!(capture.is_full(LogSource::Stdout), kept.is_empty());
            assert_eq!(capture.finish(100).0.text, kept);
        }
        // A buffer is replaced by one of twice its size.
        let account = MemoryAccount::new(8, MemoryPool::new(u64::MAX));
        let mut capture = Capture::new(100, account.empty());
        capture.keep(LogSource::Stdout, b"ab");
        capture.keep(LogSource::Stdout, b"cd");
        assert_eq!((account.left(), account.peaks().0), (4, 6));
    }

    #[test]
    fn end_of_standard_error_is_kept_beyond_the_limit() {
        let of = |limit: u64, errors: &str| {
            let mut capture = capture(limit);
            capture.keep(LogSource::Stdout, b"out");
            capture.keep(LogSource::Stderr, errors.as_bytes());
            let message = capture.last_message();
            let (out, err) = capture.finish(limit);
            assert!(out.len() + err.len() <= usize::try_from(limit).unwrap());
            (out.marked(), err.marked(), message)
        };
        // All of standard error after a full standard output.
        let (_, err, message) = of(10, "xyz: disk full");
        assert_eq!(err, "xyz [4 bytes cut] sk full");
        assert_eq!(message.as_deref(), Some("sk full"));
        // A long one loses its middle.
        let limit = 20_000;
        let long = format!("begin {} end", "x".repeat(40_000));
        let (out, err, _) = of(limit, &long);
        assert_eq!(out, "out");
        assert!(err.starts_with("begin x") && err.ends_with("x end"), "{err}");
        assert!(err.contains(" bytes cut] x"), "{err}");
        let kept = err.len() - err.matches(" [").count();
        assert!(kept > 19_000, "{kept}");
    }

    #[test]
    fn message_of_a_crash_is_found_in_what_was_kept() {
        let mut capture = capture(1 << 20);
        capture.keep(LogSource::Stdout, b"not this\n");
        capture.keep(
            LogSource::Stderr,
            b"Traceback (most recent call last):\n  File\nValueError: boom\n",
        );
        assert_eq!(capture.last_message().as_deref(), Some("ValueError: boom"));
    }
}
