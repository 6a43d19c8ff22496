//! JSON that waits: control characters in its texts stand for themselves, whose escapes are six times as long.

use std::fmt;
use std::io;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

/// A value as JSON. Its `Display` has the escapes.
pub(crate) struct CompactJson(String);

/// Writes control characters as they are.
struct Unescaped(CompactFormatter);

impl Formatter for Unescaped {
    fn write_char_escape<W>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let byte = match escape {
            CharEscape::Backspace => 0x08,
            CharEscape::Tab => b'\t',
            CharEscape::LineFeed => b'\n',
            CharEscape::FormFeed => 0x0c,
            CharEscape::CarriageReturn => b'\r',
            CharEscape::AsciiControl(byte) => byte,
            other => return self.0.write_char_escape(writer, other),
        };
        writer.write_all(&[byte])
    }
}

/// Escapes of the control characters.
const ESCAPES: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b", "\\t",
    "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012", "\\u0013",
    "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c",
    "\\u001d", "\\u001e", "\\u001f",
];

impl CompactJson {
    pub(crate) fn of(value: &Value) -> Self {
        let mut json = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut json, Unescaped(CompactFormatter));
        value
            .serialize(&mut serializer)
            .expect("a value is serialized without an error");
        json.shrink_to_fit();
        Self(String::from_utf8(json).expect("JSON is UTF-8"))
    }
}

impl fmt::Display for CompactJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Outside of texts there is no control character.
        let mut rest = self.0.as_str();
        while let Some(at) = rest.bytes().position(|byte| byte < b' ') {
            f.write_str(&rest[..at])?;
            f.write_str(ESCAPES[usize::from(rest.as_bytes()[at])])?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// As a text that holds the JSON.
impl Serialize for CompactJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_wait_without_their_escapes() {
        let all: String = ('\0'..='\u{a0}').chain("é\u{2028}𝄞\"\\".chars()).collect();
        for value in [
            json!({ "a\u{1}": [all, "\u{1}", "", { "b": [1.5, null, true] }], "c": all }),
            json!("\n"),
            json!([]),
        ] {
            let compact = CompactJson::of(&value);
            assert_eq!(compact.to_string(), value.to_string());
            let text = serde_json::to_string(&compact).unwrap();
            assert_eq!(text, serde_json::to_string(&value.to_string()).unwrap());
        }
        let compact = CompactJson::of(&json!("\u{1}".repeat(1000)));
        assert_eq!(compact.0.capacity(), 1002);
        assert_eq!(compact.to_string().len(), 6002);
    }
}
