//! Delimiters that can still become markup by what follows them.

use std::ops::Range;

use super::block::Builder;

impl Builder<'_> {
    /// Notes the first character that can still become markup by what follows it.
    pub(super) fn note_open(&mut self, text: &str, range: &Range<usize>) {
        if self.open.is_some() || text.len() != range.len() {
            return;
        }
        let found = text.char_indices().find(|(at, c)| {
            let at = range.start + at;
            matches!(c, '*' | '_' | '`' | '[' | '<' | '~' | '\\') && self.is_open(at, *c)
        });
        self.open = found.map(|(at, _)| range.start + at);
    }

    fn is_open(&self, at: usize, c: char) -> bool {
        let before = self.source[..at].chars().next_back();
        let after = &self.source[at + c.len_utf8()..];
        let next = after.trim_start_matches(c).chars().next();
        let is_left_flanking = next.is_none_or(|next| !next.is_whitespace());
        if before == Some('\\') {
            return false;
        }
        match c {
            '`' => true,
            // At the end of a line it is a hard line break if the paragraph goes on.
            '\\' => after.trim().is_empty(),
            '*' | '~' => is_left_flanking,
            '_' => is_left_flanking && !before.is_some_and(char::is_alphanumeric),
            '<' => next.is_none_or(|next| next.is_alphabetic() || matches!(next, '/' | '!' | '?')),
            _ => {
                let end = after.find(']').map(|end| &after[end + 1..]);
                end.is_none_or(|end| end.is_empty() || end.starts_with(['(', '[', ':', ']']))
            }
        }
    }
}
