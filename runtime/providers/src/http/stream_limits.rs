//! Limits of a stream that makes no progress.
//!
//! Received bytes alone are no progress: comments, empty lines and empty deltas cost a server nothing. Progress is
//! text, reasoning, a call or its arguments, opaque provider data, or the end of the answer.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum bytes of a whole stream. The longest answers of models have about 130,000 tokens, each in an event of about
/// 300 bytes.
pub(super) const MAX_STREAM_BYTES: u64 = 256 << 20;

/// Maximum bytes without progress: twice the largest event, because some providers repeat the whole answer at its end.
pub(super) const MAX_STALLED_BYTES: u64 = 32 << 20;

/// Maximum lines without progress. Servers send keep-alives every few seconds, for some minutes at most.
pub(super) const MAX_STALLED_LINES: u64 = 100_000;

/// Counters of one stream.
#[derive(Debug)]
pub(super) struct StreamLimits {
    /// Maximum time without progress.
    time: Duration,
    bytes: u64,
    stalled_bytes: u64,
    stalled_lines: u64,
    last_progress: Instant,
}

/// Limit that a stream exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamLimit {
    #[error("the stream exceeds {MAX_STREAM_BYTES} bytes")]
    Bytes,
    #[error("received {MAX_STALLED_BYTES} bytes without a part of the answer")]
    StalledBytes,
    #[error("received {MAX_STALLED_LINES} lines without a part of the answer")]
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

    /// Counts received bytes.
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

    /// Counts received lines, none of which ended an event with progress.
    pub(super) fn lines(&mut self, count: u64) -> Result<(), StreamLimit> {
        self.stalled_lines = self.stalled_lines.saturating_add(count);
        match self.stalled_lines > MAX_STALLED_LINES {
            true => Err(StreamLimit::StalledLines),
            false => Ok(()),
        }
    }

    /// Resets the counters after progress.
    pub(super) fn progress(&mut self) {
        self.stalled_bytes = 0;
        self.stalled_lines = 0;
        self.last_progress = Instant::now();
    }

    /// Time at which the stream ends without progress.
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
    fn bytes_beyond_a_limit_are_refused() {
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
    fn lines_beyond_the_limit_are_refused() {
        let mut limits = limits();
        assert_eq!(limits.lines(MAX_STALLED_LINES), Ok(()));
        assert_eq!(limits.lines(1), Err(StreamLimit::StalledLines));
        limits.progress();
        assert_eq!(limits.lines(MAX_STALLED_LINES), Ok(()));
        assert_eq!(limits.lines(1), Err(StreamLimit::StalledLines));
    }
}
