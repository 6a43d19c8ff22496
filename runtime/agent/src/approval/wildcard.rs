//! Patterns in which `*` matches any characters, and the work that a call's rules may take.
//!
//! Rules of a project are untrusted, and so are arguments of a call. A match therefore takes time in the sum of both
//! lengths, and all matches for one call have a limit in total.

use std::cell::Cell;

/// Maximum work of the rules for one call, in bytes compared: a hundred patterns for an argument of 300 KB. About a tenth
/// of a second, in which the driver sees neither a deadline nor a cancellation.
pub(crate) const MAX_WORK: u64 = 32 << 20;

/// Work of one match or place in addition to its bytes: building strings and looking up arguments.
const FIXED_WORK: u64 = 64;

/// Work that is left for the rules of one call.
#[derive(Debug)]
pub(crate) struct Work(Cell<u64>);

/// The work is used up: it is not known whether a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecided;

impl Work {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Cell::new(bytes))
    }

    /// Charges work on this many bytes.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Undecided> {
        let cost = (bytes as u64).saturating_add(FIXED_WORK);
        let left = self.0.get().checked_sub(cost);
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or(Undecided)
    }

    /// Returns `true` if an operation lacked work.
    pub(crate) fn is_used_up(&self) -> bool {
        self.0.get() == 0
    }

    /// Returns `true` if the text matches the pattern.
    pub(crate) fn matches(&self, pattern: &str, text: &str) -> Result<bool, Undecided> {
        self.charge(pattern.len().saturating_add(text.len()))?;
        Ok(matches(pattern, text))
    }
}

/// Returns `true` if the text matches a pattern in which `*` matches any characters. Takes time in the sum of both
/// lengths: each part between two stars is found at its first place behind the one before, by a linear search.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(start) else {
        return false;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(inner) = text.strip_suffix(end) else {
        return false;
    };
    text = inner;
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_star_matches_any_characters() {
        for (pattern, text, yes) in [
            ("*", "", true),
            ("files_*", "files_read", true),
            ("files_*", "file_read", false),
            ("*.md", "a/b.md", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("a*b*c", "abbc", true),
            ("ab*bc", "abc", false),
            ("a*b*b", "ab", false),
            ("a*b*b", "abb", true),
            ("*ab*ab*", "aab", false),
            ("*ab*ab*", "aabab", true),
            ("*a*a*", "a", false),
            ("a?c", "abc", false),
            ("", "a", false),
            ("", "", true),
            ("**a", "ba", true),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, text), yes, "{pattern} {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn linear_match_equals_exhaustive_match(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            fn exhaustive(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|at| exhaustive(rest, &text[at..])),
                    Some((byte, rest)) => text.split_first().is_some_and(|(first, text)| first == byte && exhaustive(rest, text)),
                }
            }
            assert_eq!(matches(&pattern, &text), exhaustive(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn work_is_the_sum_of_both_lengths() {
        let cost = 3 + 4 + FIXED_WORK;
        let work = Work::new(cost);
        assert_eq!(work.matches("a*c", "abbc"), Ok(true));
        assert_eq!(work.matches("", ""), Err(Undecided));
        assert_eq!(Work::new(cost - 1).matches("a*c", "abbc"), Err(Undecided));
    }
}
