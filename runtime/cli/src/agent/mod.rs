//! The agent of one command: provider, tools, hooks and sub-agents put together, and its turns.

pub(crate) mod model;
pub(crate) mod prices;
pub(crate) mod setup;
pub(crate) mod subagents;
