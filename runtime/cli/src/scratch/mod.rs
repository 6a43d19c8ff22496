//! Scratch overlays: where changes of tools go, and their differences.

pub(crate) mod diff;
pub(crate) mod overlay;
