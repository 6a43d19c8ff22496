//! Configuration layers, in order: built-in defaults, the user's file, the project's file, the environment, the flags.
//! Later layers win; a project's file is untrusted and can only narrow.
//!
//! | concept | module |
//! |---|---|
//! | format of a file, its JSON Schema, parsing | [`mod@file`] |
//! | merging the layers: hooks, subagents, tools, and what a project's file may narrow | [`mod@layers`] |
//! | the model provider | [`provider`] |
//! | the loop of a turn and the context sent to the model | [`turn`] |
//! | declaration of the settings of a table | [`mod@setting`] |
//! | limits of a call and budgets of a session by name | [`limits`], [`mod@budget`] |
//! | sizes, durations, counts and money | [`units`] |
//! | origins of values, and locations in files | [`source`] |
//! | the result: settings, resolved grants, paths denied to every tool, policies | [`settings`], [`grants`], [`own_directories`], [`mod@policy`] |
//! | MCP servers | [`mod@mcp`] |
//! | reserved names | [`names`] |
//! | the user's files | [`user_files`] |

pub(crate) mod budget;
pub(crate) mod file;
pub(crate) mod grants;
pub(crate) mod layers;
pub(crate) mod limits;
pub(crate) mod mcp;
pub(crate) mod names;
pub(crate) mod own_directories;
mod policy;
pub(crate) mod provider;
mod setting;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod turn;
pub(crate) mod units;
pub(crate) mod user_files;

pub(crate) use layers::load;
pub(crate) use mcp::McpSettings;
pub(crate) use provider::ProviderSettings;
pub(crate) use settings::{AgentSettings, ComponentSource, HookSettings, Overrides, Settings, ToolSettings};
pub(crate) use source::{Origin, Row, Sourced};
