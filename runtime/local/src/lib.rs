//! Files of language models that run on this machine: GGUF.
//!
//! | part | module |
//! |---|---|
//! | Headers of files, read as untrusted input | [`gguf`] |
//! | Facts about a model, and the check of its numbers | [`Model`] |
//! | Models in a directory | [`directory`] |
//! | Chat templates, which are programs of the file | [`template`] |
//!
//! The crate reads no environment and prints nothing.

pub mod directory;
mod error;
pub mod gguf;
mod model;
pub mod template;
#[cfg(test)]
mod testing;

pub use error::{GgufError, InvalidModel, TemplateError};
pub use model::{ARCHITECTURES, Memory, Model};
