//! Output for the user: the terminal, rendering of events and escaping.

pub(crate) mod escape;
pub(crate) mod hints;
pub(crate) mod interrupt;
pub(crate) mod markdown;
pub(crate) mod reason;
pub(crate) mod render;
pub(crate) mod terminal;
