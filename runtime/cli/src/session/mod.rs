//! Sessions as commands run them: turns and input history.

pub(crate) mod history;
pub(crate) mod prompt;
pub(crate) mod store;
pub(crate) mod turn_runner;
