//! Redaction of secrets in all output of a cell.
//!
//! A [`Redactor`] knows the values of secrets and finds them in text and bytes, in upper and lower case, in these forms
//! (`redact/forms.rs`):
//!
//! - plain, in hexadecimal, base64 (RFC 4648; of UTF-16 as well), base32, and as lists of numbers; encoded values are
//!   found at any offset in a group, for example inside of `user:password`;
//! - in UTF-16 and UTF-32;
//! - reversed, before or after encoding;
//! - with any of their characters escaped by percent-encoding, JSON, C, HTML or quoted-printable (`redact/escape.rs`),
//!   including nested escapes;
//! - in a dump of bytes (`xxd`, `hexdump`, `od`), over its line ends, and in two of hexadecimal, base64 and base32 on top of
//!   each other (`redact/forms/layers.rs`);
//! - with line breaks in encodings, and, from eight letters and digits on, with up to 32 bytes other than letters and
//!   digits between two characters, or with such characters of the value left out.
//!
//! Each match becomes `[redacted:NAME]`.
//!
//! It does not decode compression (also not inside of base64), encryption, three encodings combined, or two where a line of
//! the inner one ends inside of the value; up to four bits at either end of a base64 or base32 form can remain, and so can fragments of a value. Redaction only protects against accidental
//! echoes: code that can compute with a value can always encode it in a way that no search finds. The real protection
//! is that a guest never holds the value: the host adds secrets after the guest has handed over the request, and
//! redacts the response.
//!
//! A sandbox redacts all output of a cell: results ([`Redactor::result`]), errors, log lines, progress, receipts. Code
//! that displays or stores more than that (the events of a turn on a terminal, in a journal or a trace) applies
//! [`Redactor::json`] to each event before it is written, or [`Redactor::string`] to each line.

mod answers;
mod escape;
mod forms;
mod pattern;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use self::pattern::{Match, Pattern};

/// Minimum prefix of a secret that a live stream withholds, in bytes of one of its forms. Most secrets share their
/// first bytes (`sk-`).
const MIN_BEGINNING: usize = 4;

/// Number of positions of a text between two looks at whether the search was given up.
const LOOK: usize = 1 << 12;

/// Finds and replaces secrets. Clones share the patterns; the default value has none.
#[derive(Clone, Default)]
pub struct Redactor {
    patterns: Option<Arc<Patterns>>,
    /// True once nobody waits for the result.
    given_up: Option<Arc<AtomicBool>>,
}

struct Patterns {
    list: Vec<Pattern>,
    /// Patterns by their first byte.
    by_first: Vec<First>,
    /// Patterns that may begin with two letters or digits, by their [`class`]es: most texts are made of those.
    by_pair: Vec<Vec<usize>>,
}

/// Patterns that share the first byte.
#[derive(Clone, Default)]
struct First {
    /// Bytes that can follow it in a match.
    seconds: Bytes,
    /// The bytes that each pattern accepts next, with the index of the pattern.
    patterns: Vec<(Bytes, usize)>,
}

/// A set of bytes.
#[derive(Clone, Copy, Default)]
struct Bytes([u64; 4]);

/// Replacement of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// `[redacted:NAME]`.
    Name,
    /// As many asterisks as the match has bytes, for data whose length must not change.
    SameLength,
}

/// Incremental redaction of a stream, in pieces of any size.
#[derive(Debug)]
pub struct Redaction {
    redactor: Redactor,
    replacement: Replacement,
    /// Withheld bytes that could be the beginning of a match.
    held: Vec<u8>,
    /// Minimum number of matched bytes of a form for the input to be withheld.
    least: usize,
    /// Number of bytes of `held` that were already returned.
    given: usize,
    found: bool,
}

impl Redactor {
    /// Creates a redactor from names and values. Empty values are ignored.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut list = Vec::new();
        for (name, value) in secrets {
            let mark = format!("[redacted:{name}]");
            let patterns = forms::forms(value).into_iter();
            list.extend(patterns.map(|form| Pattern::new(form, mark.clone())));
        }
        Self {
            patterns: (!list.is_empty()).then(|| Arc::new(Patterns::new(list))),
            given_up: None,
        }
    }

    /// Returns a redactor that stops soon after `given_up` was set: what it has not searched by then is left out of its
    /// results.
    #[must_use]
    pub fn until(&self, given_up: Arc<AtomicBool>) -> Self {
        Self {
            patterns: self.patterns.clone(),
            given_up: Some(given_up),
        }
    }

    /// Returns `true` if the redactor has no patterns.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_none()
    }

    /// Returns the redacted text, borrowed if there was no match.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A match of a value beyond ASCII can end inside of a character.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Returns the redacted bytes, borrowed if there was no match.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.replace(bytes, Replacement::Name)
    }

    /// Returns the bytes with matches replaced as requested, borrowed if there was no match.
    pub fn replace<'a>(&self, bytes: &'a [u8], replacement: Replacement) -> Cow<'a, [u8]> {
        if self.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::new();
        let (end, found) = self.scan(bytes, true, replacement, &mut out);
        debug_assert_eq!(end, bytes.len(), "complete input leaves no undecided match");
        if found {
            Cow::Owned(out)
        } else {
            Cow::Borrowed(bytes)
        }
    }

    /// Redacts all texts, keys and numbers of a JSON value.
    pub fn json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let text = number.to_string();
                if let Cow::Owned(redacted) = self.text(&text) {
                    *value = Value::String(redacted);
                }
            }
            Value::String(text) => self.string(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(map) => {
                let has_secret_key = map.keys().any(|key| matches!(self.text(key), Cow::Owned(_)));
                if has_secret_key {
                    let old = std::mem::take(map);
                    map.extend(old.into_iter().map(|(k, v)| (self.text(&k).into_owned(), v)));
                }
                map.values_mut().for_each(|item| self.json(item));
            }
        }
    }

    /// Redacts a text in place.
    pub fn string(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.text(text) {
            *text = redacted;
        }
    }

    /// Returns the beginning of a text, redacted, in time that depends on `most` alone, the number of bytes read. What could be
    /// the beginning of a secret at their end is left out.
    pub fn beginning(&self, text: &str, most: usize) -> String {
        if text.len() <= most {
            return self.text(text).into_owned();
        }
        let mut redacted = Vec::new();
        let read = &text.as_bytes()[..text.floor_char_boundary(most)];
        self.scan(read, false, Replacement::Name, &mut redacted);
        String::from_utf8_lossy(&redacted).into_owned()
    }

    /// Returns a redaction of a stream, which also finds secrets that are split between pieces.
    pub fn stream(&self, replacement: Replacement) -> Redaction {
        Redaction {
            redactor: self.clone(),
            replacement,
            held: Vec::new(),
            least: 0,
            given: 0,
            found: false,
        }
    }

    /// Returns a redaction for text that is displayed live: the beginning of a possible secret is withheld only from
    /// its fourth character on, so that ordinary words appear without delay. Up to three characters of a secret can be
    /// shown.
    pub fn live_stream(&self) -> Redaction {
        Redaction {
            least: MIN_BEGINNING,
            ..self.stream(Replacement::Name)
        }
    }

    /// Copies `text` to `out` with matches replaced, as far as it can be decided; returns how far, and whether there
    /// was a match. With `is_whole` no text follows, and everything is decided.
    fn scan(
        &self,
        text: &[u8],
        is_whole: bool,
        replacement: Replacement,
        out: &mut Vec<u8>,
    ) -> (usize, bool) {
        let Some(patterns) = &self.patterns else {
            out.extend_from_slice(text);
            return (text.len(), false);
        };
        let mut found_any = false;
        let mut copied = 0;
        let mut at = 0;
        let mut steps = 0_usize;
        while at < text.len() {
            if steps.is_multiple_of(LOOK) && self.is_given_up() {
                out.extend_from_slice(&text[copied..at]);
                return (text.len(), true);
            }
            steps += 1;
            match patterns.find(&text[at..], is_whole) {
                (Match::No, _) => at += 1,
                (Match::Perhaps(_), _) => {
                    out.extend_from_slice(&text[copied..at]);
                    return (at, found_any);
                }
                (Match::Yes(length), mark) => {
                    out.extend_from_slice(&text[copied..at]);
                    match replacement {
                        Replacement::Name => out.extend_from_slice(mark.as_bytes()),
                        Replacement::SameLength => out.resize(out.len() + length, b'*'),
                    }
                    at += length;
                    copied = at;
                    found_any = true;
                }
            }
        }
        out.extend_from_slice(&text[copied..]);
        (text.len(), found_any)
    }

    fn is_given_up(&self) -> bool {
        let given_up = self.given_up.as_ref();
        given_up.is_some_and(|given_up| given_up.load(Ordering::Relaxed))
    }
}

impl Patterns {
    fn new(list: Vec<Pattern>) -> Self {
        let mut by_first = vec![First::default(); 256];
        let mut by_pair = vec![Vec::new(); CLASSES * CLASSES];
        for (index, pattern) in list.iter().enumerate() {
            let (first, second) = pattern.beginning();
            let mut seconds = Bytes::default();
            for byte in 0..=u8::MAX {
                if second.is_none_or(|second| pattern.same(second, byte)) {
                    seconds.insert(byte);
                }
            }
            for byte in (0..=u8::MAX).filter(|byte| pattern.same(first, *byte)) {
                let first = &mut by_first[usize::from(byte)];
                first.patterns.push((seconds, index));
                first.seconds = first.seconds.union(seconds);
            }
            let firsts = (0..=u8::MAX)
                .filter(|byte| pattern.same(first, *byte))
                .filter_map(class);
            for first in firsts {
                let seconds = (0..=u8::MAX)
                    .filter(|byte| seconds.contains(*byte))
                    .filter_map(class);
                for second in seconds {
                    let pair: &mut Vec<usize> = &mut by_pair[first * CLASSES + second];
                    // The two cases of a letter are one class.
                    if pair.last() != Some(&index) {
                        pair.push(index);
                    }
                }
            }
        }
        Self {
            list,
            by_first,
            by_pair,
        }
    }

    /// Returns the longest match at the start of `text`, and its replacement.
    fn find(&self, text: &[u8], is_whole: bool) -> (Match, &str) {
        let mut longest = (Match::No, "");
        // A letter or digit has one reading.
        if let [first, second, ..] = text
            && let (Some(first), Some(second)) = (class(*first), class(*second))
        {
            for index in &self.by_pair[first * CLASSES + second] {
                let pattern = &self.list[*index];
                better(&mut longest, (pattern.matches(text, is_whole), &pattern.mark));
            }
            return longest;
        }
        let is_cut = pattern::characters(text, None, |bytes, length| {
            self.find_after(text, bytes[0], length, is_whole, &mut longest);
        });
        match longest.0 {
            Match::No | Match::Yes(_) if is_cut && !is_whole => (Match::Perhaps(0), ""),
            _ => longest,
        }
    }

    /// Searches patterns that begin with `first`, which takes `length` bytes of `text`.
    fn find_after<'a>(
        &'a self,
        text: &[u8],
        first: u8,
        length: usize,
        is_whole: bool,
        longest: &mut (Match, &'a str),
    ) {
        let first = &self.by_first[usize::from(first)];
        if first.patterns.is_empty() {
            return;
        }
        let mut seconds = Bytes::default();
        match &text[length..] {
            [byte, ..] if byte.is_ascii_alphanumeric() => seconds.insert(*byte),
            rest => {
                let gaps = Some(forms::Gaps::Dump);
                let is_cut = pattern::characters(rest, gaps, |bytes, _| seconds.insert(bytes[0]));
                if is_cut && !is_whole {
                    better(longest, (Match::Perhaps(1), ""));
                }
            }
        }
        if !first.seconds.intersects(seconds) && !text[length..].is_empty() {
            return;
        }
        for (accepted, index) in &first.patterns {
            if !accepted.intersects(seconds) && !text[length..].is_empty() {
                continue;
            }
            let pattern = &self.list[*index];
            better(longest, (pattern.matches(text, is_whole), &pattern.mark));
        }
    }
}

/// Classes of letters and digits: a letter in both cases is one.
const CLASSES: usize = 36;

fn class(byte: u8) -> Option<usize> {
    let digit = char::from(byte).to_digit(36)?;
    usize::try_from(digit).ok()
}

/// Keeps the preferred match: one that may still become longer, then the longest.
fn better<'a>(longest: &mut (Match, &'a str), found: (Match, &'a str)) {
    let is_better = match (&found.0, &longest.0) {
        (Match::No, _) | (Match::Yes(_), Match::Perhaps(_)) => false,
        (_, Match::No) | (Match::Perhaps(_), Match::Yes(_)) => true,
        (Match::Yes(new), Match::Yes(old)) | (Match::Perhaps(new), Match::Perhaps(old)) => new > old,
    };
    if is_better {
        *longest = found;
    }
}

impl Bytes {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    fn intersects(self, other: Self) -> bool {
        (0..4).any(|i| self.0[i] & other.0[i] != 0)
    }
}

impl Redaction {
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
        let mut out = Vec::with_capacity(text.len());
        let (end, found) = self.redactor.scan(&text, false, self.replacement, &mut out);
        self.found |= found;
        self.held = text[end..].to_vec();
        let mut out = self.without_given(&text, out);
        self.given = self.given.saturating_sub(end);
        let open = self.open();
        if open > self.given {
            out.extend_from_slice(&self.held[self.given..open]);
            self.given = open;
        }
        Cow::Owned(out)
    }

    /// Returns the new part of `out`, which is `text` redacted, given that the first bytes of `text` were already
    /// returned.
    fn without_given(&self, text: &[u8], mut out: Vec<u8>) -> Vec<u8> {
        let old = self.given.min(text.len());
        // A match that began in the returned part replaces its remainder.
        let same = text[..old].iter().zip(&out).take_while(|(a, b)| a == b).count();
        out.drain(..same);
        out
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
        let rest = self.redactor.replace(&held, self.replacement);
        self.found |= matches!(rest, Cow::Owned(_));
        let rest = self.without_given(&held, rest.into_owned());
        self.given = 0;
        rest
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = self.patterns.as_deref().map_or(0, |patterns| patterns.list.len());
        f.debug_struct("Redactor").field("patterns", &patterns).finish()
    }
}

#[cfg(test)]
mod tests;
