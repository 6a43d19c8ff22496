//! Matching of one form of a secret against text in any supported notation.

use std::collections::BTreeSet;

use super::escape::{self, Meaning};
use super::forms::{Form, Gaps};

/// Maximum gap between two characters of a form, in bytes; a gap that begins within it may end a little later. Longer
/// gaps separate unrelated text.
const MAX_GAP: usize = 32;

/// Maximum length of an HTML tag between two characters, such as `<wbr>`, in bytes, without its `<`.
const MAX_TAG: usize = 16;

// The positions that a gap can lead to are the bits of one integer.
const _: () = assert!(MAX_GAP + escape::MAX_ESCAPE < 64 && MAX_GAP + MAX_TAG < 64);

/// A form and the replacement of its matches.
#[derive(Debug)]
pub(super) struct Pattern {
    form: Form,
    /// `[redacted:NAME]`.
    pub(super) mark: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// A match of this many bytes.
    Yes(usize),
    No,
    /// The text ends before a decision. This many bytes of the form have matched so far.
    Perhaps(usize),
}

impl Pattern {
    pub(super) fn new(form: Form, mark: String) -> Self {
        Self { form, mark }
    }

    /// Returns the first byte, and the second if there is one.
    pub(super) fn beginning(&self) -> (u8, Option<u8>) {
        (self.form.bytes[0], self.form.bytes.get(1).copied())
    }

    /// Returns `true` if `byte` matches `wanted` of the form.
    pub(super) fn same(&self, wanted: u8, byte: u8) -> bool {
        if self.form.any_case && byte.is_ascii_uppercase() {
            return wanted == byte.to_ascii_lowercase();
        }
        match byte {
            b'-' if self.form.base64 => wanted == b'+',
            b'_' if self.form.base64 => wanted == b'/',
            byte => wanted == byte,
        }
    }

    /// Matches the form at the start of `text`, each character in any notation. If several decodings match, the longest
    /// is returned.
    pub(super) fn matches(&self, text: &[u8], is_whole: bool) -> Match {
        let wanted = &self.form.bytes;
        // Pairs of corresponding positions in the form and the text, in order. Usually there is one.
        let mut next = Some((0, 0));
        let mut places = BTreeSet::new();
        let mut longest = Match::No;
        let mut cut_at = None;
        while let Some((mut index, mut place)) = next.take().or_else(|| places.pop_first()) {
            if places.is_empty() {
                match self.plain(text, index, place) {
                    Some(at) => (index, place) = at,
                    None => continue,
                }
            }
            if index == wanted.len() {
                longest = Match::Yes(place);
                continue;
            }
            let gaps = (index > 0).then_some(self.form.gaps);
            let is_cut = characters(&text[place..], gaps, |bytes, length| {
                if let Some(end) = self.fits(bytes, index) {
                    places.insert((end, place + length));
                }
            });
            if is_cut && !is_whole {
                cut_at = cut_at.max(Some(index));
            }
        }
        cut_at.map_or(longest, Match::Perhaps)
    }

    /// Advances a pair of positions while the text has a single decoding; `None` on a mismatch.
    fn plain(&self, text: &[u8], mut index: usize, mut place: usize) -> Option<(usize, usize)> {
        let mut gap = 0;
        while let (Some(wanted), Some(byte)) = (self.form.bytes.get(index), text.get(place)) {
            if byte.is_ascii_alphanumeric() {
                if !self.same(*wanted, *byte) {
                    return None;
                }
                index += 1;
                place += 1;
                gap = 0;
            } else if escape::may_begin(*byte) || matches!(byte, b'<' | b'\r' | b'\n' | 0) {
                break;
            } else if self.form.gaps == Gaps::Separators && index > 0 {
                if gap == MAX_GAP {
                    return None;
                }
                place += 1;
                gap += 1;
            } else if self.same(*wanted, *byte) {
                index += 1;
                place += 1;
            } else {
                return None;
            }
        }
        // The gap is counted from its start.
        Some((index, place - gap))
    }

    /// Returns the position in the form after these bytes, if they match at `index`.
    fn fits(&self, bytes: &[u8], index: usize) -> Option<usize> {
        let end = index + bytes.len();
        let wanted = self.form.bytes.get(index..end)?;
        let same = wanted
            .iter()
            .zip(bytes)
            .all(|(wanted, byte)| self.same(*wanted, *byte));
        same.then_some(end)
    }
}

/// Calls `each` with every decoding of the first character of `text`, in UTF-8, and its end, after skipping `gaps`.
/// Returns `true` if the text ends before all of them are unambiguous.
pub(super) fn characters(text: &[u8], gaps: Option<Gaps>, mut each: impl FnMut(&[u8], usize)) -> bool {
    let mut is_cut = false;
    let mut starts = 1_u64;
    while starts != 0 {
        let start = usize::try_from(starts.trailing_zeros()).unwrap_or_default();
        starts &= starts - 1;
        let Some((byte, rest)) = text.get(start..).and_then(<[u8]>::split_first) else {
            is_cut = true;
            continue;
        };
        each(&[*byte], start + 1);
        let gaps = gaps.filter(|_| start < MAX_GAP);
        let mut pass = |length: usize| starts |= 1 << (start + length);
        if escape::may_begin(*byte) {
            is_cut |= escape::read(&text[start..], |meaning, length| {
                each(meaning.bytes(&mut [0; 4]), start + length);
                if gaps == Some(Gaps::Separators) && separates(meaning) {
                    pass(length);
                }
            });
        }
        if let Some(gaps) = gaps {
            is_cut |= gap(gaps, *byte, rest, pass);
        }
    }
    is_cut
}

/// Calls `pass` with the number of bytes that may be skipped, other than escapes, at `byte` and `rest`. Returns `true`
/// if the text ends before that is unambiguous.
fn gap(gaps: Gaps, byte: u8, rest: &[u8], mut pass: impl FnMut(usize)) -> bool {
    match (gaps, byte, rest) {
        (Gaps::Separators, b'<', rest) => {
            pass(1);
            let body = &rest[..rest.len().min(MAX_TAG)];
            match body.iter().position(|b| *b == b'>') {
                Some(end) => pass(end + 2),
                None => return rest.len() < MAX_TAG,
            }
        }
        (Gaps::Separators, byte, _) if !byte.is_ascii_alphanumeric() => pass(1),
        (_, 0, _) | (Gaps::Lines, b'\r' | b'\n', _) => pass(1),
        (_, b'=', [b'\n', ..]) => pass(2),
        (_, b'=', [b'\r', b'\n', ..]) => pass(3),
        (_, b'=', [] | [b'\r']) => return true,
        _ => {}
    }
    false
}

fn separates(meaning: Meaning) -> bool {
    match meaning {
        Meaning::Byte(byte) => !byte.is_ascii_alphanumeric(),
        Meaning::Char(c) => !c.is_alphanumeric(),
    }
}
