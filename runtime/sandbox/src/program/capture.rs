//! Standard output and standard error of a program, kept for its result up to a limit. What exceeds it is counted and
//! dropped, and the program continues.

use toolcell_core::tool::LogSource;

use crate::cell::last_message::LastMessage;
use crate::cell::memory::Reservation;

/// Bytes at the end of standard error in which the message of a crash is searched.
const SEARCHED: usize = 64 << 10;

/// Both streams of one call, without secrets.
#[derive(Debug)]
pub(crate) struct Capture {
    stdout: Captured,
    stderr: Captured,
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
    /// The beginning of the stream; bytes that are no UTF-8 are replaced.
    pub(crate) text: String,
    /// Number of bytes that are missing at its end.
    pub(crate) missing: u64,
}

impl Capture {
    /// Creates a capture of up to `limit` bytes of both streams together, within the memory of the call.
    pub(crate) fn new(limit: u64, memory: Reservation) -> Self {
        Self {
            stdout: Captured::default(),
            stderr: Captured::default(),
            left: limit,
            memory,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.left == 0
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
        stream.kept.extend_from_slice(&bytes[..room]);
        stream.missing += (bytes.len() - room) as u64;
        self.left = self.left.saturating_sub(room as u64);
    }

    /// Counts bytes that were dropped.
    pub(crate) fn drop_bytes(&mut self, source: LogSource, count: usize) {
        match source {
            LogSource::Stderr => self.stderr.missing += count as u64,
            _ => self.stdout.missing += count as u64,
        }
    }

    /// Returns standard output and standard error, together at most `limit` bytes of text.
    pub(crate) fn finish(self, limit: u64) -> (StreamText, StreamText) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let stderr = self.stderr.text(limit);
        let stdout = self.stdout.text(limit - stderr.text.len());
        (stdout, stderr)
    }

    /// Returns the last message on standard error.
    pub(crate) fn last_message(&self) -> Option<String> {
        let kept = &self.stderr.kept;
        let mut last = LastMessage::default();
        String::from_utf8_lossy(&kept[kept.len().saturating_sub(SEARCHED)..])
            .lines()
            .for_each(|line| last.note(line));
        last.text
    }
}

impl Captured {
    /// Returns at most `limit` bytes of text: a byte that is no UTF-8 becomes a character of three.
    fn text(self, limit: usize) -> StreamText {
        let mut missing = self.missing;
        let mut text = String::from_utf8(self.kept)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        if text.len() > limit {
            let end = text.floor_char_boundary(limit);
            missing += (text.len() - end) as u64;
            text.truncate(end);
        }
        StreamText { text, missing }
    }
}

impl StreamText {
    /// Returns the text, and how much is missing.
    pub(crate) fn marked(self) -> String {
        match self.missing {
            0 => self.text,
            missing => format!("{} [{missing} bytes cut]", self.text),
        }
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
        assert!(full.is_full());
        full.drop_bytes(LogSource::Stdout, 5);
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
    fn kept_bytes_are_memory_of_the_call() {
        for (memory, kept) in [(4, "abcd"), (3, "")] {
            let account = MemoryAccount::new(memory, MemoryPool::new(u64::MAX));
            let mut capture = Capture::new(100, account.empty());
            capture.keep(LogSource::Stdout, b"abcd");
            assert_eq!(capture.is_full(), kept.is_empty());
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
