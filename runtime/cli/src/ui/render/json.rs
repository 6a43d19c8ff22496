//! JSON on standard output: the result of `--json` and each event line.
//!
//! Its values come from tools, models and projects, and the output may be a terminal. Characters that a terminal
//! executes, hides or reorders are written as `\\uXXXX`, which every JSON parser reads as the same value.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;

use crate::ui::terminal::{MAX_MARKS, is_mark, is_unsafe};

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
    let mut json = escaped(json);
    json.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(json.as_bytes())?;
    out.flush()
}

/// Returns equivalent JSON without characters that a terminal executes, hides or reorders.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut marks = 0;
    for c in json.chars() {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        // Line ends are indentation: strings contain none.
        if c != '\n' && (is_unsafe(c) || marks > MAX_MARKS) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::{Value, json};

    use crate::ui::terminal::is_hidden;

    #[test]
    fn escaped_json_has_same_value_and_nothing_unsafe() {
        let every: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let value = json!({ "text": every, &every[..0x900]: ["\u{9b}2J", "\u{202e}", "e\u{301}\u{e0041}"] });
        for json in [value.to_string(), format!("{value:#}")] {
            let escaped = escaped(&json);
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
            let unsafe_one = |c: &char| (c.is_control() && *c != '\n') || is_hidden(*c);
            assert_eq!(escaped.chars().find(unsafe_one), None);
        }
    }

    #[test]
    fn json_escapes_combining_marks_beyond_limit() {
        for (marks, escapes) in [(MAX_MARKS, 0), (MAX_MARKS + 1, 1)] {
            let text = format!("\"e{}\"", "\u{301}".repeat(marks));
            assert_eq!(escaped(&text).matches("\\u0301").count(), escapes);
        }
    }

    #[test]
    fn ordinary_json_text_is_unchanged() {
        for text in ["{\"ü\": \"日本語 👩\"}", "{\n  \"a\": \"b\\nc\"\n}", "\"नमस्ते\""] {
            assert_eq!(escaped(text), text);
        }
    }
}
