//! JSON on standard output: the result of `--json` and each event line.
//!
//! Its values come from tools, models and projects, and the output may be a terminal. Characters that a terminal
//! executes, hides or reorders are written as `\\uXXXX`, which every JSON parser reads as the same value. On a terminal,
//! lines wrap behind the gutter, so that no value appears at the start of a line.

use std::io;

use serde::Serialize;
use toolcell_core::inert;

use super::Console;

/// Prints a value on one line.
pub(crate) fn print_line(console: &Console, value: &impl Serialize) -> io::Result<()> {
    print(console, &serde_json::to_string(value)?)
}

/// Prints a value on several lines, indented.
pub(crate) fn print_pretty(console: &Console, value: &impl Serialize) -> io::Result<()> {
    print(console, &serde_json::to_string_pretty(value)?)
}

/// Prints serialized JSON and a line end.
pub(crate) fn print(console: &Console, json: &str) -> io::Result<()> {
    console.write(|s| {
        s.out.data(&inert::json(json))?;
        s.out.end_line()?;
        s.out.flush()
    })
}
