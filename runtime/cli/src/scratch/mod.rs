//! Scratch overlays: redirected changes of tools, and their diffs.

pub(crate) mod diff;
pub(crate) mod overlay;
pub(crate) mod pending;
