//! Subject of a question: foreign text, abbreviated to fit next to the question, and in full for paging.

use std::io::{self, Write};

use serde_json::Value;
use toolcell_sandbox::Digest;

use super::question::{self, Fact, LONGEST};
use super::screen::{STRONG, Screen};
use super::text::{Name, Text, text};

/// Lengths at which strings inside arguments are shown: the first form is used that fits on the screen.
pub(crate) const FORMS: [Form; 3] = [
    Form {
        whole: 200,
        head: 100,
        tail: 60,
    },
    Form {
        whole: 100,
        head: 50,
        tail: 30,
    },
    Form {
        whole: 60,
        head: 24,
        tail: 16,
    },
];

/// Lengths in characters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// Maximum length of a string that is shown in full.
    whole: usize,
    /// Length of the shown start of a longer string.
    head: usize,
    /// Length of its shown end.
    tail: usize,
}

/// Number of shown digits of a digest: 64 bits, enough to make a collision infeasible to find.
const DIGITS: usize = 16;

/// Foreign text that a question is about.
#[derive(Debug, Clone)]
pub(crate) struct Exhibit {
    items: Vec<Item>,
    /// Digest of the full text of all items.
    digest: Digest,
}

/// One of the subjects of a question.
#[derive(Debug, Clone)]
struct Item {
    /// Heading and facts, if there are several subjects.
    frame: Option<(Text, Vec<Fact>)>,
    /// Arguments whose long strings can be abbreviated; `None` for a text.
    arguments: Option<Value>,
    /// Full text.
    whole: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Foreign(String),
    /// Marker of omitted text.
    Gap(Text),
}

impl Exhibit {
    /// Creates an exhibit of the arguments of a call.
    pub(crate) fn arguments(arguments: &Value) -> Self {
        Self::of(vec![Item::arguments(None, arguments)])
    }

    /// Creates an exhibit of several calls, each with a heading, its arguments and facts.
    pub(crate) fn calls<'a>(calls: impl IntoIterator<Item = (Text, &'a Value, Vec<Fact>)>) -> Self {
        let items = calls.into_iter();
        let items =
            items.map(|(heading, arguments, facts)| Item::arguments(Some((heading, facts)), arguments));
        Self::of(items.collect())
    }

    /// Creates an exhibit of a text.
    pub(crate) fn text(text: &str) -> Self {
        Self::of(vec![Item {
            frame: None,
            arguments: None,
            whole: text.trim_end().to_owned(),
        }])
    }

    fn of(items: Vec<Item>) -> Self {
        let wholes: Vec<&str> = items.iter().map(|item| item.whole.as_str()).collect();
        Self {
            digest: Digest::of(wholes.join("\n").as_bytes()),
            items,
        }
    }

    /// Writes an abbreviated form: long strings by start, end, length and digest, each in place, so that a long one hides no
    /// other. Returns true if nothing was omitted.
    pub(crate) fn write<W: Write>(&self, screen: &mut Screen<W>, form: Form) -> io::Result<bool> {
        let mut is_whole = true;
        for item in &self.items {
            is_whole &= item.framed(screen, |screen| item.write(screen, form))?;
        }
        Ok(is_whole)
    }

    /// Returns the marker for omitted lines of an abbreviated form.
    pub(crate) fn gap_of_lines(&self, left_out: usize) -> Text {
        text!(
            "  ├─ {} lines omitted; sha256 of the whole {}…",
            left_out,
            Name(&self.digest.hex()[..DIGITS])
        )
    }

    /// Writes the full text.
    pub(crate) fn write_whole<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        for item in &self.items {
            item.framed(screen, |screen| item.write_whole(screen))?;
        }
        Ok(())
    }
}

impl Item {
    fn arguments(frame: Option<(Text, Vec<Fact>)>, arguments: &Value) -> Self {
        Self {
            frame,
            arguments: Some(arguments.clone()),
            whole: format!("{arguments:#}"),
        }
    }

    /// Writes the subject between its heading and its facts.
    fn framed<W: Write, T>(
        &self,
        screen: &mut Screen<W>,
        write: impl FnOnce(&mut Screen<W>) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some((heading, _)) = &self.frame {
            screen.hang(4);
            screen.text("  ")?;
            screen.styled(STRONG, heading.shortened(LONGEST[0]))?;
            screen.end_line()?;
        }
        let written = write(screen)?;
        if let Some((_, facts)) = &self.frame {
            question::write_facts(screen, facts, LONGEST[0])?;
        }
        Ok(written)
    }

    fn write<W: Write>(&self, screen: &mut Screen<W>, form: Form) -> io::Result<bool> {
        let Some(arguments) = &self.arguments else {
            return self.write_whole(screen).map(|()| true);
        };
        let mut writer = Writer {
            form,
            parts: Vec::new(),
            line: String::new(),
        };
        writer.value(arguments, 0);
        writer.end();
        let mut is_whole = true;
        for part in writer.parts {
            match part {
                Part::Foreign(text) => {
                    screen.hang(2);
                    screen.text("  ")?;
                    screen.line(text)?;
                }
                Part::Gap(text) => {
                    is_whole = false;
                    screen.line(text)?;
                }
            }
        }
        Ok(is_whole)
    }

    fn write_whole<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.hang(2);
        screen.text("  ")?;
        screen.line(self.whole.clone())
    }
}

/// Returns the marker for omitted text of `all`, with the digest of all of it.
fn gap(all: &str, left_out: usize) -> Text {
    let digest = Digest::of(all.as_bytes()).hex();
    text!(
        "  ├─ {} of {} characters omitted; sha256 {}…",
        left_out,
        all.chars().count(),
        Name(&digest[..DIGITS])
    )
}

/// Writes JSON as `serde_json` does, with long strings abbreviated.
struct Writer {
    form: Form,
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
            other => self.long(&other.to_string()),
        }
    }

    fn new_line(&mut self, has_comma: bool, depth: usize) {
        self.line.push_str(if has_comma { ",\n" } else { "\n" });
        self.line.push_str(&"  ".repeat(depth));
    }

    fn string(&mut self, text: &str) {
        let json = Value::String(text.to_owned()).to_string();
        self.long(&json);
    }

    /// Appends a string, without its middle if it is too long.
    fn long(&mut self, text: &str) {
        let Form { whole, head, tail } = self.form;
        let length = text.chars().count();
        if length <= whole {
            return self.line.push_str(text);
        }
        self.line.extend(text.chars().take(head));
        self.end();
        self.parts.push(Part::Gap(gap(text, length - head - tail)));
        self.line.extend(text.chars().skip(length - tail));
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

    fn shown(arguments: &Value, form: Form) -> (String, bool) {
        let mut out = Vec::new();
        let is_whole = Exhibit::arguments(arguments)
            .write(&mut Screen::new(&mut out, false, Size::fixed(120)), form)
            .unwrap();
        (String::from_utf8(out).unwrap(), is_whole)
    }

    #[test]
    fn short_arguments_are_shown_as_they_are() {
        let arguments = json!({ "path": "a\nb", "list": [1, {}, []], "none": null });
        let expected: String = format!("{arguments:#}")
            .lines()
            .map(|line| format!("  │ {line}\n"))
            .collect();
        for form in FORMS {
            assert_eq!(shown(&arguments, form), (expected.clone(), true));
        }
    }

    #[test]
    fn long_string_is_truncated_without_hiding_others() {
        for form in FORMS {
            let Form { whole, head, tail } = form;
            // In JSON, a string has two quotation marks.
            let edge = "x".repeat(whole - 2);
            assert!(shown(&json!({ "a": edge }), form).1);
            let arguments =
                json!({ "a": format!("{edge}y"), "path": "/etc/passwd", "z": "w".repeat(100_000) });
            let (shown, is_whole) = shown(&arguments, form);
            assert!(!is_whole);
            let omitted = whole + 1 - head - tail;
            for expected in [
                "\"path\": \"/etc/passwd\"".to_owned(),
                format!("  ├─ {omitted} of {} characters omitted", whole + 1),
                format!("  ├─ {} of 100002 characters omitted", 100_002 - head - tail),
            ] {
                assert!(shown.contains(&expected), "{expected}: {shown}");
            }
            for line in shown.lines() {
                assert!(line.starts_with("  │ ") || line.starts_with("  ├─ "), "{line}");
            }
        }
    }
}
