//! The forms of a value in dumps, and those that were encoded twice.

use super::{BASE32, Form, Gaps, MIN_ENCODED, base32_core, base64_core, encoded, is_spread};

/// The value in the hexadecimal dumps of common tools: `xxd`, `hexdump` and `od` with one or two bytes in a group, in
/// hexadecimal and octal, and as characters. Between two bytes there may be the end of a line, with its column of text,
/// and the address of the next. Of groups of two, a byte at either end can stay.
pub(super) fn dumps(value: &str) -> Vec<Form> {
    let bytes = value.as_bytes();
    let each = |write: fn(u8) -> String| bytes.iter().map(|b| write(*b)).collect::<String>();
    let groups = |from: usize, write: fn(u8, u8) -> String| {
        let groups = bytes.get(from..).unwrap_or_default().chunks_exact(2);
        groups.map(|group| write(group[0], group[1])).collect::<String>()
    };
    let mut texts = vec![
        value.to_owned(),
        each(|b| format!("{b:02x}")),
        each(|b| format!("{b:03o}")),
    ];
    for from in 0..2 {
        // Words, as machines have them that store the low byte first.
        texts.push(groups(from, |low, high| format!("{high:02x}{low:02x}")));
        texts.push(groups(from, |low, high| {
            format!("{:06o}", u16::from_le_bytes([low, high]))
        }));
    }
    let forms = texts.into_iter().filter(|text| text.is_ascii()).map(|text| {
        let mut bytes = text.to_ascii_lowercase().into_bytes();
        bytes.retain(u8::is_ascii_alphanumeric);
        Form {
            bytes,
            any_case: true,
            base64: false,
            gaps: Gaps::Dump,
        }
    });
    forms.filter(|form| is_spread(&form.bytes)).collect()
}

/// The value in one encoding on top of another: hexadecimal, base64 and base32 of each other and of themselves, and of
/// the value with escapes of URLs and JSON. In the inner encoding no line may end within the value.
pub(super) fn twice_encoded(value: &str) -> Vec<Form> {
    let mut forms = Vec::new();
    for inner in once_encoded(value) {
        let hex: String = inner.iter().map(|b| format!("{b:02x}")).collect();
        forms.push(encoded(hex.into_bytes(), false));
        for before in 0..3 {
            forms.push(encoded(base64_core(&inner, before), true));
        }
        for before in 0..5 {
            forms.push(encoded(base32_core(&inner, before, BASE32), false));
        }
    }
    forms.retain(|form| form.bytes.len() >= 2 * MIN_ENCODED);
    forms
}

/// The value in one encoding, as it is written: here case matters.
fn once_encoded(value: &str) -> Vec<Vec<u8>> {
    let bytes = value.as_bytes();
    let each = |write: fn(u8) -> String| bytes.iter().flat_map(|b| write(*b).into_bytes()).collect();
    let mut texts: Vec<Vec<u8>> = vec![each(|b| format!("{b:02x}")), each(|b| format!("{b:02X}"))];
    for before in 0..3 {
        let standard = base64_core(bytes, before);
        let in_urls = |b: &u8| match b {
            b'+' => b'-',
            b'/' => b'_',
            b => *b,
        };
        texts.push(standard.iter().map(in_urls).collect());
        texts.push(standard);
    }
    for before in 0..5 {
        texts.push(base32_core(bytes, before, BASE32).to_ascii_uppercase());
    }
    // The value itself in any of the encodings is another form.
    let escaped = [
        // As RFC 3986 and JavaScript have it, and with all that is neither letter nor digit.
        each(|b| percent(b, b"-._~")),
        each(|b| percent(b, b"-_.!~*'()")),
        each(|b| percent(b, b"")),
        each(|b| format!("%{b:02x}")),
        each(|b| format!("%{b:02X}")),
        serde_json::to_string(value).map_or_else(|_| Vec::new(), |text| text.trim_matches('"').into()),
    ];
    texts.extend(escaped.into_iter().filter(|text| text != bytes));
    texts.retain(|text| text.len() >= MIN_ENCODED);
    texts.sort();
    texts.dedup();
    texts
}

fn percent(byte: u8, kept: &[u8]) -> String {
    if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
