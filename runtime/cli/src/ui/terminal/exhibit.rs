//! Subject of a question: foreign text, abbreviated to fit next to the question, and in full for paging.

use std::io::{self, Write};

use serde_json::Value;
use toolcell_sandbox::Digest;

use super::screen::Screen;
use super::text::{Name, Text, text};

/// Maximum length of a string inside arguments that is shown in full, in characters.
const WHOLE: usize = 200;

/// Length of the shown start and end of a longer string, in characters.
const HEAD: usize = 100;
const TAIL: usize = 60;

/// Number of shown digits of a digest: 64 bits, enough to make a collision infeasible to find.
const DIGITS: usize = 16;

/// Foreign text that a question is about.
#[derive(Debug, Clone)]
pub(crate) struct Exhibit {
    /// Abbreviated form next to the question.
    short: Vec<Part>,
    /// Full text.
    whole: String,
    is_whole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Foreign(String),
    /// Marker of omitted text.
    Gap(Text),
}

impl Exhibit {
    /// Creates an exhibit of the arguments of a call. Long strings are shown by start, end, length and digest, each in
    /// place, so that a long one hides no other.
    pub(crate) fn arguments(arguments: &Value) -> Self {
        let mut writer = Writer::default();
        writer.value(arguments, 0);
        writer.end();
        Self {
            is_whole: !writer.parts.iter().any(|part| matches!(part, Part::Gap(_))),
            short: writer.parts,
            whole: format!("{arguments:#}"),
        }
    }

    /// True if the abbreviated form is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Writes the abbreviated form.
    pub(crate) fn write<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        for part in &self.short {
            match part {
                Part::Foreign(text) => {
                    screen.hang(2);
                    screen.text("  ")?;
                    screen.line(text.clone())?;
                }
                Part::Gap(text) => screen.line(text.clone())?,
            }
        }
        Ok(())
    }

    /// Writes the full text.
    pub(crate) fn write_whole<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.hang(2);
        screen.text("  ")?;
        screen.line(self.whole.clone())
    }
}

/// Returns the marker for omitted text of `all`.
fn gap(all: &str, left_out: usize) -> Text {
    let digest = Digest::of(all.as_bytes()).hex();
    text!(
        "  ├─ {} of {} characters omitted; sha256 of the whole {}…",
        left_out,
        all.chars().count(),
        Name(&digest[..DIGITS])
    )
}

/// Writes JSON as `serde_json` does, with long strings abbreviated.
#[derive(Default)]
struct Writer {
    parts: Vec<Part>,
    line: String,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) if !items.is_empty() => {
                self.line.push('[');
                for (i, item) in items.iter().enumerate() {
                    self.new_line(i > 0, depth + 1);
                    self.value(item, depth + 1);
                }
                self.new_line(false, depth);
                self.line.push(']');
            }
            Value::Object(members) if !members.is_empty() => {
                self.line.push('{');
                for (i, (name, member)) in members.iter().enumerate() {
                    self.new_line(i > 0, depth + 1);
                    self.string(name);
                    self.line.push_str(": ");
                    self.value(member, depth + 1);
                }
                self.new_line(false, depth);
                self.line.push('}');
            }
            other => self.long(&other.to_string(), WHOLE),
        }
    }

    fn new_line(&mut self, has_comma: bool, depth: usize) {
        self.line.push_str(if has_comma { ",\n" } else { "\n" });
        self.line.push_str(&"  ".repeat(depth));
    }

    fn string(&mut self, text: &str) {
        let json = Value::String(text.to_owned()).to_string();
        self.long(&json, WHOLE);
    }

    /// Appends a string, without its middle if it is longer than `most`.
    fn long(&mut self, text: &str, most: usize) {
        let length = text.chars().count();
        if length <= most {
            return self.line.push_str(text);
        }
        self.line.extend(text.chars().take(HEAD));
        self.end();
        self.parts.push(Part::Gap(gap(text, length - HEAD - TAIL)));
        self.line.extend(text.chars().skip(length - TAIL));
    }

    fn end(&mut self) {
        if !self.line.is_empty() {
            self.parts.push(Part::Foreign(std::mem::take(&mut self.line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::Size;
    use serde_json::json;

    fn shown(exhibit: &Exhibit) -> String {
        let mut out = Vec::new();
        exhibit
            .write(&mut Screen::new(&mut out, false, Size::fixed(120)))
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn short_arguments_are_shown_as_they_are() {
        let arguments = json!({ "path": "a\nb", "list": [1, {}, []], "none": null });
        let exhibit = Exhibit::arguments(&arguments);
        assert!(exhibit.is_whole());
        let expected: String = format!("{arguments:#}")
            .lines()
            .map(|line| format!("  │ {line}\n"))
            .collect();
        assert_eq!(shown(&exhibit), expected);
    }

    #[test]
    fn long_string_is_truncated_without_hiding_others() {
        let edge = "x".repeat(WHOLE - 2);
        assert!(Exhibit::arguments(&json!({ "a": edge })).is_whole());
        let arguments = json!({ "a": format!("{edge}yz"), "path": "/etc/passwd", "z": "w".repeat(100_000) });
        let exhibit = Exhibit::arguments(&arguments);
        assert!(!exhibit.is_whole());
        let shown = shown(&exhibit);
        assert!(shown.contains("\"path\": \"/etc/passwd\""), "{shown}");
        assert!(shown.contains("  ├─ 42 of 202 characters omitted"), "{shown}");
        assert!(
            shown.contains("  ├─ 99842 of 100002 characters omitted"),
            "{shown}"
        );
        for line in shown.lines() {
            assert!(line.starts_with("  │ ") || line.starts_with("  ├─ "), "{line}");
        }
    }
}
