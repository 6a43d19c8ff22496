//! Sessions as commands run them: turns, and what the user typed before.

pub(crate) mod history;
pub(crate) mod store;
pub(crate) mod turn_runner;
