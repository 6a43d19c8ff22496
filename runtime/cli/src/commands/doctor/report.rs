//! Results of the checks: lines as they come, or one JSON array.

use std::io;

use serde_json::{Value, json};

use crate::error::{Exit, Failure};
use crate::ui::render::Console;
use crate::ui::render::json::print_line;
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Text, WARN};

/// Width of the name of a check, in columns.
const WIDTH: usize = 15;

/// Result of one check.
pub(super) enum Finding {
    Good(String),
    Note(String),
    Bad(Failure),
}

/// Results of all checks.
pub(super) struct Report<'a> {
    console: &'a Console,
    /// The results so far, if they are printed as JSON.
    json: Option<Vec<Value>>,
    /// Exit code of the first failure.
    worst: Exit,
}

impl<'a> Report<'a> {
    pub(super) fn new(console: &'a Console, json: bool) -> Self {
        Self {
            console,
            json: json.then(Vec::new),
            worst: Exit::Ok,
        }
    }

    /// Adds a result.
    ///
    /// # Errors
    /// Returns an error if it cannot be printed.
    pub(super) fn add(&mut self, what: &Text, finding: Finding) -> io::Result<()> {
        if let Finding::Bad(failure) = &finding
            && self.worst == Exit::Ok
        {
            self.worst = failure.exit;
        }
        let Some(all) = &mut self.json else {
            return print(self.console, what, &finding);
        };
        let check = what.plain();
        all.push(match finding {
            Finding::Good(text) => json!({ "check": check, "state": "good", "text": text }),
            Finding::Note(text) => json!({ "check": check, "state": "note", "text": text }),
            Finding::Bad(failure) => {
                let mut failed = failure.to_json();
                failed.insert("check".into(), check.into());
                failed.insert("state".into(), "bad".into());
                Value::Object(failed)
            }
        });
        Ok(())
    }

    /// Prints the JSON, if it is wanted, and returns the exit code.
    ///
    /// # Errors
    /// Returns an error if it cannot be printed.
    pub(super) fn end(self) -> io::Result<Exit> {
        if let Some(all) = &self.json {
            print_line(self.console, all)?;
        }
        Ok(self.worst)
    }
}

fn print(console: &Console, what: &Text, finding: &Finding) -> io::Result<()> {
    console.write(|s| {
        let (style, mark) = match finding {
            Finding::Good(_) => (GOOD, "✓"),
            Finding::Note(_) => (WARN, "!"),
            Finding::Bad(_) => (BAD, "✗"),
        };
        s.out.styled(style, mark)?;
        s.out.text(" ")?;
        s.out.cell(NAME, what.clone(), WIDTH)?;
        match finding {
            Finding::Good(text) => s.out.styled(FAINT, text.clone())?,
            Finding::Note(text) => s.out.text(text.clone())?,
            Finding::Bad(failure) => {
                s.out.text("failed")?;
                s.out.end_line()?;
                s.out.flush()?;
                return failure.print(&mut s.out);
            }
        }
        s.out.end_line()?;
        s.out.flush()
    })
}
