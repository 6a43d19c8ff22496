//! The keyboard during a turn and during a question.
//!
//! During a turn, keys are not echoed, so that they do not stand in the middle of its output; the terminal keeps them for
//! the next prompt. During a question, they also arrive one by one. The line editor of a chat sets the terminal itself.
//!
//! The terminal is restored as soon as the turn or the question ends: by itself, by a panic, by the end of the process, by
//! a signal that ends it, and while it is stopped (Ctrl-Z). This is impossible for SIGKILL and for crashes of the process
//! itself (SIGSEGV and others); `stty sane` restores it then.

mod signals;

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{getpgrp, tcgetpgrp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use crate::ui::terminal::typed::KeySource;

/// Sequences that enable and disable bracketed paste.
const PASTES_MARKED: &[u8] = b"\x1b[?2004h";
const PASTES_UNMARKED: &[u8] = b"\x1b[?2004l";

/// State of the terminal before and during turns and questions.
struct Taken {
    /// Previous settings.
    before: Termios,
    /// Number of running turns.
    turns: u32,
    /// The open question.
    question: Option<OpenQuestion>,
    /// True if the settings are those of a turn or a question.
    is_applied: bool,
}

/// The terminal during a question.
#[derive(Clone, Copy)]
struct OpenQuestion {
    /// True if bracketed paste was enabled.
    marks_pastes: bool,
}

static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// Settings of the terminal before the line editor changed them, while it runs.
static BEFORE_EDITING: Mutex<Option<Termios>> = Mutex::new(None);

/// Number of times the process was stopped and continued during a turn or a question.
static RESUMPTIONS: AtomicU64 = AtomicU64::new(0);

/// Standard input as a source of keys. Ctrl-C still sends a signal. Dropping it restores the terminal.
pub(crate) struct Keyboard {
    opened: Instant,
}

/// While held, keys are not echoed. Dropping it restores the terminal.
pub(crate) struct Silence(());

/// While held, a line editor has the terminal, and a signal that ends the process restores it. The editor itself restores it
/// when it returns.
pub(crate) struct LineEditing(());

fn before_editing() -> MutexGuard<'static, Option<Termios>> {
    BEFORE_EDITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LineEditing {
    /// Remembers the settings of standard input, unless it is no terminal.
    pub(crate) fn begin() -> Option<Self> {
        signals::listen();
        *before_editing() = Some(tcgetattr(io::stdin()).ok()?);
        Some(Self(()))
    }
}

impl Drop for LineEditing {
    fn drop(&mut self) {
        *before_editing() = None;
    }
}

fn taken() -> MutexGuard<'static, Option<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Taken {
    fn new() -> io::Result<Self> {
        Ok(Self {
            before: tcgetattr(io::stdin())?,
            turns: 0,
            question: None,
            is_applied: false,
        })
    }

    /// Disables echo, and for a question line mode. Pending input is kept.
    fn apply(&mut self) -> io::Result<()> {
        // The system stops a background process that changes the settings. A question has to wait for the foreground, a
        // turn does not.
        if self.question.is_none() && is_in_background() {
            return Ok(());
        }
        let mut modes = self.before.clone();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ECHONL;
        if self.question.is_some() {
            modes.local_modes -= LocalModes::ICANON;
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        }
        self.is_applied = true;
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        self.mark_pastes(true);
        Ok(())
    }

    fn give_back(&mut self) {
        self.mark_pastes(false);
        // In the background the settings are those of another job.
        if std::mem::take(&mut self.is_applied) && !is_in_background() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        }
    }

    /// Enables or disables bracketed paste, which distinguishes pastes from typed input.
    fn mark_pastes(&self, on: bool) {
        if self.question.is_some_and(|question| question.marks_pastes) {
            write_to_terminal(if on { PASTES_MARKED } else { PASTES_UNMARKED });
        }
    }
}

fn write_to_terminal(sequence: &[u8]) {
    let mut out = io::stderr();
    let _ = out.write_all(sequence).and_then(|()| out.flush());
}

/// True if another job has the terminal. A terminal that does not control this process has no jobs.
fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp())
}

/// Restores the terminal if the process ends during a turn, a question or the editing of a line.
pub(crate) fn restore() {
    if let Some(before) = before_editing().take() {
        write_to_terminal(PASTES_UNMARKED);
        if !is_in_background() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
        }
    }
    if let Some(mut taken) = taken().take() {
        taken.give_back();
    }
}

/// Restores the terminal while the process is stopped. Returns true if it was taken over.
pub(super) fn suspend() -> bool {
    let mut taken = taken();
    if let Some(taken) = &mut *taken {
        taken.give_back();
    }
    taken.is_some()
}

/// Takes over the terminal again after the process was continued, if a turn or a question goes on.
pub(super) fn resume() {
    if let Some(taken) = &mut *taken() {
        match tcgetattr(io::stdin()) {
            // Other programs may have changed the settings in the meantime. After SIGSTOP they may still be those of a turn.
            Ok(now) if !taken.is_applied && now.local_modes.contains(LocalModes::ICANON) => {
                taken.before = now;
            }
            _ => {}
        }
        let _ = taken.apply();
        RESUMPTIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the number of times the process was stopped and continued during a turn or a question.
pub(crate) fn resumptions() -> u64 {
    RESUMPTIONS.load(Ordering::Relaxed)
}

impl Silence {
    /// Disables echo on standard input, unless it is no terminal.
    pub(crate) fn begin() -> Option<Self> {
        signals::listen();
        let mut place = taken();
        let mut state = place.take().or_else(|| Taken::new().ok())?;
        state.turns += 1;
        let _ = state.apply();
        *place = Some(state);
        Some(Self(()))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let mut place = taken();
        let Some(state) = &mut *place else { return };
        state.turns = state.turns.saturating_sub(1);
        if state.turns == 0 && state.question.is_none() {
            state.give_back();
            *place = None;
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let mut place = taken();
        let Some(state) = &mut *place else { return };
        if state.turns == 0 {
            state.give_back();
            *place = None;
        } else {
            state.mark_pastes(false);
            state.question = None;
            let _ = state.apply();
        }
    }
}

impl Keyboard {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// Returns an error if standard input is not a terminal.
    pub(crate) fn open(marks_pastes: bool) -> io::Result<Self> {
        signals::listen();
        let mut place = taken();
        let mut state = match place.take() {
            Some(state) => state,
            None => Taken::new()?,
        };
        state.question = Some(OpenQuestion { marks_pastes });
        let applied = state.apply();
        *place = Some(state);
        // Dropped with an error, it restores the terminal; not while the lock is held.
        drop(place);
        let keyboard = Self {
            opened: Instant::now(),
        };
        applied.map(|()| keyboard)
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
