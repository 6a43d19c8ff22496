//! Decoding of escaped characters in the notations of common web formats.
//!
//! | family | examples of `s` |
//! |---|---|
//! | percent-encoding (RFC 3986), including nested encoding and the legacy JavaScript form | `%73`, `%2573`, `%u0073` |
//! | JSON (RFC 8259), C, Rust and JavaScript strings, including nested escapes | `\u0073`, `\\u0073`, `\x73`, `\163`, `\u{73}`, `\"` |
//! | CSS (CSS Syntax 3, section 4.3.7) | `\73 `, `\000073` |
//! | HTML character references, including nested ones | `&#115;`, `&#x73;`, `&amp;#115;`, `&quot;` |
//! | quoted-printable (RFC 2045) | `=73` |
//! | form encoding | `+` for a space |

/// Maximum length of an escape, in bytes.
pub(super) const MAX_ESCAPE: usize = 31;

/// Maximum number of times that one escape is itself escaped.
const MAX_NESTING: usize = 4;

/// HTML names of ASCII punctuation and of separators (<https://html.spec.whatwg.org/multipage/named-characters.html>).
const NAMES: &[(&str, char)] = &[
    ("amp", '&'),
    ("apos", '\''),
    ("ast", '*'),
    ("bsol", '\\'),
    ("colon", ':'),
    ("comma", ','),
    ("commat", '@'),
    ("dollar", '$'),
    ("equals", '='),
    ("excl", '!'),
    ("grave", '`'),
    ("gt", '>'),
    ("Hat", '^'),
    ("hyphen", '-'),
    ("lbrack", '['),
    ("lcub", '{'),
    ("lowbar", '_'),
    ("lpar", '('),
    ("lsqb", '['),
    ("lt", '<'),
    ("nbsp", '\u{a0}'),
    ("NewLine", '\n'),
    ("num", '#'),
    ("percnt", '%'),
    ("period", '.'),
    ("plus", '+'),
    ("quest", '?'),
    ("quot", '"'),
    ("rbrack", ']'),
    ("rcub", '}'),
    ("rpar", ')'),
    ("rsqb", ']'),
    ("semi", ';'),
    ("shy", '\u{ad}'),
    ("sol", '/'),
    ("Tab", '\t'),
    ("verbar", '|'),
    ("vert", '|'),
    ("ZeroWidthSpace", '\u{200b}'),
];

/// Decoded value of an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A byte in the encoding of the text.
    Byte(u8),
    /// A character.
    Char(char),
}

impl Meaning {
    /// Returns the UTF-8 encoding.
    pub(super) fn bytes(self, buffer: &mut [u8; 4]) -> &[u8] {
        match self {
            Self::Byte(byte) => {
                buffer[0] = byte;
                &buffer[..1]
            }
            Self::Char(c) => c.encode_utf8(buffer).as_bytes(),
        }
    }
}

/// Returns `true` if an escape can begin with this byte.
pub(super) fn may_begin(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'=' | b'+')
}

/// Calls `each` with every decoding of the escape at the start of `text` and its length. Returns `true` if the text
/// ends before the decoding is unambiguous.
pub(super) fn read(text: &[u8], mut each: impl FnMut(Meaning, usize)) -> bool {
    match text {
        [b'+', ..] => {
            each(Meaning::Byte(b' '), 1);
            return false;
        }
        [b'=', rest @ ..] => {
            if let Some(byte) = hex(rest, 2).and_then(|code| u8::try_from(code).ok()) {
                each(Meaning::Byte(byte), 3);
            }
        }
        [b'%', rest @ ..] => percent(rest, &mut each),
        [b'&', rest @ ..] => reference(rest, &mut each),
        [b'\\', ..] => backslash(text, &mut each),
        _ => return false,
    }
    let is_body = |b: &u8| b.is_ascii_alphanumeric() || b"#%\\{;".contains(b);
    text.len() < MAX_ESCAPE && text[1..].iter().all(is_body)
}

fn percent(rest: &[u8], each: &mut impl FnMut(Meaning, usize)) {
    if let [b'u', digits @ ..] = rest
        && let Some(c) = hex(digits, 4).and_then(char::from_u32)
    {
        each(Meaning::Char(c), 6);
    }
    let mut skipped = 0;
    for _ in 0..=MAX_NESTING {
        let Some(byte) = hex(&rest[skipped..], 2).and_then(|code| u8::try_from(code).ok()) else {
            return;
        };
        each(Meaning::Byte(byte), 1 + skipped + 2);
        if byte != b'%' {
            return;
        }
        skipped += 2;
    }
}

fn reference(rest: &[u8], each: &mut impl FnMut(Meaning, usize)) {
    let mut skipped = 0;
    for _ in 0..=MAX_NESTING {
        let body = &rest[skipped..];
        if let [b'#', number @ ..] = body {
            let (radix, digits) = match number {
                [b'x' | b'X', digits @ ..] => (16, digits),
                digits => (10, digits),
            };
            let before = 1 + skipped + (body.len() - digits.len());
            let most = MAX_ESCAPE.saturating_sub(before + 1);
            let digits = &digits[..digits.len().min(most + 1)];
            // The `;` may be missing, and the following text may look like another digit. Any number of zeros may lead.
            let mut code = 0_u32;
            for (at, digit) in digits.iter().take(most).enumerate() {
                let Some(digit) = char::from(*digit).to_digit(radix) else {
                    break;
                };
                code = code.saturating_mul(radix).saturating_add(digit);
                match char::from_u32(code) {
                    Some('\0') => {}
                    Some(c) => {
                        let end = usize::from(digits.get(at + 1) == Some(&b';'));
                        each(Meaning::Char(c), before + at + 1 + end);
                    }
                    None if code > u32::from(char::MAX) => break,
                    None => {}
                }
            }
            return;
        }
        for (name, c) in NAMES {
            if body.starts_with(name.as_bytes()) && body.get(name.len()) == Some(&b';') {
                each(Meaning::Char(*c), 1 + skipped + name.len() + 1);
            }
        }
        if !body.starts_with(b"amp;") {
            return;
        }
        skipped += 4;
    }
}

/// Decodes a `text` that begins with a backslash. Several backslashes are one that was escaped again.
fn backslash(text: &[u8], each: &mut impl FnMut(Meaning, usize)) {
    let run = text
        .iter()
        .take(1 << MAX_NESTING)
        .take_while(|b| **b == b'\\')
        .count();
    if run >= 2 {
        each(Meaning::Byte(b'\\'), 2);
    }
    let rest = &text[run..];
    let mut code = |c: Option<u32>, length: usize| {
        if let Some(c) = c.and_then(char::from_u32) {
            each(Meaning::Char(c), run + length);
        }
    };
    match rest {
        [b'u', b'{', digits @ ..] => {
            let digits = &digits[..digits.len().min(MAX_ESCAPE.saturating_sub(run + 2))];
            if let Some(length) = digits.iter().position(|b| *b == b'}') {
                let zeros = digits[..length].iter().take_while(|b| **b == b'0').count();
                if length - zeros <= 6 {
                    code(hex(&digits[zeros..], length - zeros), 3 + length);
                }
            }
        }
        [b'u', digits @ ..] => match hex(digits, 4) {
            Some(high @ 0xd800..0xdc00) => {
                let low = digits[4..].iter().take(run).take_while(|b| **b == b'\\').count();
                if let [b'u', digits @ ..] = &digits[4 + low..]
                    && let Some(bottom @ 0xdc00..0xe000) = hex(digits, 4)
                {
                    let c = 0x1_0000 + ((high - 0xd800) << 10) + (bottom - 0xdc00);
                    code(Some(c), 5 + low + 5);
                }
            }
            c => code(c, 5),
        },
        [b'U', digits @ ..] => code(hex(digits, 8), 9),
        [b'x', digits @ ..] => code(hex(digits, 2), 3),
        [b'b', ..] => code(Some(8), 1),
        [b't', ..] => code(Some(9), 1),
        [b'n', ..] => code(Some(10), 1),
        [b'f', ..] => code(Some(12), 1),
        [b'r', ..] => code(Some(13), 1),
        [b'0'..=b'7', ..] => {
            let digits = rest;
            let length = digits
                .iter()
                .take(3)
                .take_while(|b| matches!(b, b'0'..=b'7'))
                .count();
            for length in 1..=length {
                let value = digits[..length]
                    .iter()
                    .fold(0, |v, d| v * 8 + u32::from(d - b'0'));
                code(Some(value), length);
            }
        }
        _ => {}
    }
    // CSS: one to six digits, and a blank that ends them.
    if rest.first().is_some_and(u8::is_ascii_hexdigit) {
        let digits = rest.iter().take(6).take_while(|b| b.is_ascii_hexdigit()).count();
        for length in 1..=digits {
            code(hex(rest, length), length);
            if rest.get(length).is_some_and(u8::is_ascii_whitespace) {
                code(hex(rest, length), length + 1);
            }
        }
    }
    match rest {
        [other, ..] if other.is_ascii_punctuation() => code(Some(u32::from(*other)), 1),
        _ => {}
    }
}

/// Parses the first `length` hexadecimal digits.
fn hex(text: &[u8], length: usize) -> Option<u32> {
    let digits = text.get(..length).filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0_u32, |value, digit| {
        Some(value << 4 | char::from(*digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(text: &str) -> Vec<(Meaning, usize)> {
        let mut found = Vec::new();
        read(text.as_bytes(), |meaning, length| found.push((meaning, length)));
        found
    }

    #[test]
    fn every_notation_is_decoded() {
        for text in [
            "%73",
            "%2573",
            "%252573",
            "%u0073",
            "\\u0073",
            "\\\\u0073",
            "\\x73",
            "\\163",
            "\\u{73}",
            "\\U00000073",
            "&#115;",
            "&#x73;",
            "&#X73;",
            "&#0000115;",
            "&#0000000000000000000000000115;",
            "&#X000000000000000000000000073",
            "&amp;#000000000000000000000115;",
            "\\u{000000000000000000000000073}",
            "&amp;#115;",
            "&amp;amp;#x73;",
            "=73",
        ] {
            let whole = readings(text)
                .into_iter()
                .filter(|(_, length)| *length == text.len());
            let meanings: Vec<Meaning> = whole.map(|(meaning, _)| meaning).collect();
            assert!(
                meanings.contains(&Meaning::Char('s')) || meanings.contains(&Meaning::Byte(b's')),
                "{text}: {meanings:?}"
            );
        }
        for (text, c) in [
            ("\\ud83d\\udd11", '🔑'),
            ("\\\\ud83d\\\\udd11", '🔑'),
            ("&#128273;", '🔑'),
            ("&quot;", '"'),
            ("&amp;lt;", '<'),
            ("\\/", '/'),
            ("\\\"", '"'),
            ("\\\\\\\"", '"'),
            ("\\n", '\n'),
        ] {
            assert!(readings(text).contains(&(Meaning::Char(c), text.len())), "{text}");
        }
        assert_eq!(readings("+"), [(Meaning::Byte(b' '), 1)]);
    }

    #[test]
    fn text_without_escapes_has_no_decoding() {
        for text in [
            "%",
            "%7",
            "%zz",
            "\\",
            "\\u00",
            "\\uzzzz",
            "\\ud83d",
            "\\q",
            "&",
            "&x;",
            "&lt",
            "&gtx;",
            "&amp#115;",
            "&#;",
            "=z",
            "s",
        ] {
            assert_eq!(readings(text), [], "{text}");
        }
    }

    #[test]
    fn truncated_escape_is_ambiguous() {
        for (text, is_cut) in [
            ("%", true),
            ("%7", true),
            ("%73", true),
            ("%73 ", false),
            ("\\u00", true),
            ("&am", true),
            ("& ", false),
            ("=7", true),
            ("+", false),
            ("s", false),
            ("&#0000000000000000000000000011", true),
            ("&aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true),
            ("&aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(read(text.as_bytes(), |_, _| ()), is_cut, "{text}");
        }
    }
}
