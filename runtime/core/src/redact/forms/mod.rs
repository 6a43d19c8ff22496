//! Forms of a secret that are searched for: plain, in common encodings, and reversed.

mod layers;

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Minimum length of an encoded form, in characters. Shorter ones occur in any picture by chance.
pub(super) const MIN_ENCODED: usize = 6;

/// Minimum length of an encoded form that is matched case-insensitively and with separators between its characters.
const MIN_ANY_CASE: usize = 12;

/// Minimum number of letters and digits of a form that is matched with separators between them, if one is a letter.
/// Shorter ones occur in prose, numbers and times by chance.
const MIN_SPREAD: usize = 8;

/// The same minimum for a form of digits only, because lists of numbers are common.
const MIN_SPREAD_DIGITS: usize = 16;

pub(super) const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BASE32_HEX: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// One form of a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    pub(super) bytes: Vec<u8>,
    /// Matches case-insensitively; `bytes` are in lower case.
    pub(super) any_case: bool,
    /// Treats `+` and `-` as equal, and `/` and `_`.
    pub(super) base64: bool,
    pub(super) gaps: Gaps,
}

/// Bytes that may occur between two characters of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gaps {
    /// Zero bytes, as in ASCII text encoded in UTF-16 and UTF-32, and soft line breaks of quoted-printable.
    Zeros,
    /// Line breaks as well, as in wrapped encodings.
    Lines,
    /// Anything but letters and digits. `bytes` are letters and digits.
    Separators,
    /// The same, and the end of a line of a hexadecimal dump with the beginning of the next one.
    Dump,
}

/// Returns all forms of a value.
pub(super) fn forms(value: &str) -> Vec<Form> {
    let backwards: String = value.chars().rev().collect();
    let mut forms = of(value);
    let mirrored: Vec<Form> = forms
        .iter()
        .filter(|form| form.bytes.is_ascii())
        .map(mirror)
        .collect();
    forms.extend(mirrored);
    forms.extend(of(&backwards));
    let spread: Vec<Form> = forms.iter().filter_map(spread).collect();
    let dumps = layers::dumps(value);
    let is_in_dump = |form: &Form| dumps.iter().any(|dump| dump.bytes == form.bytes);
    forms.extend(spread.into_iter().filter(|form| !is_in_dump(form)));
    forms.extend(layers::twice_encoded(value));
    // A match with separators includes the match without them.
    forms.extend(dumps);
    let with_gaps = forms
        .iter()
        .filter(|form| !matches!(form.gaps, Gaps::Zeros | Gaps::Lines));
    let forms_with_gaps: HashSet<Vec<u8>> = with_gaps.map(|form| form.bytes.clone()).collect();
    let covered = |form: &Form| {
        matches!(form.gaps, Gaps::Zeros | Gaps::Lines)
            && form.any_case
            && form.bytes.iter().all(u8::is_ascii_alphanumeric)
            && is_spread(&form.bytes)
            && forms_with_gaps.contains(&form.bytes)
    };
    forms.retain(|form| !covered(form) && !form.bytes.is_empty());
    forms.sort();
    forms.dedup();
    forms
}

fn of(value: &str) -> Vec<Form> {
    let bytes = value.as_bytes();
    let form = |bytes: &[u8], gaps| Form {
        bytes: bytes.to_ascii_lowercase(),
        any_case: true,
        base64: false,
        gaps,
    };
    let each = |write: fn(u8) -> String| bytes.iter().map(|b| write(*b)).collect::<String>();
    let mut forms = vec![
        form(bytes, Gaps::Zeros),
        form(each(|b| format!("{b:02x}")).as_bytes(), Gaps::Lines),
    ];
    for list in [each(|b| format!("0x{b:02x}")), each(|b| b.to_string())] {
        if is_spread(list.as_bytes()) {
            forms.push(form(list.as_bytes(), Gaps::Separators));
        }
    }
    let utf16 = |to: fn(u16) -> [u8; 2]| -> Vec<u8> { value.encode_utf16().flat_map(to).collect() };
    for write in [
        |unit: u16| format!("{unit:04x}"),
        |unit: u16| format!("{:04x}", unit.swap_bytes()),
    ] {
        let digits: String = value.encode_utf16().map(write).collect();
        forms.push(form(digits.as_bytes(), Gaps::Lines));
    }
    for bytes in [bytes, &utf16(u16::to_le_bytes), &utf16(u16::to_be_bytes)] {
        for before in 0..3 {
            forms.push(encoded(base64_core(bytes, before), true));
        }
    }
    for alphabet in [BASE32, BASE32_HEX] {
        for before in 0..5 {
            let text = base32_core(bytes, before, alphabet);
            // Usually in upper case, which a short form has to match.
            forms.push(encoded(text.to_ascii_uppercase(), false));
            forms.push(encoded(text, false));
        }
    }
    forms.retain(|form| form.gaps != Gaps::Lines || form.bytes.len() >= MIN_ENCODED);
    if !value.is_ascii() {
        // Without the zero bytes, which are skipped in the text.
        let wide = |to: fn(u16) -> [u8; 2]| value.encode_utf16().flat_map(to).filter(|b| *b != 0).collect();
        let wide: [Vec<u8>; 2] = [wide(u16::to_le_bytes), wide(u16::to_be_bytes)];
        let long_enough = wide.into_iter().filter(|bytes| bytes.len() >= MIN_ENCODED);
        forms.extend(long_enough.map(|bytes| form(&bytes, Gaps::Zeros)));
    }
    forms
}

pub(super) fn encoded(text: Vec<u8>, base64: bool) -> Form {
    let any_case = text.len() >= MIN_ANY_CASE;
    Form {
        bytes: if any_case { text.to_ascii_lowercase() } else { text },
        any_case,
        base64,
        gaps: Gaps::Lines,
    }
}

/// Returns the reversed form.
fn mirror(form: &Form) -> Form {
    let mut mirrored = form.clone();
    mirrored.bytes.reverse();
    mirrored
}

/// Returns the letters and digits of a form, to be matched with any separators.
fn spread(form: &Form) -> Option<Form> {
    if matches!(form.gaps, Gaps::Separators | Gaps::Dump) || !form.bytes.is_ascii() {
        return None;
    }
    let mut bytes = form.bytes.to_ascii_lowercase();
    bytes.retain(u8::is_ascii_alphanumeric);
    let is_common = form.gaps == Gaps::Lines && bytes.len() < MIN_ANY_CASE;
    (is_spread(&bytes) && !is_common).then_some(Form {
        bytes,
        any_case: true,
        base64: false,
        gaps: Gaps::Separators,
    })
}

pub(super) fn is_spread(bytes: &[u8]) -> bool {
    let least = match bytes.iter().any(u8::is_ascii_alphabetic) {
        true => MIN_SPREAD,
        false => MIN_SPREAD_DIGITS,
    };
    bytes.len() >= least
}

/// Returns the characters common to every base64 text in which `value` begins `before` bytes (0 to 2) after the start
/// of a group of three, whatever surrounds it.
pub(super) fn base64_core(value: &[u8], before: usize) -> Vec<u8> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    let text = STANDARD_NO_PAD.encode(&bytes).into_bytes();
    let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    text.get(from..to).unwrap_or_default().to_vec()
}

/// The same for base32 (RFC 4648), whose groups have five bytes.
pub(super) fn base32_core(value: &[u8], before: usize, alphabet: &[u8; 32]) -> Vec<u8> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    let digit = |at: usize| {
        (at * 5..at * 5 + 5).fold(0, |digit, bit| {
            let byte = bytes.get(bit / 8).copied().unwrap_or(0);
            digit << 1 | usize::from(byte >> (7 - bit % 8) & 1)
        })
    };
    let (from, to) = ((before * 8).div_ceil(5), bytes.len() * 8 / 5);
    (from..to).map(|at| alphabet[digit(at)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_matches_the_rfc() {
        for (text, encoded) in [("fooba", "mzxw6ytb"), ("foobarfoob", "mzxw6ytbojtg633c")] {
            assert_eq!(base32_core(text.as_bytes(), 0, BASE32), encoded.as_bytes());
        }
        assert_eq!(base32_core(b"fooba", 0, BASE32_HEX), b"cpnmuoj1");
    }

    #[test]
    fn separators_are_skipped_from_a_minimum_length() {
        let is_spread = |value: &str| {
            let plain = |f: &Form| f.gaps == Gaps::Dump && f.bytes == value.replace('-', "").as_bytes();
            forms(value).iter().any(plain)
        };
        assert!(is_spread("abcd-efgh"));
        assert!(!is_spread("abcd-efg"));
        assert!(is_spread("0123-4567-0123-4567"));
        assert!(!is_spread("0123-4567-0123-456"));
    }

    #[test]
    fn short_value_has_no_short_forms() {
        for form in forms("ab-cde") {
            assert!(form.bytes.len() >= MIN_ENCODED, "{form:?}");
            assert!(form.any_case || form.bytes.len() < MIN_ANY_CASE, "{form:?}");
        }
    }
}
