//! Matching of one form of a secret against text in any supported notation.

use std::collections::BTreeSet;

use super::escape::{self, Meaning};
use super::forms::{Form, Gaps};

/// Maximum gap between two characters of a form, in bytes; a gap that begins within it may end a little later. Longer
/// gaps separate unrelated text.
const MAX_GAP: usize = 32;

/// Maximum length of an HTML tag between two characters, such as `<wbr>`, in bytes, without its `<`.
const MAX_TAG: usize = 16;

/// Bytes of the end of a line of a dump and the address of the next: 2 and 16 characters, or 32 of a wide dump, a line
/// end, 8 digits and two more characters.
const MAX_LINE_CHANGE: usize = 60;

/// Digits of an address, at least: `od` has 7, a short one in hexadecimal 4.
const MIN_ADDRESS: usize = 4;

/// Bytes that are left of a line of a dump after a byte of it.
const MAX_LINE: usize = 128;

// The places that a gap leads to are the bits of one number.
const _: () = assert!(MAX_GAP + escape::MAX_ESCAPE < 64 && MAX_GAP + MAX_TAG < 64 && MAX_LINE_CHANGE < 64);

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
                match self.end(text, place, is_whole) {
                    Some(end) => longest = Match::Yes(end),
                    None => cut_at = cut_at.max(Some(index)),
                }
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
            } else if escape::may_begin(*byte)
                || matches!(byte, b'<' | b'\r' | b'\n' | 0)
                || (self.form.gaps == Gaps::Dump && index > 0)
            {
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

    /// Returns the end of a match whose last character ends at `place`: in a dump of several lines after the column of
    /// text of its last one. `None` where the text ends before that is certain.
    fn end(&self, text: &[u8], place: usize, is_whole: bool) -> Option<usize> {
        let rest = &text[place..];
        if self.form.gaps != Gaps::Dump || !text[..place].contains(&b'\n') {
            return Some(place);
        }
        let rest = &rest[..rest.len().min(MAX_LINE)];
        let line = match rest.iter().position(|b| matches!(b, b'\r' | b'\n')) {
            Some(end) => &rest[..end],
            None if rest.len() < MAX_LINE && !is_whole => return None,
            None => rest,
        };
        let has_column = line.windows(2).any(|two| matches!(two, b"  " | b" |" | b" >"));
        Some(if has_column { place + line.len() } else { place })
    }

    /// The place in the form after these bytes, if they stand at `index`.
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
                if matches!(gaps, Some(Gaps::Separators | Gaps::Dump)) && separates(meaning) {
                    pass(length);
                }
            });
        }
        if let Some(gaps) = gaps {
            if gaps == Gaps::Dump && start == 0 {
                match line_change(text) {
                    Ok(Some(length)) => pass(length),
                    Ok(None) => {}
                    Err(TooShort) => is_cut = true,
                }
            }
            is_cut |= gap(gaps, *byte, rest, pass);
        }
    }
    is_cut
}

/// Calls `pass` with the number of bytes that may be skipped, other than escapes, at `byte` and `rest`. Returns `true`
/// if the text ends before that is unambiguous.
fn gap(gaps: Gaps, byte: u8, rest: &[u8], mut pass: impl FnMut(usize)) -> bool {
    match (gaps, byte, rest) {
        (Gaps::Separators | Gaps::Dump, b'<', rest) => {
            pass(1);
            let body = &rest[..rest.len().min(MAX_TAG)];
            match body.iter().position(|b| *b == b'>') {
                Some(end) => pass(end + 2),
                None => return rest.len() < MAX_TAG,
            }
        }
        (Gaps::Separators | Gaps::Dump, byte, _) if !byte.is_ascii_alphanumeric() => pass(1),
        (_, 0, _) | (Gaps::Lines, b'\r' | b'\n', _) => pass(1),
        (_, b'=', [b'\n', ..]) => pass(2),
        (_, b'=', [b'\r', b'\n', ..]) => pass(3),
        (_, b'=', [] | [b'\r']) => return true,
        _ => {}
    }
    false
}

/// The text ends before something is certain.
struct TooShort;

/// Returns the length of the part of `text` that is the end of a line of a dump, with its column of text, and the
/// address at the beginning of the next.
fn line_change(text: &[u8]) -> Result<Option<usize>, TooShort> {
    match text {
        [b' ', b' ', ..] | [b'\r' | b'\n', ..] => {}
        [b' '] => return Err(TooShort),
        _ => return Ok(None),
    }
    let text = &text[..text.len().min(MAX_LINE_CHANGE)];
    let too_short = || match text.len() {
        MAX_LINE_CHANGE => Ok(None),
        _ => Err(TooShort),
    };
    let Some(end) = text.iter().position(|b| *b == b'\n') else {
        return too_short();
    };
    let next = &text[end + 1..];
    let skipped = |text: &[u8], is: fn(&u8) -> bool| text.iter().take_while(|b| is(b)).count();
    let before = skipped(next, |b| *b == b' ');
    let address = skipped(&next[before..], u8::is_ascii_hexdigit);
    let after = &next[before + address..];
    let (Some(first), MIN_ADDRESS..) = (after.first(), address) else {
        return if after.is_empty() { too_short() } else { Ok(None) };
    };
    let colon = usize::from(*first == b':');
    let blanks = skipped(&after[colon..], |b| matches!(b, b' ' | b'\t'));
    if after[colon + blanks..].is_empty() {
        return too_short();
    }
    Ok((blanks > 0).then_some(text.len() - after.len() + colon + blanks))
}

fn separates(meaning: Meaning) -> bool {
    match meaning {
        Meaning::Byte(byte) => !byte.is_ascii_alphanumeric(),
        Meaning::Char(c) => !c.is_alphanumeric(),
    }
}
