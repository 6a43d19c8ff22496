//! Holds output to the terminal while a question is open, so that nothing scrolls it away. Output to a file or a pipe is
//! not held.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum amount of held output, in bytes; the rest is dropped and counted.
const MAX_HELD: usize = 1 << 20;

/// Held output of both streams, in order.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Number of open questions.
    holds: u32,
    written: Vec<(Stream, Vec<u8>)>,
    length: usize,
    dropped: usize,
}

/// An output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Writer of an output stream that respects [`Held`].
pub(crate) struct Holding {
    stream: Stream,
    /// `None` if the stream is not a terminal.
    held: Option<Held>,
}

impl Held {
    /// Returns a writer for `stream`.
    pub(crate) fn stream(&self, stream: Stream, is_terminal: bool) -> Holding {
        Holding {
            stream,
            held: is_terminal.then(|| self.clone()),
        }
    }

    /// Starts to hold all output.
    pub(crate) fn hold(&self) {
        self.lock().holds += 1;
    }

    /// Writes the held output unless another question is open, and returns the number of dropped bytes.
    pub(crate) fn release(&self) -> io::Result<usize> {
        let mut state = self.lock();
        state.holds = state.holds.saturating_sub(1);
        if state.holds > 0 {
            return Ok(0);
        }
        state.length = 0;
        let dropped = std::mem::take(&mut state.dropped);
        for (stream, bytes) in std::mem::take(&mut state.written) {
            stream.write(&bytes)?;
        }
        Ok(dropped)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Output => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Self::Error => io::stderr().write_all(bytes),
        }
    }
}

impl Write for Holding {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.held.as_ref().map(Held::lock);
        let Some(state) = state.as_mut().filter(|state| state.holds > 0) else {
            return match self.stream {
                Stream::Output => io::stdout().write(bytes),
                Stream::Error => io::stderr().write(bytes),
            };
        };
        if state.length + bytes.len() > MAX_HELD {
            state.dropped += bytes.len();
        } else {
            state.length += bytes.len();
            state.written.push((self.stream, bytes.to_vec()));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.as_ref().is_some_and(|held| held.lock().holds > 0) {
            return Ok(());
        }
        match self.stream {
            Stream::Output => io::stdout().flush(),
            Stream::Error => io::stderr().flush(),
        }
    }
}
