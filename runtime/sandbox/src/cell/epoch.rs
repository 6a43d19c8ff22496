//! The epoch thread, which makes every running guest yield periodically.

use std::time::Duration;

use wasmtime::EngineWeak;

/// Maximum time that a guest can occupy a thread without yielding; also the maximum delay of a cancellation.
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
