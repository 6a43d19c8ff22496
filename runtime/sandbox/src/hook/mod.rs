//! Component hooks, each of whose calls runs in a new cell.
//!
//! [`crate::Sandbox::load_hook`] loads a [`HookComponent`]; [`HookComponent::hook`] combines it with a policy to a
//! [`CellHook`], which is a [`toolcell_core::Hook`]. The result of a hook is plain data that the caller applies; a
//! failed hook has none.
//!
//! | part of a response | limit | beyond |
//! |---|---|---|
//! | complete response | [`toolcell_core::Limits::output`] | the hook fails |
//! | arguments of a call | those of any call, [`toolcell_core::json`] | the hook fails |
//! | message, context, instructions and examples of a prompt | [`MAX_PROMPT`] in total | the hook fails |
//! | new messages around a summary | [`MAX_PROMPT`] in total; the others are chosen by their index | the hook fails |
//! | values for later hooks | [`MAX_VALUES`] in total, and in total with the values of the turn | the hook fails |
//! | a reason or a notice | [`MAX_TEXT`] | truncated, with a marker |
//! | notices of one response | [`MAX_NOTICES`] | an additional notice counts the rest |

mod component;
mod linked;
mod manifest;
mod request;
mod response;
mod summary;

pub(crate) use component::LoadedHook;
pub use component::{CellHook, HookComponent};
pub(crate) use linked::LinkedHook;
pub(crate) use manifest::{Ask, HookManifest};

/// Maximum number of bytes that one response adds to a conversation: about 60,000 tokens.
pub const MAX_PROMPT: usize = 256 << 10;

/// Maximum size of the names and values that one response leaves for later hooks, and of those of all hooks of a turn,
/// in bytes: as much as the journal stores. Each hook receives all of them each time.
pub const MAX_VALUES: usize = 64 << 10;

/// Maximum size of a reason, notice or error message, in bytes.
pub const MAX_TEXT: usize = 4 << 10;

/// Maximum number of notices in one response.
pub const MAX_NOTICES: usize = 32;
