//! One form of a secret, matched with a text in any of the ways that it can be written there.

use std::collections::BTreeSet;

use super::escape::{self, Meaning};
use super::forms::{Form, Gaps};

/// Bytes that may stand between two characters of a form; a gap begins before this many and may end a little later. More
/// is not the same word any more.
const MAX_GAP: usize = 32;

/// Bytes of a tag of HTML between two characters, such as `<wbr>`, without its `<`.
const MAX_TAG: usize = 16;

// The places that a gap leads to are the bits of one number.
const _: () = assert!(MAX_GAP + escape::MAX_ESCAPE < 64 && MAX_GAP + MAX_TAG < 64);

/// A form and what is written in the place of a find.
#[derive(Debug)]
pub(super) struct Pattern {
    form: Form,
    /// `[redacted:NAME]`.
    pub(super) mark: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// So many bytes.
    Yes(usize),
    No,
    /// The text ends too early to say. So many bytes of the form are there for certain.
    Perhaps(usize),
}

impl Pattern {
    pub(super) fn new(form: Form, mark: String) -> Self {
        Self { form, mark }
    }

    /// The first byte, and the second if there is one.
    pub(super) fn beginning(&self) -> (u8, Option<u8>) {
        (self.form.bytes[0], self.form.bytes.get(1).copied())
    }

    /// Whether a find can have `byte` where the form has `wanted`.
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

    /// Whether `text` begins with the form, each of its characters written in one of the ways there are. A text can have
    /// several readings; the longest counts.
    pub(super) fn matches(&self, text: &[u8], is_whole: bool) -> Match {
        let wanted = &self.form.bytes;
        // Pairs of a place in the form and one in the text that belong together, in order. Most often there is one.
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

    /// Goes on from a pair of places as long as the text has a single reading; `None` if that is not the form.
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
        // The gap is counted from its beginning.
        Some((index, place - gap))
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

/// Calls `each` with every reading of the first character of `text`, in UTF-8, and where it ends, after what `gaps` pass
/// over. Gives whether the text ends before all of them are certain.
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

/// Calls `pass` with how much may be passed over, beside escapes, where `byte` and `rest` stand. Gives whether the text
/// ends before that is certain.
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
