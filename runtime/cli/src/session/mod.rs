//! Sessions as commands run them: their choice, turns, prompts and input history.

pub(crate) mod follow;
pub(crate) mod history;
pub(crate) mod in_use;
pub(crate) mod prompt;
pub(crate) mod resources;
pub(crate) mod resume;
pub(crate) mod saved_files;
pub(crate) mod select;
mod standard_input;
pub(crate) mod store;
pub(crate) mod turn_runner;
