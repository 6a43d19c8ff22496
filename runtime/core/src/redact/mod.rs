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
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use self::pattern::{Match, Pattern};

pub use self::stream::Redaction;

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

/// Guard of a search whose result is awaited.
#[derive(Debug)]
pub struct Awaited(Arc<AtomicBool>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

    /// Returns a redactor for a search on another thread. It stops soon after the guard was dropped: what it has not searched by
    /// then is left out of its results.
    pub fn while_awaited(&self) -> (Self, Awaited) {
        let guard = Awaited(Arc::default());
        let redactor = Self {
            patterns: self.patterns.clone(),
            given_up: Some(guard.0.clone()),
        };
        (redactor, guard)
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
        let scanned = self.scan(bytes, 0, true, replacement, &mut out);
        debug_assert_eq!(
            scanned.end,
            bytes.len(),
            "complete input leaves no undecided match"
        );
        if scanned.found {
            Cow::Owned(out)
        } else {
            Cow::Borrowed(bytes)
        }
    }

    /// Redacts all texts, keys and numbers of a JSON value, and replaces a list that has a secret in pieces, such as its bytes, by
    /// a text.
    pub fn json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        self.json_parts(value);
        self.json_lists(value);
    }

    /// Replaces the innermost lists and objects that have a secret in pieces.
    fn json_lists(&self, value: &mut Value) {
        if !value.is_array() && !value.is_object() {
            return;
        }
        if let Cow::Borrowed(_) = self.text(&value.to_string()) {
            return;
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.json_lists(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.json_lists(item)),
            _ => {}
        }
        if let Cow::Owned(redacted) = self.text(&value.to_string()) {
            *value = Value::String(redacted);
        }
    }

    fn json_parts(&self, value: &mut Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let text = number.to_string();
                if let Cow::Owned(redacted) = self.text(&text) {
                    *value = Value::String(redacted);
                }
            }
            Value::String(text) => self.string(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json_parts(item)),
            Value::Object(map) => {
                let has_secret_key = map.keys().any(|key| matches!(self.text(key), Cow::Owned(_)));
                if has_secret_key {
                    let old = std::mem::take(map);
                    map.extend(old.into_iter().map(|(k, v)| (self.text(&k).into_owned(), v)));
                }
                map.values_mut().for_each(|item| self.json_parts(item));
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
        self.scan(read, 0, false, Replacement::Name, &mut redacted);
        String::from_utf8_lossy(&redacted).into_owned()
    }

    /// Returns a redaction of a stream, which also finds secrets that are split between pieces.
    pub fn stream(&self, replacement: Replacement) -> Redaction {
        Redaction::new(self.clone(), replacement, 0)
    }

    /// Returns a redaction for text that is displayed live: the beginning of a possible secret is withheld only from
    /// its fourth character on, so that ordinary words appear without delay. Up to three characters of a secret can be
    /// shown.
    pub fn live_stream(&self) -> Redaction {
        Redaction::new(self.clone(), Replacement::Name, MIN_BEGINNING)
    }

    /// Copies `text` to `out` with matches replaced, as far as it can be decided. Its first `covered` bytes are replaced already.
    /// With `is_whole` no text follows, and everything is decided. Matches that overlap are replaced together: what remained of the
    /// second one would be most of a secret.
    fn scan(
        &self,
        text: &[u8],
        covered: usize,
        is_whole: bool,
        replacement: Replacement,
        out: &mut Vec<u8>,
    ) -> Scanned {
        let Some(patterns) = &self.patterns else {
            out.extend_from_slice(&text[covered..]);
            return Scanned::all(text, false);
        };
        let mut found = false;
        // End of what was copied or replaced.
        let mut done = covered;
        for at in 0..text.len() {
            if at.is_multiple_of(LOOK) && self.is_given_up() {
                out.extend_from_slice(&text[done.min(at)..at]);
                return Scanned::all(text, true);
            }
            match patterns.find(&text[at..], is_whole) {
                (Match::No, _) => {}
                (Match::Perhaps(_), _) => {
                    out.extend_from_slice(&text[done.min(at)..at]);
                    let covered = done.saturating_sub(at);
                    return Scanned {
                        end: at,
                        covered,
                        found,
                    };
                }
                (Match::Yes(length), mark) => {
                    let begins = at >= done;
                    if begins {
                        out.extend_from_slice(&text[done..at]);
                        done = at;
                    }
                    let end = done.max(at + length);
                    match replacement {
                        Replacement::Name if begins => out.extend_from_slice(mark.as_bytes()),
                        Replacement::Name => {}
                        Replacement::SameLength => out.resize(out.len() + end - done, b'*'),
                    }
                    done = end;
                    found = true;
                }
            }
        }
        out.extend_from_slice(&text[done..]);
        Scanned::all(text, found)
    }

    fn is_given_up(&self) -> bool {
        let given_up = self.given_up.as_ref();
        given_up.is_some_and(|given_up| given_up.load(Ordering::Relaxed))
    }
}

/// Result of a scan.
struct Scanned {
    /// End of what is decided.
    end: usize,
    /// Number of bytes behind it that are replaced already: a match overlaps what may be another one.
    covered: usize,
    found: bool,
}

impl Scanned {
    fn all(text: &[u8], found: bool) -> Self {
        let end = text.len();
        let covered = 0;
        Self { end, covered, found }
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

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = self.patterns.as_deref().map_or(0, |patterns| patterns.list.len());
        f.debug_struct("Redactor").field("patterns", &patterns).finish()
    }
}

#[cfg(test)]
mod tests;
