//! Ctrl-C handling: the first signal cancels, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::ui::render::Console;
use crate::ui::terminal::{Own, text};

/// Handler of SIGINT and SIGTERM for the lifetime of the process.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    cancellable: Arc<Mutex<Option<Cancellable>>>,
    /// True after SIGTERM.
    is_terminated: Arc<AtomicBool>,
}

/// Work that the first signal cancels.
struct Cancellable {
    token: CancellationToken,
    /// Its effect, for the user.
    effect: &'static str,
}

/// While held, the first signal cancels.
pub(crate) struct Guard(Interrupts);

impl Interrupts {
    /// Installs the handlers. A signal without a token, or after cancellation, ends the process.
    pub(crate) fn watch(console: Console) -> Self {
        let interrupts = Self::default();
        // Without a handler the default action applies: the first signal ends the process.
        if let Ok(mut signals) = Signals::new() {
            let handler = interrupts.clone();
            tokio::spawn(async move {
                loop {
                    let signal = signals.next().await;
                    if signal == Signal::Terminate {
                        handler.is_terminated.store(true, Ordering::Relaxed);
                    }
                    match handler.current().take() {
                        Some(Cancellable { token, effect }) => {
                            token.cancel();
                            console.note(text!("{}; {}", Own(effect), Own(signal.effect_of_second())));
                        }
                        None => {
                            toolcell_mcp::client::end_all_processes();
                            crate::ui::terminal::restore();
                            console.note("ended");
                            std::process::exit(Exit::Cancelled as i32);
                        }
                    }
                }
            });
        }
        interrupts
    }

    /// Makes the next signal cancel `token`, until the guard is dropped.
    pub(crate) fn cancel_next(&self, token: CancellationToken) -> Guard {
        self.guard(token, "cancelling")
    }

    /// Makes the next signal stop a server, until the guard is dropped.
    pub(crate) fn stop_next(&self, token: CancellationToken) -> Guard {
        self.guard(token, "stopping the server")
    }

    /// Makes the next signal end a command that runs until then, until the guard is dropped.
    pub(crate) fn end_next(&self, token: CancellationToken) -> Guard {
        self.guard(token, "ending")
    }

    /// True if the process was told to terminate: what runs is cancelled, and nothing begins after it.
    pub(crate) fn is_terminated(&self) -> bool {
        self.is_terminated.load(Ordering::Relaxed)
    }

    fn guard(&self, token: CancellationToken, effect: &'static str) -> Guard {
        *self.current() = Some(Cancellable { token, effect });
        Guard(self.clone())
    }

    fn current(&self) -> MutexGuard<'_, Option<Cancellable>> {
        self.cancellable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        *self.0.current() = None;
    }
}

/// Makes a write beyond the largest size of files (RLIMIT_FSIZE) an error (EFBIG): by default SIGXFSZ ends the process.
/// The handler remains, and programs that this one starts do not inherit it. Within a runtime.
pub(crate) fn files_too_large() {
    use tokio::signal::unix::{SignalKind, signal};
    // Without the handler, the default action applies.
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}

/// Signal that cancels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    fn effect_of_second(self) -> &'static str {
        match self {
            Self::Interrupt => "press Ctrl-C again to exit immediately",
            Self::Terminate => "a second signal ends the process immediately",
        }
    }
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}
