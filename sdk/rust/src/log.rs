//! Messages for the person who runs the tool. The model never reads them.
//!
//! ```
//! use toolcell_sdk::log;
//!
//! log::info(format_args!("read {} lines", 12));
//! ```
//!
//! The host cuts long messages and drops messages beyond a limit for each call. On the host, where tests run, the
//! messages are kept for [`testing::logs`](crate::testing::logs).

use std::fmt::Display;

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The flow of control and the values of variables.
    Trace,
    /// For somebody who looks for an error in the tool.
    Debug,
    /// For somebody who watches the tool work.
    Info,
    /// Something is wrong and the tool goes on.
    Warn,
    /// Something is wrong and the call will fail.
    Error,
}

/// Writes the flow of control and the values of variables.
pub fn trace(message: impl Display) {
    write(Level::Trace, message);
}

/// Writes for somebody who looks for an error in the tool.
pub fn debug(message: impl Display) {
    write(Level::Debug, message);
}

/// Writes for somebody who watches the tool work.
pub fn info(message: impl Display) {
    write(Level::Info, message);
}

/// Writes that something is wrong and the tool goes on.
pub fn warn(message: impl Display) {
    write(Level::Warn, message);
}

/// Writes that something is wrong and the call will fail.
pub fn error(message: impl Display) {
    write(Level::Error, message);
}

/// Writes one message.
pub fn write(level: Level, message: impl Display) {
    sink(level, message.to_string());
}

#[cfg(target_family = "wasm")]
fn sink(level: Level, message: String) {
    use crate::bindings::toolcell::tool::log;
    let level = match level {
        Level::Trace => log::Level::Trace,
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, &message);
}

#[cfg(not(target_family = "wasm"))]
fn sink(level: Level, message: String) {
    crate::testing::keep_log(level, message);
}
