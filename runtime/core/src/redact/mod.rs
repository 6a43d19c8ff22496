//! Taking secrets out of everything that leaves a cell.
//!
//! A [`Redactor`] knows the values of secrets and finds them in text and bytes, in upper and lower case, in these forms
//! (`redact/forms.rs`):
//!
//! - as they are, in hexadecimal, base64 (RFC 4648; of UTF-16 as well), base32, and as lists of numbers; an encoding is
//!   found wherever in a group the value begins, so also inside of `user:password`;
//! - in UTF-16 and UTF-32;
//! - backwards, before the encoding or after it;
//! - with any of their characters written as an escape of percent-encoding, JSON, C, HTML or quoted-printable
//!   (`redact/escape.rs`), and escaped again;
//! - with line ends in encodings, and, from eight letters and digits on, with up to 32 bytes between two characters that are
//!   neither letter nor digit, or without any such characters that the value has.
//!
//! Each find becomes `[redacted:NAME]`.
//!
//! It does not undo compression, encryption, or two of the encodings on top of each other; up to four bits at either end
//! of a base64 or base32 form can stay, and so does a part of a value. No search can do more than make an honest
//! server's echo harmless: who may compute with a value can always write it in a way that nobody looks for. What a guest
//! never holds it cannot disguise: the host adds secrets after the guest has let go of a request, and redacts the answer.
//!
//! A sandbox applies it to all that leaves a cell: answers ([`Redactor::output`]), errors, log lines, progress, receipts.
//! Whoever shows or keeps more than that (the events of a turn on a terminal, in a journal or a trace) applies
//! [`Redactor::json`] to each event as it is written, or [`Redactor::string`] to each line.

mod answers;
mod escape;
mod forms;
mod pattern;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use self::pattern::{Match, Pattern};

/// Shortest beginning of a secret that a live stream holds back, in bytes of one of its forms. Most secrets share their
/// first bytes (`sk-`).
const MIN_BEGINNING: usize = 4;

/// Finds secrets and takes them out. Clones share the patterns; the default finds nothing.
#[derive(Clone, Default)]
pub struct Redactor(Arc<Patterns>);

#[derive(Default)]
struct Patterns {
    list: Vec<Pattern>,
    /// By the byte that a find begins with.
    by_first: Vec<First>,
}

/// The patterns that begin with one byte.
#[derive(Clone, Default)]
struct First {
    /// What may come after it in a find.
    seconds: Bytes,
    /// What each pattern accepts after it, with the index of the pattern.
    patterns: Vec<(Bytes, usize)>,
}

/// A set of bytes.
#[derive(Clone, Copy, Default)]
struct Bytes([u64; 4]);

/// What stands in the place of a find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// `[redacted:NAME]`.
    Name,
    /// As many asterisks as there were bytes, where the length must stay.
    SameLength,
}

/// A stream on its way through a [`Redactor`], in pieces of any size.
#[derive(Debug)]
pub struct Redaction {
    redactor: Redactor,
    replacement: Replacement,
    /// What could be the beginning of a find.
    held: Vec<u8>,
    /// Bytes of a form that must be there for what follows to be held back.
    least: usize,
    /// Bytes of `held` that were given out.
    given: usize,
    found: bool,
}

impl Redactor {
    /// Finds these values, given as names and values. Empty values are passed over.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut list = Vec::new();
        for (name, value) in secrets {
            let mark = format!("[redacted:{name}]");
            let patterns = forms::forms(value).into_iter();
            list.extend(patterns.map(|form| Pattern::new(form, mark.clone())));
        }
        Self(Arc::new(Patterns::new(list)))
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.0.list.is_empty()
    }

    /// A text without secrets; the same text where there are none.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A find of a value beyond ASCII could end inside of a character.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Bytes without secrets; the same bytes where there are none.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.replace(bytes, Replacement::Name)
    }

    /// Bytes without secrets, as `replacement` says.
    pub fn replace<'a>(&self, bytes: &'a [u8], replacement: Replacement) -> Cow<'a, [u8]> {
        if self.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::new();
        let (end, found) = self.scan(bytes, true, replacement, &mut out);
        debug_assert_eq!(end, bytes.len(), "a whole text is decided to its end");
        if found {
            Cow::Owned(out)
        } else {
            Cow::Borrowed(bytes)
        }
    }

    /// Takes secrets out of all texts, keys and numbers of a JSON value.
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

    /// Takes secrets out of a text in place.
    pub fn string(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.text(text) {
            *text = redacted;
        }
    }

    /// A stream without secrets, also those that are divided between two pieces.
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

    /// The same for text that somebody watches as it comes: what could be the beginning of a secret is held back from its
    /// fourth character on only, so that ordinary words do not lag. Up to three characters of a secret can be given out.
    pub fn live_stream(&self) -> Redaction {
        Redaction {
            least: MIN_BEGINNING,
            ..self.stream(Replacement::Name)
        }
    }

    /// Copies `text` to `out` without secrets, up to where it can be decided; says how far that is and whether there was
    /// anything. With `is_whole` no more text follows, and all is decided.
    fn scan(
        &self,
        text: &[u8],
        is_whole: bool,
        replacement: Replacement,
        out: &mut Vec<u8>,
    ) -> (usize, bool) {
        let mut found_any = false;
        let mut copied = 0;
        let mut at = 0;
        while at < text.len() {
            match self.0.find(&text[at..], is_whole) {
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
}

impl Patterns {
    fn new(list: Vec<Pattern>) -> Self {
        let mut by_first = vec![First::default(); 256];
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
        }
        Self { list, by_first }
    }

    /// The longest find that `text` begins with, and what is written in its place.
    fn find(&self, text: &[u8], is_whole: bool) -> (Match, &str) {
        // Most texts are letters and digits that begin nothing.
        if let [first, second, ..] = text
            && first.is_ascii_alphanumeric()
            && second.is_ascii_alphanumeric()
            && !self.by_first[usize::from(*first)].seconds.contains(*second)
        {
            return (Match::No, "");
        }
        let mut longest = (Match::No, "");
        let is_cut = pattern::characters(text, None, |bytes, length| {
            self.find_after(text, bytes[0], length, is_whole, &mut longest);
        });
        match longest.0 {
            Match::No | Match::Yes(_) if is_cut && !is_whole => (Match::Perhaps(0), ""),
            _ => longest,
        }
    }

    /// Looks for patterns that begin with `first`, which takes `length` bytes of `text`.
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
                let gaps = Some(forms::Gaps::Separators);
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

/// Keeps the find that counts: one that may still become longer, then the longest.
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
    /// Takes the next piece and gives what is decided; what could be the beginning of a secret waits for the next piece.
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

    /// What is new in `out`, which is `text` redacted, when the first bytes of `text` were given out before.
    fn without_given(&self, text: &[u8], mut out: Vec<u8>) -> Vec<u8> {
        let old = self.given.min(text.len());
        // A find that began in what was given out stands in the place of its rest.
        let same = text[..old].iter().zip(&out).take_while(|(a, b)| a == b).count();
        out.drain(..same);
        out
    }

    /// How much of what is held need not be held back.
    fn open(&self) -> usize {
        if self.least == 0 {
            return 0;
        }
        let begins = |at: &usize| {
            let (found, _) = self.redactor.0.find(&self.held[*at..], false);
            matches!(found, Match::Perhaps(bytes) if bytes >= self.least) || matches!(found, Match::Yes(_))
        };
        (0..self.held.len()).find(begins).unwrap_or(self.held.len())
    }

    /// Whether anything was found so far.
    pub fn has_found(&self) -> bool {
        self.found
    }

    /// Bytes that were pushed and wait for more.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// What is left when nothing more comes. The stream can be used again afterwards.
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
        let patterns = self.0.list.len();
        f.debug_struct("Redactor").field("patterns", &patterns).finish()
    }
}

#[cfg(test)]
mod tests;
