//! Files of language models that run on this machine: GGUF.
//!
//! | part | module |
//! |---|---|
//! | Headers of files, read as untrusted input | [`gguf`] |
//! | Facts about a model, and the check of its numbers | [`Model`] |
//! | Models in a directory | [`directory`] |
//! | Grammars of answers, from the schemas of tools | [`grammar`] |
//! | Prompts and answers: roles, calls, reasoning | [`chat`] |
//! | Choice of tokens | [`sampling`] |
//! | Chat templates, which are programs of the file, in a process of their own | [`template`] |
//! | The engine, with the feature `engine` | `engine` |
//!
//! The crate reads no environment and prints nothing.

pub mod chat;
pub mod directory;
#[cfg(feature = "engine")]
pub mod engine;
mod error;
pub mod gguf;
pub mod grammar;
mod model;
mod process;
pub mod sampling;
pub mod template;
#[cfg(test)]
mod testing;

pub use error::{GgufError, InvalidModel, LocalError, TemplateError};
pub use model::{ARCHITECTURES, Memory, Model};
pub use process::ChildCommand;
