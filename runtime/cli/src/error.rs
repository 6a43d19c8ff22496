//! Errors shown to the user: what failed with which input, why, and hints.

use std::fmt;
use std::io::{self, Write};

use anstyle::Style;
use serde_json::{Map, Value, json};

pub(crate) use crate::exit::Exit;
use crate::ui::reason;
use crate::ui::terminal::{BAD, FAINT, NAME, Screen, Text, WARN};

/// An error that ends the command, in the form shown to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code of the process.
    pub(crate) exit: Exit,
    what: Text,
    why: Vec<Text>,
    hints: Vec<Text>,
    /// True if a cause is a full disk. No other hint would help.
    is_disk_full: bool,
}

impl Failure {
    /// Creates a failure. `what` names what failed and its input: one sentence without a period, names in backticks.
    pub(crate) fn new(exit: Exit, what: impl Into<Text>) -> Self {
        Self {
            exit,
            what: what.into(),
            why: Vec::new(),
            hints: Vec::new(),
            is_disk_full: false,
        }
    }

    /// Adds an error and its chain of causes. A full disk has its own exit code and hint, whatever failed.
    pub(crate) fn because(mut self, error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        if toolcell_store::is_full(error.as_ref()) {
            (self.exit, self.hints, self.is_disk_full) = (Exit::Io, vec![FREE_SPACE.into()], true);
        }
        for reason in reason::chain(&error) {
            // An earlier reason may contain it as well.
            if !(self.why.last()).is_some_and(|last| last.plain().contains(&reason.plain())) {
                self.why.push(reason);
            }
        }
        self
    }

    /// Adds a reason.
    pub(crate) fn why(mut self, reason: impl Into<Text>) -> Self {
        self.why.push(reason.into());
        self
    }

    /// True if one of its reasons has these words, such as those of a compiler.
    pub(crate) fn says(&self, words: &str) -> bool {
        self.why.iter().any(|why| why.plain().contains(words))
    }

    /// Adds a hint: an action for the user. It has no words of others but names between backticks.
    pub(crate) fn hint(mut self, hint: impl Into<Text>) -> Self {
        if !self.is_disk_full {
            self.hints.push(hint.into().own_sentence());
        }
        self
    }

    /// Removes all hints.
    pub(crate) fn without_hints(mut self) -> Self {
        self.hints.clear();
        self
    }

    /// Adds several hints.
    pub(crate) fn hints<T: Into<Text>>(self, hints: impl IntoIterator<Item = T>) -> Self {
        hints.into_iter().fold(self, Self::hint)
    }

    /// Converts the failure to JSON: `what`, `why` (the causes), `hints` and `exit` (the exit code).
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let fields = [
            ("what", json!(self.what.plain())),
            ("why", json!(plain(&self.why))),
            ("hints", json!(plain(&self.hints))),
            ("exit", json!(self.exit as u8)),
        ];
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    /// Writes the failure to `screen`, one line each for the error, its causes and its hints.
    pub(crate) fn print<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.styled(BAD, "error:")?;
        self.print_parts(screen)
    }

    /// Writes the failure as a warning: its command goes on.
    pub(crate) fn print_warning<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.styled(WARN, "warning:")?;
        self.print_parts(screen)
    }

    fn print_parts<W: Write>(&self, screen: &mut Screen<W>) -> io::Result<()> {
        screen.text(" ")?;
        indented(screen, &self.what)?;
        for (i, reason) in self.why.iter().enumerate() {
            screen.styled(FAINT, if i == 0 { "  why: " } else { "     - " })?;
            indented(screen, reason)?;
        }
        for hint in &self.hints {
            screen.styled(NAME, " hint:")?;
            screen.text(" ")?;
            screen.hang(INDENTATION);
            screen.sentence(&hint.excerpt(MAX_SHOWN))?;
        }
        screen.flush()
    }
}

/// Hint for a full disk.
pub(crate) const FREE_SPACE: &str = "free some space on the disk, and try again";

/// Finishes the current line. Wrapped lines are indented to the start of the text.
fn indented<W: Write>(screen: &mut Screen<W>, text: &Text) -> io::Result<()> {
    screen.message(Style::new(), &text.excerpt(MAX_SHOWN), INDENTATION)
}

/// Width of the label in front of each part of a failure, in columns.
const INDENTATION: usize = 7;

/// Maximum number of characters of foreign text shown per part of a failure; longer texts lose their middle. A tool can
/// return megabytes of error text, and the hints below it must stay visible.
const MAX_SHOWN: usize = 4_000;

fn plain(texts: &[Text]) -> Vec<String> {
    texts.iter().map(Text::plain).collect()
}

/// One line, for logs and for tests.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        for reason in &self.why {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}

/// A closed pipe counts as success; any other write error is one of the output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Ok, "the output pipe was closed");
        }
        Self::new(Exit::Io, "could not write the output").because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::terminal::Size;

    fn printed(failure: &Failure) -> String {
        let mut out = Vec::new();
        failure
            .print(&mut Screen::new(&mut out, false, Size::NONE))
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn failure_shows_what_why_and_hint() {
        // Only words of the operating system are known not to be of others.
        let io = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let failure = Failure::new(Exit::Component, "`a.wasm` cannot be read")
            .because(io)
            .why("two\nlines".to_owned())
            .hint("check the path");
        insta::assert_snapshot!(printed(&failure), @r"
        error: `a.wasm` cannot be read
          why: │ no such file
             - │ two
               │ lines
         hint: check the path
        ");
    }

    #[test]
    fn full_disk_has_its_own_exit_code_and_hint() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let new = || Failure::new(Exit::Config, "`a` cannot be written");
        for failure in [
            new().because(full()).hint("change to a writable directory"),
            new()
                .hint("change to a writable directory")
                .because(anyhow::Error::from(full()).context("deep")),
        ] {
            assert_eq!(failure.exit, Exit::Io);
            let printed = printed(&failure);
            assert!(printed.contains(FREE_SPACE), "{printed}");
            assert!(!printed.contains("writable"), "{printed}");
        }
        let denied = new().because(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(denied.hints.is_empty() && denied.exit == Exit::Config);
    }

    #[test]
    fn cause_repeated_in_message_is_shown_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Outer(#[source] io::Error);
        let outer = Outer(io::Error::other("deep"));
        let failure = Failure::new(Exit::Failed, "x").because(outer);
        assert_eq!(failure.to_string(), "x: outer: deep");
    }

    #[test]
    fn failure_never_sends_control_sequence_to_terminal() {
        let failure = Failure::new(Exit::Failed, "\u{1b}[2J".to_owned())
            .why("\u{1b}]0;x\u{7}".to_owned())
            .hint("\u{202e}".to_owned());
        assert!(!printed(&failure).contains(|c: char| c.is_control() && c != '\n'));
    }
}
