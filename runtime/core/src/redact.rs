//! Taking secrets out of everything that leaves a cell.
//!
//! A [`Redactor`] knows the values of secrets and finds them in text and bytes: as they are; in hexadecimal, lower or
//! upper case; in base64 (RFC 4648), standard or URL-safe, at each of the three places in a group where they can begin,
//! so also inside of `user:password`; and each of these with any of its characters written as `%41` (RFC 3986), `+` for
//! a space, `\u0041`, `\n`, `\"`, `\/` (RFC 8259). Line ends inside base64 and hexadecimal are passed over. Each find
//! becomes `[redacted:NAME]`.
//!
//! It does not undo compression, encryption or two encodings on top of each other, and up to four bits at either end of a
//! base64 form can stay. What a guest never holds it cannot disguise: the host adds secrets after the guest has let go of
//! a request, and redacts the answer.
//!
//! A sandbox applies it to all that leaves a cell: answers ([`Redactor::output`]), errors, log lines, progress, receipts.
//! Whoever shows or keeps more than that (the events of a turn on a terminal, in a journal or a trace) applies
//! [`Redactor::json`] to each event as it is written, or [`Redactor::string`] to each line.

mod answers;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;

/// Shortest base64 form that is looked for, in characters. A shorter one stands in any picture by chance.
const MIN_BASE64: usize = 6;

/// Finds secrets and takes them out. Clones share the patterns; the default finds nothing.
#[derive(Clone, Default)]
pub struct Redactor(Arc<Patterns>);

#[derive(Default)]
struct Patterns {
    list: Vec<Pattern>,
    /// Bytes that can begin a find.
    first: Vec<bool>,
}

struct Pattern {
    bytes: Vec<u8>,
    alphabet: Alphabet,
    /// `[redacted:NAME]`.
    mark: String,
}

/// When two characters are the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    Exact,
    /// Upper and lower case.
    Hex,
    /// `+` and `-`, `/` and `_`.
    Base64,
}

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
}

enum Match {
    /// So many bytes.
    Yes(usize),
    No,
    /// The text ends too early to say.
    Perhaps,
}

impl Redactor {
    /// Finds these values, given as names and values. Empty values are passed over.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut list = Vec::new();
        for (name, value) in secrets {
            let mark = format!("[redacted:{name}]");
            let mut add = |bytes: Vec<u8>, alphabet| {
                if !bytes.is_empty() {
                    let mark = mark.clone();
                    list.push(Pattern {
                        bytes,
                        alphabet,
                        mark,
                    });
                }
            };
            add(value.as_bytes().to_vec(), Alphabet::Exact);
            if !value.is_ascii() {
                add(ascii_json(value).into_bytes(), Alphabet::Hex);
            }
            let hex: String = value.bytes().map(|b| format!("{b:02x}")).collect();
            add(hex.into_bytes(), Alphabet::Hex);
            for before in 0..3 {
                let core = base64_core(value.as_bytes(), before);
                if core.len() >= MIN_BASE64 {
                    add(core, Alphabet::Base64);
                }
            }
        }
        let begins = |byte| list.iter().any(|pattern: &Pattern| pattern.may_begin(byte));
        let first = (0..=u8::MAX).map(begins).collect();
        Self(Arc::new(Patterns { list, first }))
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.0.list.is_empty()
    }

    /// A text without secrets; the same text where there are none.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A find begins and ends between characters, so this changes nothing.
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
        while let Some(offset) = text[at..].iter().position(|b| self.0.first[usize::from(*b)]) {
            at += offset;
            let mut best: Option<(usize, &Pattern)> = None;
            for pattern in self.0.list.iter().filter(|p| p.may_begin(text[at])) {
                match pattern.matches(&text[at..], is_whole) {
                    Match::Yes(length) if best.is_none_or(|(longest, _)| length > longest) => {
                        best = Some((length, pattern));
                    }
                    Match::Perhaps => {
                        out.extend_from_slice(&text[copied..at]);
                        return (at, found_any);
                    }
                    _ => {}
                }
            }
            match best {
                None => at += 1,
                Some((length, pattern)) => {
                    out.extend_from_slice(&text[copied..at]);
                    match replacement {
                        Replacement::Name => out.extend_from_slice(pattern.mark.as_bytes()),
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
        let (end, _) = self.redactor.scan(&text, false, self.replacement, &mut out);
        self.held = text[end..].to_vec();
        Cow::Owned(out)
    }

    /// What is left when nothing more comes. The stream can be used again afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.redactor.replace(&held, self.replacement).into_owned()
    }
}

impl Pattern {
    /// Whether a find can begin with this byte: the first of the pattern, or the beginning of an escape.
    fn may_begin(&self, byte: u8) -> bool {
        let first = self.bytes[0];
        self.alphabet.same(first, byte) || matches!(byte, b'%' | b'\\') || (byte == b'+' && first == b' ')
    }

    /// Whether `text` begins with the pattern, each of its characters written in one of the ways there are. A text can
    /// have several readings; the longest counts.
    fn matches(&self, text: &[u8], is_whole: bool) -> Match {
        // Where the text can be at after some characters of the pattern: most often at one place.
        let mut places = vec![0];
        for (index, wanted) in self.bytes.iter().enumerate() {
            let mut next = Vec::new();
            for place in places {
                let gap = if index > 0 { self.gap(&text[place..]) } else { 0 };
                let rest = &text[place + gap..];
                let mut go_on = |length: usize| {
                    if !next.contains(&(place + gap + length)) {
                        next.push(place + gap + length);
                    }
                };
                match rest.first() {
                    None if is_whole => continue,
                    None => return Match::Perhaps,
                    Some(byte)
                        if self.alphabet.same(*wanted, *byte) || (*byte == b'+' && *wanted == b' ') =>
                    {
                        go_on(1);
                    }
                    Some(_) => {}
                }
                match escaped(rest) {
                    Escape::Byte(byte, length) if self.alphabet.same(*wanted, byte) => go_on(length),
                    Escape::Cut if !is_whole => return Match::Perhaps,
                    _ => {}
                }
            }
            if next.is_empty() {
                return Match::No;
            }
            places = next;
        }
        places.into_iter().max().map_or(Match::No, Match::Yes)
    }

    /// Bytes of a line end that stands inside of an encoding.
    fn gap(&self, text: &[u8]) -> usize {
        match (self.alphabet, text) {
            (Alphabet::Exact, _) => 0,
            (_, [b'\r', b'\n', ..]) => 2,
            (_, [b'\r' | b'\n', ..]) => 1,
            _ => 0,
        }
    }
}

impl Alphabet {
    fn same(self, a: u8, b: u8) -> bool {
        let standard = |byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        };
        match self {
            Self::Exact => a == b,
            Self::Hex => a.eq_ignore_ascii_case(&b),
            Self::Base64 => standard(a) == standard(b),
        }
    }
}

/// One escaped character at the beginning of a text.
enum Escape {
    /// The byte that it stands for, and its length.
    Byte(u8, usize),
    No,
    /// It may be one, but the text ends.
    Cut,
}

fn escaped(text: &[u8]) -> Escape {
    let digits = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok()?;
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let byte = |found: Option<u8>, length| found.map_or(Escape::No, |b| Escape::Byte(b, length));
    match text {
        [b'%', a, b, ..] => byte(digits(&[*a, *b]), 3),
        [b'%', a] if a.is_ascii_hexdigit() => Escape::Cut,
        [b'%'] | [b'\\'] => Escape::Cut,
        [b'\\', b'u', b'0', b'0', a, b, ..] => byte(digits(&[*a, *b]).filter(u8::is_ascii), 6),
        [b'\\', b'u', rest @ ..] if rest.len() < 4 && is_start_of_code(rest) => Escape::Cut,
        [b'\\', short, ..] => byte(unescape_short(*short), 2),
        _ => Escape::No,
    }
}

/// Whether these can be the first digits of the number of an ASCII character.
fn is_start_of_code(digits: &[u8]) -> bool {
    digits.iter().take(2).all(|b| *b == b'0') && digits.iter().all(u8::is_ascii_hexdigit)
}

fn unescape_short(letter: u8) -> Option<u8> {
    match letter {
        b'"' | b'\\' | b'/' => Some(letter),
        b'b' => Some(8),
        b't' => Some(b'\t'),
        b'n' => Some(b'\n'),
        b'f' => Some(12),
        b'r' => Some(b'\r'),
        _ => None,
    }
}

/// The characters that stand in every base64 text in which `value` begins `before` bytes (0 to 2) after the beginning of a
/// group of three, whatever stands around it.
fn base64_core(value: &[u8], before: usize) -> Vec<u8> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(value);
    let text = STANDARD_NO_PAD.encode(&bytes).into_bytes();
    let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    text.get(from..to).unwrap_or_default().to_vec()
}

/// A text with every character beyond ASCII as `\uXXXX`, as many JSON writers have it.
fn ascii_json(value: &str) -> String {
    let mut units = [0; 2];
    value
        .chars()
        .map(|c| match c.is_ascii() {
            true => c.to_string(),
            false => {
                let units = c.encode_utf16(&mut units);
                units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
        })
        .collect()
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = self.0.list.len();
        f.debug_struct("Redactor").field("patterns", &patterns).finish()
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const TOKEN: &str = "s3cr?t/T+k n\"x%41>>>";

    fn redactor() -> Redactor {
        Redactor::new([("token", TOKEN), ("pin", "4711-4711")])
    }

    fn percent(text: &str, keep: impl Fn(u8) -> bool) -> String {
        text.bytes()
            .map(|b| match keep(b) {
                true => char::from(b).to_string(),
                false => format!("%{b:02X}"),
            })
            .collect()
    }

    #[test]
    fn a_secret_is_found_however_it_is_written() {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        let json = serde_json::to_string(TOKEN).unwrap();
        let hex: String = TOKEN.bytes().map(|b| format!("{b:02x}")).collect();
        let base64 = STANDARD.encode(TOKEN);
        let forms = [
            ("plain", TOKEN.to_owned()),
            ("percent", percent(TOKEN, unreserved)),
            (
                "percent, lower case",
                TOKEN.bytes().map(|b| format!("%{b:02x}")).collect(),
            ),
            ("percent, everything", percent(TOKEN, |_| false)),
            (
                "form",
                percent(TOKEN, |b| unreserved(b) || b == b' ').replace(' ', "+"),
            ),
            ("json", json.trim_matches('"').to_owned()),
            ("json, slash", json.trim_matches('"').replace('/', "\\/")),
            (
                "json, codes",
                TOKEN.bytes().map(|b| format!("\\u{b:04x}")).collect(),
            ),
            ("hex", hex.clone()),
            ("hex, upper case", hex.to_uppercase()),
            ("hex, lines", hex.replacen("3", "3\n", 1)),
            ("base64", base64.clone()),
            ("base64, url", URL_SAFE_NO_PAD.encode(TOKEN)),
            ("base64, percent", percent(&base64, unreserved)),
            ("base64, lines", format!("{}\r\n{}", &base64[..8], &base64[8..])),
        ];
        for (name, form) in forms {
            let text = format!("before {form} after");
            let redacted = redactor().text(&text).into_owned();
            assert!(
                redacted.starts_with("before [redacted:token]"),
                "{name}: {text} -> {redacted}"
            );
            assert!(redacted.ends_with(" after"), "{name}: {redacted}");
        }
    }

    #[test]
    fn a_secret_is_found_inside_of_base64_wherever_it_begins() {
        for before in ["", "u", "us", "user:", "user::"] {
            for after in ["", ":", "::", ":::"] {
                let whole = format!("{before}{TOKEN}{after}");
                for encoded in [STANDARD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
                    let redacted = redactor().text(&encoded).into_owned();
                    assert!(redacted.contains("[redacted:token]"), "{whole}: {redacted}");
                }
            }
        }
    }

    #[test]
    fn what_holds_no_secret_stays_as_it_is() {
        for text in [
            "",
            "nothing here",
            "s3cr?t",
            "100%",
            "a\\",
            "\\u00",
            "4711",
            "%",
            "ünïcode",
        ] {
            assert!(matches!(redactor().text(text), Cow::Borrowed(_)), "{text}");
        }
        let bytes = [0xff, 0, b'%', 0xfe];
        assert!(matches!(redactor().bytes(&bytes), Cow::Borrowed(_)));
        assert!(matches!(Redactor::default().text(TOKEN), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_beyond_ascii_is_found() {
        let redactor = Redactor::new([("p", "pässwörd🔑")]);
        for form in [
            "pässwörd🔑",
            "p\\u00e4ssw\\u00f6rd\\ud83d\\udd11",
            "p%C3%A4ssw%C3%B6rd%F0%9F%94%91",
        ] {
            assert_eq!(redactor.text(&format!("ä{form}ä")), "ä[redacted:p]ä", "{form}");
        }
    }

    #[test]
    fn the_longest_find_counts_and_finds_may_follow_each_other() {
        let redactor = Redactor::new([("short", "abcdef"), ("long", "abcdefghi")]);
        assert_eq!(
            redactor.text("abcdefghiabcdefabcdef"),
            "[redacted:long][redacted:short][redacted:short]"
        );
    }

    #[test]
    fn the_length_stays_where_it_must() {
        let text = format!("a{TOKEN}b");
        let redacted = redactor()
            .replace(text.as_bytes(), Replacement::SameLength)
            .into_owned();
        assert_eq!(redacted, format!("a{}b", "*".repeat(TOKEN.len())).into_bytes());
    }

    #[test]
    fn json_loses_secrets_in_texts_keys_and_numbers() {
        let redactor = Redactor::new([("t", "12345678")]);
        let mut value =
            json!({"a": ["x12345678"], "12345678": 12345678, "n": 1, "deep": {"b": [{"c": "MTIzNDU2Nzg="}]}});
        redactor.json(&mut value);
        let text = value.to_string();
        assert!(
            !text.contains("12345678") && !text.contains("MTIzNDU2Nz"),
            "{text}"
        );
        assert_eq!(value["n"], 1);
        assert_eq!(value["a"][0], "x[redacted:t]");
        assert_eq!(value["[redacted:t]"], "[redacted:t]");
    }

    proptest! {
        #[test]
        fn a_stream_gives_the_same_wherever_it_is_divided(
            parts in prop::collection::vec(prop_oneof![
                Just(TOKEN.to_owned()),
                Just(STANDARD.encode(TOKEN)),
                Just(percent(TOKEN, |_| false)),
                Just("4711-4711".to_owned()),
                Just("4711-47".to_owned()),
                Just("s3cr".to_owned()),
                "[a-z%\\\\+ 0-9]{0,6}",
            ], 0..8),
            cuts in prop::collection::vec(0_usize..200, 0..10),
        ) {
            let text = parts.concat();
            let whole = redactor().text(&text).into_owned();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut stream = redactor().stream(Replacement::Name);
            let (mut from, mut out) = (0, Vec::new());
            for to in cuts {
                out.extend_from_slice(&stream.push(&text.as_bytes()[from..to]));
                from = to;
            }
            out.extend(stream.finish());
            prop_assert_eq!(&whole, &String::from_utf8(out).unwrap());
            prop_assert!(!whole.contains(TOKEN) && !whole.contains("4711-4711"));
        }

        #[test]
        fn any_secret_is_found_in_any_text(
            secret in "\\PC{6,20}",
            before in "\\PC{0,5}",
            after in "\\PC{0,5}",
        ) {
            let redactor = Redactor::new([("x", secret.as_str())]);
            for form in [secret.clone(), serde_json::to_string(&secret).unwrap(), percent(&secret, |_| false)] {
                let text = format!("{before}{form}{after}");
                prop_assert!(redactor.text(&text).contains("[redacted:x]"));
            }
            let encoded = STANDARD.encode(format!("{before}{secret}{after}"));
            prop_assert!(redactor.text(&encoded).contains("[redacted:x]"));
        }
    }
}
