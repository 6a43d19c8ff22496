//! How much of a stream may come without the answer getting on.
//!
//! Bytes that keep coming are no sign of life: comments, empty lines and empty deltas cost a server nothing. So what counts
//! is *progress*: text, reasoning, a call or its arguments, what the provider wants back, the end of the answer.

use std::time::Duration;

use tokio::time::Instant;

/// Bytes of a whole stream. The longest answers of models have some 130,000 tokens, of which each comes in an event of some
/// 300 bytes.
pub(super) const MAX_STREAM_BYTES: u64 = 256 << 20;

/// Bytes without progress: the longest event twice, since some providers repeat all of an answer at its end.
pub(super) const MAX_STALLED_BYTES: u64 = 32 << 20;

/// Lines without progress. Servers send a sign of life every few seconds, for some minutes at most.
pub(super) const MAX_STALLED_LINES: u64 = 100_000;

/// What came of one stream.
#[derive(Debug)]
pub(super) struct StreamLimits {
    /// Longest time without progress.
    time: Duration,
    bytes: u64,
    stalled_bytes: u64,
    stalled_lines: u64,
    last_progress: Instant,
}

/// Which limit a stream is beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamLimit {
    #[error("the stream is longer than {MAX_STREAM_BYTES} bytes")]
    Bytes,
    #[error("{MAX_STALLED_BYTES} bytes came without any of the answer in them")]
    StalledBytes,
    #[error("{MAX_STALLED_LINES} lines came without any of the answer in them")]
    StalledLines,
}

impl StreamLimits {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            bytes: 0,
            stalled_bytes: 0,
            stalled_lines: 0,
            last_progress: Instant::now(),
        }
    }

    /// More bytes came.
    pub(super) fn bytes(&mut self, count: usize) -> Result<(), StreamLimit> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(count);
        self.stalled_bytes = self.stalled_bytes.saturating_add(count);
        match () {
            () if self.bytes > MAX_STREAM_BYTES => Err(StreamLimit::Bytes),
            () if self.stalled_bytes > MAX_STALLED_BYTES => Err(StreamLimit::StalledBytes),
            () => Ok(()),
        }
    }

    /// More lines were read, none of which ended an event with progress.
    pub(super) fn lines(&mut self, count: u64) -> Result<(), StreamLimit> {
        self.stalled_lines = self.stalled_lines.saturating_add(count);
        match self.stalled_lines > MAX_STALLED_LINES {
            true => Err(StreamLimit::StalledLines),
            false => Ok(()),
        }
    }

    /// The answer got on.
    pub(super) fn progress(&mut self) {
        self.stalled_bytes = 0;
        self.stalled_lines = 0;
        self.last_progress = Instant::now();
    }

    /// When the stream ends if there is no progress before.
    pub(super) fn until(&self) -> Instant {
        self.last_progress + self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> StreamLimits {
        StreamLimits::new(Duration::from_secs(1))
    }

    #[test]
    fn bytes_are_accepted_up_to_each_limit_and_refused_beyond() {
        let piece = 1 << 20;
        let mut limits = limits();
        for _ in 0..MAX_STALLED_BYTES >> 20 {
            assert_eq!(limits.bytes(piece), Ok(()));
        }
        assert_eq!(limits.bytes(1), Err(StreamLimit::StalledBytes));
        let mut limits = self::limits();
        for _ in 0..MAX_STREAM_BYTES >> 20 {
            assert_eq!(limits.bytes(piece), Ok(()));
            limits.progress();
        }
        assert_eq!(limits.bytes(1), Err(StreamLimit::Bytes));
    }

    #[test]
    fn lines_are_accepted_up_to_the_limit_and_refused_beyond() {
        let mut limits = limits();
        assert_eq!(limits.lines(MAX_STALLED_LINES), Ok(()));
        assert_eq!(limits.lines(1), Err(StreamLimit::StalledLines));
        limits.progress();
        assert_eq!(limits.lines(MAX_STALLED_LINES), Ok(()));
        assert_eq!(limits.lines(1), Err(StreamLimit::StalledLines));
    }
}
