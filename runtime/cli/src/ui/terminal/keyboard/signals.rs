//! Signals that end or stop the process during a turn or a question.
//!
//! SIGINT and SIGTERM cancel the current operation ([`interrupt`](crate::ui::interrupt)). The handlers of the other
//! signals remain after the first turn or question, and repeat the default action of the system.

use std::io::Write as _;
use std::sync::Once;

use nix::unistd::{getpgrp, getsid};
use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::{restore, resume, suspend};

/// Catchable signals that end a process by default. Signals of a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE) are handled by
/// the engine; SIGXFSZ is a failed write ([`files_too_large`](crate::ui::interrupt::files_too_large)).
const ENDING: [Signal; 11] = [
    Signal::HUP,
    Signal::QUIT,
    Signal::TRAP,
    Signal::ABORT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::SYS,
];

/// Offset of the signal number in the exit code of a process ended by a signal, as in shells.
const ENDED_BY: i32 = 128;

static INSTALLED: Once = Once::new();

/// Installs the handlers.
pub(super) fn listen() {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    INSTALLED.call_once(|| {
        let handle = |number: i32, act: fn(i32)| {
            // On systems without this signal, it never arrives.
            if let Ok(mut stream) = signal(SignalKind::from_raw(number)) {
                runtime.spawn(async move {
                    while stream.recv().await.is_some() {
                        act(number);
                    }
                });
            }
        };
        for number in ENDING {
            handle(number.as_raw(), end);
        }
        handle(Signal::TSTP.as_raw(), stop);
        handle(Signal::CONT.as_raw(), |_| resume());
    });
}

fn end(number: i32) {
    restore();
    std::process::exit(ENDED_BY + number);
}

fn stop(_: i32) {
    // The process could not be continued: the system does not stop the process group of a session leader either.
    // The session is 0 if its leader is outside the PID namespace, as in some containers (`rustix` panics there).
    if getsid(None).is_ok_and(|session| session.as_raw() != 0 && session == getpgrp()) {
        return;
    }
    if suspend() {
        // The shell's prompt starts on a new line.
        let _ = std::io::stderr().write_all(b"\n");
    }
    let _ = kill_process(getpid(), Signal::STOP);
}
