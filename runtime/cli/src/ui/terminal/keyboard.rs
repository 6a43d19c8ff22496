//! Standard input during a question: keys arrive one by one without echo.
//!
//! The terminal is restored as soon as the question ends: by an answer, by the end of the process, by a signal that
//! ends it, and while it is stopped (Ctrl-Z). This is impossible for SIGKILL and for crashes of the process itself
//! (SIGSEGV and others); `stty sane` restores it then.

mod signals;

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::ui::terminal::typed::KeySource;

/// State of the terminal before and during a question.
struct Taken {
    /// Previous settings.
    before: Termios,
    /// True if bracketed paste was enabled.
    marks_pastes: bool,
}

static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// Number of times the process was stopped during a question and continued.
static RESUMPTIONS: AtomicU64 = AtomicU64::new(0);

/// Standard input as a source of keys. Ctrl-C still sends a signal. Dropping it restores the terminal.
pub(crate) struct Keyboard {
    opened: Instant,
}

fn taken() -> MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Taken {
    /// Disables line mode and echo. Pending input is kept.
    fn apply(&self) -> io::Result<()> {
        let mut keys = self.before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL;
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        self.mark_pastes(true);
        Ok(())
    }

    fn give_back(&self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        self.mark_pastes(false);
    }

    /// Enables or disables bracketed paste, which distinguishes pastes from typed input.
    fn mark_pastes(&self, on: bool) {
        if self.marks_pastes {
            let mut out = io::stderr();
            let _ = out
                .write_all(if on { b"\x1b[?2004h" } else { b"\x1b[?2004l" })
                .and_then(|()| out.flush());
        }
    }
}

/// Restores the terminal if the process ends during a question.
pub(crate) fn restore() {
    if let Some(taken) = taken().take() {
        taken.give_back();
    }
}

/// Restores the terminal while the process is stopped. Returns true if a question is open.
pub(super) fn suspend() -> bool {
    let taken = taken();
    if let Some(taken) = &*taken {
        taken.give_back();
    }
    taken.is_some()
}

/// Takes over the terminal again after the process was continued, if a question is open.
pub(super) fn resume() {
    if let Some(taken) = &mut *taken() {
        match tcgetattr(io::stdin()) {
            // Other programs may have changed the settings in the meantime.
            Ok(now) if now.local_modes.contains(LocalModes::ICANON) => taken.before = now,
            _ => {}
        }
        let _ = taken.apply();
        RESUMPTIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the number of times the process was stopped during a question and continued.
pub(crate) fn resumptions() -> u64 {
    RESUMPTIONS.load(Ordering::Relaxed)
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        restore();
    }
}

impl Keyboard {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// Returns an error if standard input is not a terminal.
    pub(crate) fn open(marks_pastes: bool) -> io::Result<Self> {
        signals::listen();
        let before = tcgetattr(io::stdin())?;
        let taken = Taken { before, marks_pastes };
        let mut place = self::taken();
        taken.apply()?;
        *place = Some(taken);
        Ok(Self {
            opened: Instant::now(),
        })
    }
}

impl KeySource for Keyboard {
    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn read(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>> {
        let stdin = io::stdin();
        // Less than a second.
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        loop {
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&time)) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                // A signal does not shorten the wait.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut bytes = vec![0; 4096];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(Some(bytes))
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
