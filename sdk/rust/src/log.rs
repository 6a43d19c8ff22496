//! Log messages for the user. They are not shown to the model.
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

/// Severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Control flow and values of variables.
    Trace,
    /// Information for debugging the tool.
    Debug,
    /// Information about the tool's work.
    Info,
    /// A problem that does not prevent the result.
    Warn,
    /// A problem that fails the call.
    Error,
}

/// Logs at level [`Level::Trace`]: control flow and values of variables.
pub fn trace(message: impl Display) {
    write(Level::Trace, message);
}

/// Logs at level [`Level::Debug`]: information for debugging the tool.
pub fn debug(message: impl Display) {
    write(Level::Debug, message);
}

/// Logs at level [`Level::Info`]: information about the tool's work.
pub fn info(message: impl Display) {
    write(Level::Info, message);
}

/// Logs at level [`Level::Warn`]: a problem that does not prevent the result.
pub fn warn(message: impl Display) {
    write(Level::Warn, message);
}

/// Logs at level [`Level::Error`]: a problem that fails the call.
pub fn error(message: impl Display) {
    write(Level::Error, message);
}

/// Logs one message.
pub fn write(level: Level, message: impl Display) {
    sink(level, message.to_string());
}

#[cfg(target_family = "wasm")]
fn sink(level: Level, message: String) {
    use crate::generated::tool::toolcell::tool::log;
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
thread_local! {
    static KEPT: std::cell::RefCell<Vec<(Level, String)>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(not(target_family = "wasm"))]
fn sink(level: Level, message: String) {
    KEPT.with_borrow_mut(|kept| kept.push((level, message)));
}

/// Takes the messages that this thread has logged.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn take() -> Vec<(Level, String)> {
    KEPT.take()
}
