//! Source of a text: an argument or a file.

use toolcell_sdk::{Result, ToolError, files, show};

/// Text in an argument, or the path of a file.
pub(crate) enum Source {
    Text(String),
    File(String),
}

impl Source {
    /// Requires exactly one of two arguments, which the error names.
    pub(crate) fn one_of(text: Option<String>, path: Option<String>, names: [&str; 2]) -> Result<Self> {
        match (text, path) {
            (Some(text), None) => Ok(Self::Text(text)),
            (None, Some(path)) => Ok(Self::File(path)),
            (None, None) => Err(ToolError::invalid(format_args!(
                "give `{}` or `{}`",
                names[0], names[1]
            ))),
            (Some(_), Some(_)) => Err(ToolError::invalid(format_args!(
                "give `{}` or `{}`, not both",
                names[0], names[1]
            ))),
        }
    }

    /// The full text; of a file up to `max_bytes`.
    pub(crate) fn read(self, max_bytes: u64) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::File(path) => files::read_text(path, max_bytes),
        }
    }

    /// Label in a diff.
    pub(crate) fn label(&self, otherwise: &str) -> String {
        match self {
            Self::Text(_) => otherwise.to_owned(),
            Self::File(path) => show::value(path),
        }
    }
}
