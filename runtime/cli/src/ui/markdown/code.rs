//! Lines of code and of raw HTML.

use std::ops::Range;

use anstyle::Style;

use super::block::{Builder, inert_text};
use super::element::{Gap, Kind, OPEN};
use crate::ui::terminal::{FAINT, NAME};

/// A code block, or raw HTML.
#[derive(Debug)]
pub(super) struct Code {
    line: String,
    is_code: bool,
    is_first: bool,
}

impl Code {
    pub(super) fn new(is_code: bool, is_first: bool) -> Self {
        Self {
            line: String::new(),
            is_code,
            is_first,
        }
    }
}

impl Builder<'_> {
    /// Adds text of a code block or of raw HTML.
    pub(super) fn lines(&mut self, text: &str, range: &Range<usize>) {
        let is_verbatim = text.len() == range.len();
        let mut at = range.start;
        for part in text.split_inclusive('\n') {
            at += part.len();
            let Some(code) = &mut self.code else {
                // Raw HTML that is no block.
                return self.text(text, range);
            };
            code.line.push_str(part);
            if part.ends_with('\n') {
                let line = std::mem::take(&mut code.line);
                self.code_line(
                    &line,
                    if is_verbatim {
                        at - 1
                    } else {
                        range.end.saturating_sub(1)
                    },
                );
            }
        }
    }

    fn code_line(&mut self, line: &str, end: usize) {
        let Some(code) = &mut self.code else { return };
        let (is_code, is_first) = (code.is_code, std::mem::take(&mut code.is_first));
        if !is_first {
            self.gap(Gap::Break);
        }
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let style = if is_code { NAME } else { Style::new() };
        self.line(style, line, end, is_code);
    }

    pub(super) fn line(&mut self, style: Style, text: &str, end: usize, is_code: bool) {
        let text = inert_text(text);
        self.atom(Kind::Line { style, text, is_code }, end);
        self.gap(Gap::Break);
    }

    pub(super) fn end_code(&mut self, range: &Range<usize>) {
        let rest = self.code.as_mut().map(|code| std::mem::take(&mut code.line));
        let written = self.source[range.clone()].trim_end();
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            let is_last = range.end >= self.source.len();
            self.code_line(&rest, if is_last { OPEN } else { range.end });
        }
        let is_code = self.code.take().is_some_and(|code| code.is_code);
        let is_fenced = written.starts_with(['`', '~']);
        self.last_end = range.start + written.len();
        if is_code && is_fenced && !self.colour {
            // The last fence is known to be one if the block is followed by something.
            let is_complete = !self.source[range.end..].trim_start().is_empty();
            self.gap(Gap::Break);
            let end = range.start + written.len();
            self.line(FAINT, "```", if is_complete { end } else { OPEN }, false);
            self.last_end = range.start + written.len();
        }
        self.gap(Gap::Break);
    }
}
