//! Redaction of streams.

use std::borrow::Cow;

use super::pattern::Match;
use super::{Redactor, Replacement};

/// Incremental redaction of a stream, in pieces of any size.
#[derive(Debug)]
pub struct Redaction {
    redactor: Redactor,
    replacement: Replacement,
    /// Withheld bytes that could be the beginning of a match.
    held: Vec<u8>,
    /// Number of them that are replaced already.
    covered: usize,
    /// Minimum number of matched bytes of a form for the input to be withheld.
    least: usize,
    /// Number of bytes of `held` that were already returned or replaced.
    given: usize,
    found: bool,
}

impl Redaction {
    /// Creates a redaction that withholds its input from `least` matched bytes on.
    pub(super) fn new(redactor: Redactor, replacement: Replacement, least: usize) -> Self {
        Self {
            redactor,
            replacement,
            held: Vec::new(),
            covered: 0,
            least,
            given: 0,
            found: false,
        }
    }

    /// Takes the next piece and returns the decided output; a possible beginning of a secret is withheld until the next
    /// piece.
    pub fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        if self.redactor.is_empty() {
            return Cow::Borrowed(piece);
        }
        let text = if self.held.is_empty() {
            Cow::Borrowed(piece)
        } else {
            let mut text = std::mem::take(&mut self.held);
            text.extend_from_slice(piece);
            Cow::Owned(text)
        };
        let (mut out, end) = self.scan(&text, false);
        self.held = text[end..].to_vec();
        self.given = self.given.saturating_sub(end).max(self.covered);
        let open = self.open();
        if open > self.given {
            out.extend_from_slice(&self.held[self.given..open]);
            self.given = open;
        }
        Cow::Owned(out)
    }

    /// Returns the output for a text that begins with what was held, without what was returned already, and the end of what is
    /// decided.
    fn scan(&mut self, text: &[u8], is_whole: bool) -> (Vec<u8>, usize) {
        let mut out = Vec::with_capacity(text.len());
        let redactor = &self.redactor;
        let scanned = redactor.scan(text, self.covered, is_whole, self.replacement, &mut out);
        // A match that began in the returned part replaces its remainder.
        let given = &text[self.covered..self.given.max(self.covered)];
        let same = given.iter().zip(&out).take_while(|(a, b)| a == b).count();
        out.drain(..same);
        self.found |= scanned.found;
        self.covered = scanned.covered;
        (out, scanned.end)
    }

    /// Returns how many of the held bytes need not be withheld.
    fn open(&self) -> usize {
        let Some(patterns) = self.redactor.patterns.as_deref().filter(|_| self.least > 0) else {
            return 0;
        };
        let begins = |at: &usize| {
            let (found, _) = patterns.find(&self.held[*at..], false);
            matches!(found, Match::Perhaps(bytes) if bytes >= self.least) || matches!(found, Match::Yes(_))
        };
        (0..self.held.len()).find(begins).unwrap_or(self.held.len())
    }

    /// Returns `true` if there was a match so far.
    pub fn has_found(&self) -> bool {
        self.found
    }

    /// Returns the number of withheld bytes.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Ends the stream and returns the withheld output. The redaction can be reused afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let (rest, _) = self.scan(&held, true);
        self.given = 0;
        rest
    }
}
