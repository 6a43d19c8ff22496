//! Lines of an input, each with one message, up to a maximum length.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use toolcell_core::json::MAX_ARGUMENT_BYTES;

/// Maximum size of a message, in bytes without its line end: the largest arguments of a call, and 64 KiB for the rest. A
/// longer one is skipped and answered with an error.
pub const MAX_MESSAGE_BYTES: usize = MAX_ARGUMENT_BYTES + (64 << 10);

/// Reader of lines. It holds at most one line of the maximum size, which is [`MAX_MESSAGE_BYTES`] for messages of clients.
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// Maximum size of a line, in bytes.
    limit: usize,
}

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A complete line, without its end.
    Whole(&'a [u8]),
    /// A line of more bytes than the limit, which was skipped.
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self::up_to(input, MAX_MESSAGE_BYTES)
    }

    /// A reader of lines of at most `limit` bytes.
    pub(crate) fn up_to(input: R, limit: usize) -> Self {
        Self {
            input: BufReader::with_capacity(64 << 10, input),
            line: Vec::new(),
            limit,
        }
    }

    /// Returns the next line, or `None` at the end of the input. The last line needs no end.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line<'_>>> {
        self.line.clear();
        let mut is_too_long = false;
        loop {
            let read = self.input.fill_buf().await?;
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            is_too_long |= self.line.len() + part.len() > self.limit;
            if !is_too_long {
                self.line.extend_from_slice(part);
            }
            let is_last = read.is_empty();
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_none() && !is_last {
                continue;
            }
            return Ok(match (is_too_long, is_last && self.line.is_empty()) {
                (true, _) => Some(Line::TooLong),
                (false, true) => None,
                (false, false) => Some(Line::Whole(&self.line)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> Vec<Option<usize>> {
        let mut lines = Lines::new(input);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(match line {
                Line::Whole(line) => Some(line.len()),
                Line::TooLong => None,
            });
        }
        all
    }

    #[tokio::test]
    async fn line_is_read_up_to_its_limit_and_a_longer_one_skipped() {
        let mut input = vec![b'x'; MAX_MESSAGE_BYTES];
        input.push(b'\n');
        input.extend(vec![b'y'; MAX_MESSAGE_BYTES + 1]);
        input.extend(b"\nshort\n\nlast");
        let expected = [Some(MAX_MESSAGE_BYTES), None, Some(5), Some(0), Some(4)];
        assert_eq!(lines(&input).await, expected);
    }

    #[tokio::test]
    async fn long_line_without_end_is_reported_once() {
        assert_eq!(lines(&vec![b'x'; MAX_MESSAGE_BYTES + 1]).await, [None]);
        assert_eq!(lines(b"").await, []);
    }
}
