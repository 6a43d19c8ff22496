//! Agent of one command: provider, tools, hooks and subagents, and how a turn is run.

pub(crate) mod call_limit;
pub(crate) mod model;
pub(crate) mod prices;
pub(crate) mod project_instructions;
pub(crate) mod setup;
pub(crate) mod subagents;
pub(crate) mod system_prompt;
