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

#[cfg(test)]
mod tests {
    use wasmtime::{Config, Engine, Instance, Module, Store, Trap};

    use super::*;

    #[test]
    fn loop_without_host_calls_is_interrupted() {
        let mut config = Config::new();
        config.epoch_interruption(true).consume_fuel(true);
        let engine = Engine::new(&config).unwrap();
        start(engine.weak()).unwrap();
        let forever = wat::parse_str("(module (start $loop) (func $loop (loop (br 0))))").unwrap();
        let module = Module::new(&engine, forever).unwrap();
        let mut store = Store::new(&engine, ());
        // For minutes, in which the first epoch comes long before.
        store.set_fuel(1 << 37).unwrap();
        store.set_epoch_deadline(1);
        let error = Instance::new(&mut store, &module, &[]).unwrap_err();
        assert_eq!(error.downcast_ref::<Trap>(), Some(&Trap::Interrupt));
    }
}
