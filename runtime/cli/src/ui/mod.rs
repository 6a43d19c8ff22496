//! Output for the user: the terminal, rendering of events, escaping and suggestions.

pub(crate) mod escape;
pub(crate) mod hints;
pub(crate) mod interrupt;
pub(crate) mod render;
pub(crate) mod suggest;
pub(crate) mod terminal;
