//! What is written while a question stands on the terminal waits until it is answered, so that nothing scrolls it away.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most that waits, in bytes; what comes beyond is counted and dropped.
const MAX_HELD: usize = 1 << 20;

/// What waits, in the order in which it was written to both streams.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// How many questions stand there.
    holds: u32,
    written: Vec<(Stream, Vec<u8>)>,
    length: usize,
    dropped: usize,
}

/// One of the output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// One of the output streams, through which nothing goes while a question stands on the terminal.
pub(crate) struct Holding {
    stream: Stream,
    held: Held,
}

impl Held {
    /// The stream, as far as nothing holds it.
    pub(crate) fn stream(&self, stream: Stream) -> Holding {
        Holding {
            stream,
            held: self.clone(),
        }
    }

    /// Holds everything that is written from now on.
    pub(crate) fn hold(&self) {
        self.lock().holds += 1;
    }

    /// Writes what was held, if nothing else holds it, and says how many bytes were too many.
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
        let mut state = self.held.lock();
        if state.holds == 0 {
            return match self.stream {
                Stream::Output => io::stdout().write(bytes),
                Stream::Error => io::stderr().write(bytes),
            };
        }
        if state.length + bytes.len() > MAX_HELD {
            state.dropped += bytes.len();
        } else {
            state.length += bytes.len();
            state.written.push((self.stream, bytes.to_vec()));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.lock().holds > 0 {
            return Ok(());
        }
        match self.stream {
            Stream::Output => io::stdout().flush(),
            Stream::Error => io::stderr().flush(),
        }
    }
}
