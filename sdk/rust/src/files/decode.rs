//! Incremental decoding of text.

/// Encoding of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8 without a byte order mark.
    Utf8,
    /// UTF-8 with a byte order mark.
    Utf8Bom,
    /// Little-endian UTF-16 with a byte order mark.
    Utf16Le,
    /// Big-endian UTF-16 with a byte order mark.
    Utf16Be,
}

impl Encoding {
    /// Detects the encoding by the byte order mark at the start of a file; returns it with the mark's length.
    pub fn sniff(start: &[u8]) -> (Self, usize) {
        match start {
            [0xEF, 0xBB, 0xBF, ..] => (Self::Utf8Bom, 3),
            [0xFF, 0xFE, ..] => (Self::Utf16Le, 2),
            [0xFE, 0xFF, ..] => (Self::Utf16Be, 2),
            _ => (Self::Utf8, 0),
        }
    }

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf8Bom => "UTF-8 with a byte order mark",
            Self::Utf16Le => "UTF-16 (little-endian)",
            Self::Utf16Be => "UTF-16 (big-endian)",
        }
    }

    /// Encodes a text, without a byte order mark.
    pub fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Self::Utf8 | Self::Utf8Bom => text.as_bytes().to_vec(),
            Self::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Self::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        }
    }

    /// Byte order mark.
    pub fn mark(self) -> &'static [u8] {
        match self {
            Self::Utf8 => &[],
            Self::Utf8Bom => &[0xEF, 0xBB, 0xBF],
            Self::Utf16Le => &[0xFF, 0xFE],
            Self::Utf16Be => &[0xFE, 0xFF],
        }
    }
}

/// True if the first bytes of a file are not text: they contain a zero byte, or more than 2 % of control characters
/// that text does not contain (compressed data has six times as many). UTF-16 with a byte order mark is text.
pub fn is_binary(start: &[u8]) -> bool {
    if matches!(Encoding::sniff(start).0, Encoding::Utf16Le | Encoding::Utf16Be) {
        return false;
    }
    // Tab, line ends, backspace, form feed and escape (terminal colours) occur in text.
    let controls = start
        .iter()
        .filter(|byte| matches!(byte, 0..=7 | 14..=26 | 28..=31))
        .count();
    controls * 50 > start.len() || start.contains(&0)
}

/// Incremental decoder. Invalid bytes become U+FFFD and are counted.
#[derive(Debug)]
pub(crate) struct Decoder {
    encoding: Encoding,
    /// Bytes of an incomplete character.
    rest: Vec<u8>,
    /// First half of a surrogate pair.
    high: Option<u16>,
    pub(crate) replaced: u64,
}

impl Decoder {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            rest: Vec::new(),
            high: None,
            replaced: 0,
        }
    }

    /// Decodes the next chunk. With `last`, an incomplete character is invalid.
    pub(crate) fn push(&mut self, bytes: &[u8], last: bool, text: &mut String) {
        match self.encoding {
            Encoding::Utf8 | Encoding::Utf8Bom => self.push_utf8(bytes, last, text),
            Encoding::Utf16Le => self.push_utf16(bytes, last, u16::from_le_bytes, text),
            Encoding::Utf16Be => self.push_utf16(bytes, last, u16::from_be_bytes, text),
        }
    }

    fn push_utf8(&mut self, mut bytes: &[u8], last: bool, text: &mut String) {
        // Completes the last character of the previous chunk byte by byte.
        while !self.rest.is_empty() && !bytes.is_empty() {
            self.rest.push(bytes[0]);
            bytes = &bytes[1..];
            match std::str::from_utf8(&self.rest) {
                Ok(character) => {
                    text.push_str(character);
                    self.rest.clear();
                }
                Err(error) => {
                    if let Some(bad) = error.error_len() {
                        self.replace(text);
                        self.rest.drain(..bad);
                        let retry = std::mem::take(&mut self.rest);
                        self.push_utf8(&retry, false, text);
                    }
                }
            }
        }
        while !bytes.is_empty() {
            match std::str::from_utf8(bytes) {
                Ok(good) => {
                    text.push_str(good);
                    bytes = &[];
                }
                Err(error) => {
                    let (good, bad) = bytes.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(good).unwrap_or_default());
                    match error.error_len() {
                        Some(len) => {
                            self.replace(text);
                            bytes = &bad[len..];
                        }
                        None => {
                            self.rest = bad.to_vec();
                            bytes = &[];
                        }
                    }
                }
            }
        }
        if last && !self.rest.is_empty() {
            self.rest.clear();
            self.replace(text);
        }
    }

    fn push_utf16(&mut self, bytes: &[u8], last: bool, unit: fn([u8; 2]) -> u16, text: &mut String) {
        for byte in bytes {
            self.rest.push(*byte);
            if let [a, b] = self.rest[..] {
                self.rest.clear();
                self.push_unit(unit([a, b]), text);
            }
        }
        if last && (self.high.take().is_some() || !self.rest.is_empty()) {
            self.rest.clear();
            self.replace(text);
        }
    }

    fn push_unit(&mut self, unit: u16, text: &mut String) {
        if let Some(high) = self.high.take() {
            if let Some(Ok(character)) = char::decode_utf16([high, unit]).next() {
                text.push(character);
                return;
            }
            self.replace(text);
        }
        match char::from_u32(unit.into()) {
            Some(character) => text.push(character),
            // A first surrogate waits for the second.
            None if unit < 0xDC00 => self.high = Some(unit),
            None => self.replace(text),
        }
    }

    fn replace(&mut self, text: &mut String) {
        self.replaced += 1;
        text.push(char::REPLACEMENT_CHARACTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes in chunks of every size; the result must not depend on it.
    fn decode(encoding: Encoding, bytes: &[u8]) -> (String, u64) {
        let mut results = (1..=bytes.len().max(1)).map(|size| {
            let mut decoder = Decoder::new(encoding);
            let mut text = String::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece, false, &mut text);
            }
            decoder.push(&[], true, &mut text);
            (text, decoder.replaced)
        });
        let first = results.next().unwrap();
        assert!(
            results.all(|result| result == first),
            "{bytes:?} decodes differently in other chunks"
        );
        first
    }

    #[test]
    fn chunk_boundaries_do_not_change_text() {
        let text = "a\u{e4}\u{20ac}\u{1f600}\nz";
        for encoding in [Encoding::Utf8, Encoding::Utf16Le, Encoding::Utf16Be] {
            assert_eq!(decode(encoding, &encoding.encode(text)), (text.to_owned(), 0));
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_as_by_std() {
        for bytes in [
            &b"a\xffb"[..],
            b"\xe4\xf6\xfc",
            b"\xe2\x82",
            b"\xf0\x9f\x98A",
            b"\xe2\x82\xe2\x82\xac",
            b"\xf0\x9f\xf0\x9f\x98\x80",
            b"",
        ] {
            let lossy = String::from_utf8_lossy(bytes);
            let (text, replaced) = decode(Encoding::Utf8, bytes);
            assert_eq!(text, lossy);
            assert_eq!(
                replaced,
                lossy.matches(char::REPLACEMENT_CHARACTER).count() as u64
            );
        }
    }

    #[test]
    fn compressed_data_is_binary_and_legacy_text_is_not() {
        // Every byte with the same frequency, except zero, which alone would be decisive.
        let compressed: Vec<u8> = (0..4096_u32)
            .map(|i| u8::try_from(i % 255 + 1).unwrap())
            .collect();
        assert!(is_binary(&compressed));
        assert!(is_binary(b"text\0"));
        for text in [
            &b"z\xfcrich \xe4\xf6"[..],
            b"\x1b[31mred\x1b[0m\r\n",
            b"\xff\xfea\0",
            b"",
            b"a\x0cb",
        ] {
            assert!(!is_binary(text), "{text:?}");
        }
    }

    #[test]
    fn incomplete_utf16_is_replaced() {
        assert_eq!(decode(Encoding::Utf16Be, b"\xd8\x3d\0A"), ("\u{fffd}A".into(), 1));
        assert_eq!(decode(Encoding::Utf16Be, b"\xde\0\0A"), ("\u{fffd}A".into(), 1));
        assert_eq!(decode(Encoding::Utf16Be, b"\0A\xd8\x3d"), ("A\u{fffd}".into(), 1));
        assert_eq!(decode(Encoding::Utf16Be, b"\0A\0"), ("A\u{fffd}".into(), 1));
        assert_eq!(
            decode(Encoding::Utf16Be, b"\xd8\x3d\xd8\x3d\xde\0"),
            ("\u{fffd}\u{1f600}".into(), 1)
        );
    }
}
