//! Ctrl-C: once cancels, twice ends the process at once.

use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::render::Console;

/// Cancels `token` at the first SIGINT or SIGTERM, and ends the process at the second.
pub(crate) fn watch(token: CancellationToken, console: Console) {
    tokio::spawn(async move {
        let Ok(mut signals) = Signals::new() else {
            // The default of the system holds: the first signal ends the process.
            return;
        };
        signals.next().await;
        token.cancel();
        console.note("cancelling; once more ends it at once");
        signals.next().await;
        console.note("ended");
        std::process::exit(Exit::Cancelled as i32);
    });
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
