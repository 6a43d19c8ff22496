//! Characters of foreign text that are unsafe on a terminal, and JSON without them.

use std::fmt::Write as _;

use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_width::UnicodeWidthChar as _;

/// Maximum number of combining marks on one character; more are escaped. Pointed Hebrew with cantillation has up to
/// five; dozens would paint over the lines above and below.
pub const MAX_MARKS: usize = 5;

/// True if a character is invisible or changes how others are shown, so that a user and a model read different text.
pub fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{00ad}'                            // soft hyphen
        | '\u{034f}'                          // combining grapheme joiner
        | '\u{061c}'                          // Arabic letter mark
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
        | '\u{17b4}' | '\u{17b5}'             // Khmer inherent vowels
        | '\u{180b}'..='\u{180f}'             // Mongolian selectors
        | '\u{200b}'..='\u{200f}'             // zero-width space and joiners, direction marks
        | '\u{2028}' | '\u{2029}'             // line and paragraph separators
        | '\u{202a}'..='\u{202e}'             // embeddings and overrides
        | '\u{2060}'..='\u{206f}'             // word joiner, invisible operators, isolates
        | '\u{2800}'                          // Braille pattern blank
        | '\u{fe00}'..='\u{fe0d}'             // variation selectors without a meaning for emoji
        | '\u{feff}'                          // byte order mark
        | '\u{fff0}'..='\u{fffc}'             // unassigned, interlinear annotation, object replacement
        | '\u{1bca0}'..='\u{1bca3}'           // shorthand format controls
        | '\u{1d159}'                         // musical null notehead
        | '\u{1d173}'..='\u{1d17a}'           // musical format controls
        | '\u{e0000}'..='\u{e0fff}'           // tags and further variation selectors
    )
}

/// True if terminals and fonts disagree about a character, or have no glyph for it.
pub fn has_no_glyph(c: char) -> bool {
    !c.is_ascii()
        && matches!(
            get_general_category(c),
            GeneralCategory::PrivateUse
                | GeneralCategory::Unassigned
                | GeneralCategory::Surrogate
                | GeneralCategory::Format
        )
}

/// True if a character is drawn on the previous one.
pub fn is_mark(c: char) -> bool {
    !c.is_ascii() && c.width() == Some(0)
}

/// True if a character must be escaped for a terminal: it controls, hides, reorders, or has no agreed glyph.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || is_hidden(c) || has_no_glyph(c)
}

/// Returns equivalent JSON without characters that a terminal executes, hides or reorders: they are written as `\uXXXX`.
pub fn json(json: &str) -> String {
    JsonEscaper::default().push(json)
}

/// [`json()`] for text that arrives in pieces.
#[derive(Debug, Default)]
pub struct JsonEscaper {
    /// Number of marks on the last character.
    marks: usize,
}

impl JsonEscaper {
    /// Returns the next piece of the JSON.
    pub fn push(&mut self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        for c in json.chars() {
            self.marks = if is_mark(c) { self.marks + 1 } else { 0 };
            // Line ends are indentation: strings contain none.
            if c != '\n' && (is_unsafe(c) || self.marks > MAX_MARKS) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            } else {
                out.push(c);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn escaped_json_has_same_value_and_nothing_unsafe() {
        let every: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let value = serde_json::json!({ "text": every, &every[..0x900]: ["\u{9b}2J", "\u{202e}", "e\u{301}\u{e0041}"] });
        for text in [value.to_string(), format!("{value:#}")] {
            let escaped = super::json(&text);
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
            let unsafe_one = |c: &char| (c.is_control() && *c != '\n') || is_hidden(*c);
            assert_eq!(escaped.chars().find(unsafe_one), None);
        }
    }

    #[test]
    fn json_escapes_combining_marks_beyond_limit() {
        for (marks, escapes) in [(MAX_MARKS, 0), (MAX_MARKS + 1, 1)] {
            let text = format!("\"e{}\"", "\u{301}".repeat(marks));
            assert_eq!(json(&text).matches("\\u0301").count(), escapes);
            let mut escaper = JsonEscaper::default();
            let pieces: String = text.chars().map(|c| escaper.push(&c.to_string())).collect();
            assert_eq!(pieces, json(&text));
        }
    }

    #[test]
    fn ordinary_json_text_is_unchanged() {
        for text in ["{\"ü\": \"日本語 👩\"}", "{\n  \"a\": \"b\\nc\"\n}", "\"नमस्ते\""] {
            assert_eq!(json(text), text);
        }
    }

    #[test]
    fn controlling_hidden_and_unknown_characters_are_unsafe() {
        for c in [
            '\u{1b}', '\u{9b}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{2800}', '\u{feff}',
        ] {
            assert!(is_unsafe(c), "{c:?}");
        }
        for c in ['\u{ad}', '\u{200b}', '\u{202e}', '\u{2800}', '\u{3164}'] {
            assert!(is_hidden(c), "{c:?}");
        }
        // Of private use, unassigned, and a format character.
        for c in ['\u{e000}', '\u{378}', '\u{600}'] {
            assert!(has_no_glyph(c) && is_unsafe(c), "{c:?}");
        }
        for c in ['a', '~', ' ', 'é', '日', 'न', '👩'] {
            assert!(!is_unsafe(c), "{c:?}");
        }
    }
}
