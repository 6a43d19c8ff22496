//! The clock of epochs: one thread that lets every running guest look up once in a while.

use std::time::Duration;

use wasmtime::EngineWeak;

/// How long a guest can hold a thread without yielding. Cancellation is never later than this.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Starts the thread. It holds the engine weakly and ends with it, at most one [`TICK`] later.
pub(crate) fn start(engine: EngineWeak) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("toolcell-ticker".into())
        .spawn(move || {
            loop {
                std::thread::sleep(TICK);
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        })
        .map(drop)
}
