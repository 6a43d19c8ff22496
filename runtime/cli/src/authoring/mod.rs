//! Tools of authors: new ones from templates, and components of their sources.
//!
//! [`project`] writes the files of a new tool, which has a manifest `tool.toml` ([`manifest`]). [`recipe`] finds the compiler of
//! its language and runs it. The SDKs are part of the binary, so that neither needs a network.

pub(crate) mod compiler;
pub(crate) mod embedded;
pub(crate) mod language;
pub(crate) mod manifest;
mod names;
pub(crate) mod project;
pub(crate) mod recipe;
mod rust_sdk;
mod world;
