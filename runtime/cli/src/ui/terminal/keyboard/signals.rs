//! Signals that end or stop the process while a question stands on the terminal.
//!
//! SIGINT and SIGTERM cancel what runs ([`interrupt`](crate::ui::interrupt)). The handlers of these stay once a question was
//! asked, and do what the system would have done without them.

use std::io::Write as _;
use std::sync::Once;

use rustix::process::{Signal, getpgrp, getpid, getsid, kill_process};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::unix::{restore, resume, suspend};

/// Signals that end a process by default and that it can catch. Those of a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE) belong
/// to the engine.
const ENDING: [Signal; 12] = [
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
    Signal::XFSZ,
    Signal::SYS,
];

/// Added to the number of a signal that ended a process, in its exit code as shells have it.
const ENDED_BY: i32 = 128;

static LISTENS: Once = Once::new();

/// Hears these signals from now on.
pub(super) fn listen() {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    LISTENS.call_once(|| {
        let hear = |number: i32, act: fn(i32)| {
            // Where the system has no such signal, none comes.
            if let Ok(mut heard) = signal(SignalKind::from_raw(number)) {
                runtime.spawn(async move {
                    while heard.recv().await.is_some() {
                        act(number);
                    }
                });
            }
        };
        for number in ENDING {
            hear(number.as_raw(), end);
        }
        hear(Signal::TSTP.as_raw(), stop);
        hear(Signal::CONT.as_raw(), |_| resume());
    });
}

fn end(number: i32) {
    restore();
    std::process::exit(ENDED_BY + number);
}

fn stop(_: i32) {
    // Nobody could let it continue: the system does not stop the group of a session's leader either.
    if getsid(None).is_ok_and(|session| session == getpgrp()) {
        return;
    }
    if suspend() {
        // The shell's prompt starts on a line of its own.
        let _ = std::io::stderr().write_all(b"\n");
    }
    let _ = kill_process(getpid(), Signal::STOP);
}
