//! Errors of this crate.

use serde::{Deserialize, Serialize};
use std::io;

/// Error of a GGUF file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file cannot be opened.
    #[error(transparent)]
    File(#[from] toolcell_fs::FileError),
    /// The file cannot be read.
    #[error("could not read the file")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("it is not a GGUF file: it does not begin with `GGUF`")]
    NotGguf,
    /// A version that is not supported.
    #[error("version {0} of GGUF is not supported, only 2 and 3 are")]
    Version(u32),
    /// A file for machines with the other byte order.
    #[error("it is a big-endian GGUF file, which is not supported")]
    BigEndian,
    /// The file ends in its header.
    #[error("the file ends within its header: the download may be incomplete")]
    CutOff,
    /// The header exceeds [`crate::gguf::MAX_HEADER_BYTES`].
    #[error("the header is larger than 256 MiB")]
    HeaderTooLong,
    /// A count exceeds its limit.
    #[error("{count} {what} are more than the {most} that are allowed")]
    TooMany {
        /// Name of the counted things.
        what: &'static str,
        /// Their number in the file.
        count: u64,
        /// Maximum.
        most: u64,
    },
    /// A length exceeds its limit.
    #[error("{what} of {bytes} bytes: at most {most} are allowed")]
    TooLong {
        /// Name of the text.
        what: &'static str,
        /// Its length in the file, in bytes.
        bytes: u64,
        /// Maximum in bytes.
        most: u64,
    },
    /// Two keys have one name.
    #[error("the key {0:?} occurs twice")]
    DuplicateKey(String),
    /// A value is invalid.
    #[error("the key {0:?} is invalid: {1}")]
    Value(String, &'static str),
    /// A tensor is invalid.
    #[error("the tensor {0:?} is invalid: {1}")]
    Tensor(String, &'static str),
    /// The alignment is invalid.
    #[error("`general.alignment` is not a power of two from 8 to 65,536")]
    Alignment,
    /// The file has no architecture.
    #[error("it has no `general.architecture`: it is not a model")]
    NoArchitecture,
}

/// Reason for which a model should not be given to an engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidModel {
    /// The architecture is not one of [`crate::ARCHITECTURES`].
    #[error("its architecture {0:?} is not one whose numbers are checked")]
    Architecture(String),
    /// A number that engines need is missing or outside its limits.
    #[error("`{key}` is {found}, but must be from {least} to {most}")]
    Number {
        /// Key in the file.
        key: String,
        /// Number in the file, or `missing`.
        found: String,
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },
    /// Numbers do not fit each other.
    #[error("{0}")]
    Inconsistent(&'static str),
    /// The file is one of several parts.
    #[error("it is one of {0} parts, which `llama-gguf-split --merge` joins")]
    Split(u64),
}

/// Error of a chat template, with the words of the template engine, which can contain those of the template.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template exceeds [`crate::template::MAX_TEMPLATE_BYTES`].
    #[error("the chat template is larger than 256 KiB")]
    TooLong,
    /// The template is not valid, raises an error, or exceeds a limit of work.
    #[error("the chat template failed:\n{0}")]
    Failed(String),
    /// Its process did not end well.
    #[error("the chat template took more than 10 s or 1 GiB of memory, or ended its process")]
    Stopped,
    /// Its process cannot be started.
    #[serde(skip)]
    #[error("a process for the chat template cannot be started: {0}")]
    Start(std::io::Error),
    /// The conversation is longer than any text may be.
    #[error("the conversation is longer than chat templates may write")]
    InputTooLong,
    /// The text exceeds [`crate::template::MAX_OUTPUT_BYTES`].
    #[error("the chat template writes more than 16 MiB")]
    OutputTooLong,
}

/// Reason for which a model cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The file is not valid.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Its numbers are out of order.
    #[error(transparent)]
    Model(#[from] InvalidModel),
    /// Its chat template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// It has no chat template.
    #[error("it has no chat template: the form of its conversations is unknown")]
    NoTemplate,
    /// The context is longer than the model supports.
    #[error("a context of {context} tokens is longer than the {trained} for which the model was trained")]
    Context {
        /// Wanted length, in tokens.
        context: u64,
        /// Length for which the model was trained, in tokens.
        trained: u64,
    },
}
