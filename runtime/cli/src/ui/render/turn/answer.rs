//! The answer of a turn, as far as it was not streamed.

use std::io;

use serde_json::Value;

use super::{State, TurnView, set_apart};
use crate::ui::terminal::{Text, WARN};

impl TurnView {
    /// Shows what of an answer was not streamed.
    pub(super) fn answer(&self, state: &State, text: &str, result: Option<&Value>) -> io::Result<()> {
        let last = match state.streamed.trim() {
            "" => state.last_text.trim(),
            streamed => streamed,
        };
        // An answer that the loop composed ends with the last text of the model.
        let rest = match text.trim_end().strip_suffix(last) {
            Some(rest) if !last.is_empty() && !self.only_answer => rest.trim_end(),
            _ => text,
        };
        let is_shown = rest.trim().is_empty();
        match result {
            // A program reads the answer; this one does not fit the schema.
            None if self.only_answer && !is_shown => self.console.write(|s| {
                s.err.styled(WARN, "! ")?;
                s.err.line(set_apart(Text::foreign(text)))
            }),
            // Text that the loop created, or that arrived in one piece, was not streamed.
            None if !is_shown => self.stream(rest),
            None => Ok(()),
            // An answer by a schema is the result itself.
            Some(result) if is_text(result, text) && !is_shown => self.plain(rest),
            Some(result) if is_text(result, text) => Ok(()),
            Some(result) => {
                if !is_shown && !self.only_answer {
                    self.stream(rest)?;
                    self.console.write(|s| s.end_answer())?;
                }
                self.plain(&format!("{result:#}"))
            }
        }
    }
}

/// True if the result is written in the text.
fn is_text(result: &Value, text: &str) -> bool {
    serde_json::from_str::<Value>(text.trim()).is_ok_and(|value| value == *result)
}
