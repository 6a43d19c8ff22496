//! Hooks that are components: asked at fixed points of a turn, each time in a fresh cell.
//!
//! [`crate::Sandbox::load_hook`] makes a [`HookComponent`] of bytes; [`HookComponent::hook`] joins it with a policy and
//! gives a [`CellHook`], which is a [`toolcell_core::Hook`]: it returns what the hook wants, and nothing of it has happened
//! yet. A hook that fails wants nothing.
//!
//! | part of an answer | limit | beyond |
//! |---|---|---|
//! | the whole answer | [`toolcell_core::Limits::output`] | the hook failed |
//! | arguments of a call | those of any call, [`toolcell_core::json`] | the hook failed |
//! | message, context, instructions and examples of a prompt | [`MAX_PROMPT`] together | the hook failed |
//! | values for later hooks | [`MAX_VALUES`] together, and together with the values of the turn | the hook failed |
//! | a reason or a notice | [`MAX_TEXT`] | it is cut, with a mark |
//! | notices of one answer | [`MAX_NOTICES`] | the rest is counted in one more |

mod component;
mod manifest;
mod request;
mod response;

pub(crate) use component::LoadedHook;
pub use component::{CellHook, HookComponent};
pub(crate) use manifest::{Ask, HookManifest};

/// Most bytes that one answer may put into a conversation: some 60,000 tokens.
pub const MAX_PROMPT: usize = 256 << 10;

/// Most bytes of names and values that one answer may leave for later hooks, and that all hooks of a turn may: as many as
/// the journal keeps. Each hook is given all of them each time.
pub const MAX_VALUES: usize = 64 << 10;

/// Longest reason, notice or message of an error, in bytes.
pub const MAX_TEXT: usize = 4 << 10;

/// Most notices of one answer.
pub const MAX_NOTICES: usize = 32;
