//! Configuration: the built-in defaults, the person's file, the project's file, the environment, the flags, in this
//! order. Later ones win; a project's file, which may come from anybody, can only narrow.
//!
//! | concept | module |
//! |---|---|
//! | the file as it is written, and its JSON Schema | [`mod@file`], [`schema`] |
//! | sizes, durations, counts and money | [`units`], [`money`], [`quantity`] |
//! | the model, and agents that are tools | [`provider`], [`agents`] |
//! | limits of a call and budgets of a session by name | [`limits`], [`mod@budget`] |
//! | reading one file, and pointing into it | [`parse`], [`source`] |
//! | names, and who has them | [`names`] |
//! | finding the files and putting the layers together | [`layers`], [`tool_table`], [`settings`] |
//! | hooks | [`hooks`] |
//! | what a project's file may narrow, and what it must not have | [`project`], [`forbid`] |

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
