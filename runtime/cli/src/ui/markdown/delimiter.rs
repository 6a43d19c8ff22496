//! Delimiters that can still become markup by what follows them.

use std::ops::Range;

use super::block::Builder;

/// Delimiters that have been looked at.
#[derive(Debug, Default)]
pub(super) struct Delimiters {
    /// End of the last run of one character.
    run_end: usize,
    /// Offset of the last `]` that was found.
    closing: usize,
}

impl Builder<'_> {
    /// Notes the first character that can still become markup by what follows it. Each character is looked at once, so that runs
    /// of delimiters cost as much as other text.
    pub(super) fn note_open(&mut self, text: &str, range: &Range<usize>) {
        if self.open.is_some() || text.len() != range.len() {
            return;
        }
        let mut at = range.start;
        while let Some(found) = self.source[at..range.end].find(['*', '_', '`', '[', '<', '~', '\\']) {
            at += found;
            let Some(c) = self.source[at..].chars().next() else {
                return;
            };
            if at >= self.delimiters.run_end {
                let rest = self.source[at..].trim_start_matches(c);
                self.delimiters.run_end = self.source.len() - rest.len();
                if self.is_open(at, c) {
                    self.open = Some(at);
                    return;
                }
            }
            at = self.delimiters.run_end.min(range.end);
        }
    }

    /// True if a run of delimiters that begins here can become markup.
    fn is_open(&mut self, at: usize, c: char) -> bool {
        let before = self.source[..at].chars().next_back();
        let after = &self.source[self.delimiters.run_end..];
        let next = after.chars().next();
        let is_left_flanking = next.is_none_or(|next| !next.is_whitespace());
        if before == Some('\\') {
            return false;
        }
        match c {
            '`' => true,
            // At the end of a line it is a hard line break if the paragraph goes on.
            '\\' => after.trim_start().is_empty(),
            '*' | '~' => is_left_flanking,
            '_' => is_left_flanking && !before.is_some_and(char::is_alphanumeric),
            '<' => next.is_none_or(|next| next.is_alphabetic() || matches!(next, '/' | '!' | '?')),
            _ => {
                if self.delimiters.closing < self.delimiters.run_end {
                    let Some(end) = after.find(']') else {
                        return true;
                    };
                    self.delimiters.closing = self.delimiters.run_end + end;
                }
                let end = &self.source[self.delimiters.closing + 1..];
                end.is_empty() || end.starts_with(['(', '[', ':', ']'])
            }
        }
    }
}
