//! JSON on standard output: the result of `--json` and each event line.
//!
//! Its values come from tools, models and projects, and the output may be a terminal. Characters that a terminal
//! executes, hides or reorders are written as `\\uXXXX`, which every JSON parser reads as the same value.

use std::io::{self, Write};

use serde::Serialize;
use toolcell_core::inert;

/// Prints a value on one line.
pub(crate) fn print_line(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string(value)?)
}

/// Prints a value on several lines, indented.
pub(crate) fn print_pretty(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Prints serialized JSON and a line end.
pub(crate) fn print(json: &str) -> io::Result<()> {
    let mut json = inert::json(json);
    json.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(json.as_bytes())?;
    out.flush()
}
