//! Splits bytes into lines. A line ends with LF, CR LF or a single CR, as in the event stream of the HTML standard.

use super::FramingError;

/// Splitter of bytes into lines of at most `max` bytes.
pub(super) struct Lines {
    max: usize,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were returned.
    taken: usize,
    /// Bytes of `buffer` known to contain no line end.
    searched: usize,
    /// True if the last line ended with CR; a LF that follows belongs to it.
    after_cr: bool,
    first: bool,
    ended: bool,
}

impl Lines {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            buffer: Vec::new(),
            taken: 0,
            searched: 0,
            after_cr: false,
            first: true,
            ended: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the next complete line without its line end.
    pub(super) fn next(&mut self) -> Result<Option<String>, FramingError> {
        if self.after_cr && self.taken < self.buffer.len() {
            if self.buffer[self.taken] == b'\n' {
                self.taken += 1;
                self.searched = self.searched.max(self.taken);
            }
            self.after_cr = false;
        }
        let found = self.buffer[self.searched..]
            .iter()
            .position(|&b| b == b'\n' || b == b'\r')
            .map(|at| self.searched + at);
        let end = match found {
            Some(end) => end,
            None if self.ended && self.taken < self.buffer.len() => self.buffer.len(),
            None => {
                self.searched = self.buffer.len();
                return if self.searched - self.taken > self.max {
                    Err(FramingError::LongLine)
                } else {
                    Ok(None)
                };
            }
        };
        if end - self.taken > self.max {
            return Err(FramingError::LongLine);
        }
        let mut line = &self.buffer[self.taken..end];
        if std::mem::take(&mut self.first) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        let line = std::str::from_utf8(line)
            .map_err(|_| FramingError::NotUtf8)?
            .to_owned();
        self.after_cr = self.buffer.get(end) == Some(&b'\r');
        self.taken = (end + 1).min(self.buffer.len());
        self.searched = self.taken;
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_beyond_the_limit_is_refused() {
        for ended in [false, true] {
            let read = |text: &str| {
                let mut lines = Lines::new(4);
                lines.push(text.as_bytes());
                if ended {
                    lines.end();
                }
                lines.next()
            };
            assert_eq!(read("abcd\n"), Ok(Some("abcd".into())));
            assert_eq!(read("abcde\n"), Err(FramingError::LongLine));
            assert_eq!(read("abcde"), Err(FramingError::LongLine));
        }
    }

    #[test]
    fn returned_bytes_are_released() {
        let mut lines = Lines::new(1 << 20);
        for _ in 0..100 {
            lines.push(&[b'x'; 1 << 10]);
            lines.push(b"\n");
            assert!(lines.next().unwrap().is_some());
            assert!(lines.buffer.len() <= (1 << 10) + 2, "{}", lines.buffer.len());
        }
    }
}
