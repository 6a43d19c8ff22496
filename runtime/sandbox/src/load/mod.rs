//! Loading: from the bytes of a component to compiled code, its imports and its definitions.

pub(crate) mod adapt;
pub(crate) mod cache;
pub(crate) mod compile;
pub(crate) mod complexity;
pub(crate) mod definitions;
mod header;
pub(crate) mod imports;
pub(crate) mod preflight;
pub(crate) mod rules;
