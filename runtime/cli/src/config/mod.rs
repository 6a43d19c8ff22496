//! Configuration layers, in order: built-in defaults, the user's file, the project's file, the environment, the flags.
//! Later layers win; a project's file is untrusted and can only narrow.
//!
//! | concept | module |
//! |---|---|
//! | the file format and its JSON Schema | [`mod@file`], [`schema`] |
//! | sizes, durations, counts and money | [`units`], [`money`], [`quantity`] |
//! | the model provider, and subagents | [`provider`], [`agents`] |
//! | limits of a call and budgets of a session by name | [`limits`], [`mod@budget`] |
//! | parsing one file, and locations in it | [`parse`], [`source`] |
//! | reserved names | [`names`] |
//! | locating the files and merging the layers | [`layers`], [`tool_table`], [`settings`] |
//! | hooks | [`hooks`] |
//! | keys a project's file may narrow, and keys it must not contain | [`project`], [`forbid`] |

pub(crate) mod agents;
pub(crate) mod budget;
pub(crate) mod file;
pub(crate) mod forbid;
pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod layers;
pub(crate) mod limits;
pub(crate) mod money;
pub(crate) mod names;
pub(crate) mod own_directories;
pub(crate) mod parse;
pub(crate) mod project;
pub(crate) mod provider;
pub(crate) mod quantity;
pub(crate) mod schema;
pub(crate) mod settings;
pub(crate) mod source;
pub(crate) mod tool_table;
pub(crate) mod units;
pub(crate) mod user_files;

pub(crate) use agents::AgentSettings;
pub(crate) use layers::load;
pub(crate) use provider::ProviderSettings;
pub(crate) use settings::{ComponentSource, HookSettings, Overrides, Settings, ToolSettings};
pub(crate) use source::{Origin, Sourced};
