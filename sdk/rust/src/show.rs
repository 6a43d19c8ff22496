//! Foreign texts in messages for the model: names of files, and values of arguments.
//!
//! A name can hold a line break, and an argument 100 KB. In a message both could pass for the words of the tool, or push
//! them out of view. What this module shows is one line that means one text, and short.
//!
//! ```
//! use toolcell_sdk::show;
//!
//! assert_eq!(show::quoted("notes.txt").to_string(), "`notes.txt`");
//! assert_eq!(show::quoted("a\nb").to_string(), r#"`"a\nb"`"#);
//! assert!(show::quoted("x".repeat(20_000)).to_string().ends_with("xxx` (20000 bytes)"));
//! ```

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};

/// Maximum size of a value in a message, in bytes. A longer one is shown without its middle. Most paths and URLs fit.
pub const MAX_VALUE: usize = 400;

/// Maximum size of a message of an error, in bytes. A longer one loses its middle.
pub const MAX_MESSAGE: usize = 4 << 10;

/// A value between backticks, as [`value`] writes it.
#[derive(Debug, Clone)]
pub struct Quoted {
    text: String,
    /// Size of the value, if its middle is missing.
    cut: Option<usize>,
}

/// Returns a path, URL or other value for a message: escaped as [`name`], cut as [`value`], between backticks.
pub fn quoted(text: impl AsRef<OsStr>) -> Quoted {
    let text = text.as_ref();
    let size = text.len();
    let (text, is_cut) = short(text);
    Quoted {
        text,
        cut: is_cut.then_some(size),
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)?;
        match self.cut {
            Some(size) => write!(f, " ({size} bytes)"),
            None => Ok(()),
        }
    }
}

/// Returns a value on one line, without its middle beyond [`MAX_VALUE`], of which its size tells.
pub fn value(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref();
    let size = text.len();
    match short(text) {
        (short, false) => short,
        (short, true) => format!("{short} ({size} bytes)"),
    }
}

fn short(text: &OsStr) -> (String, bool) {
    let cut = middle_out(text.as_encoded_bytes(), MAX_VALUE);
    let is_cut = matches!(cut, Cow::Owned(_));
    (name_of_bytes(&cut).into_owned(), is_cut)
}

/// Returns the name of a file, or another text, on one line. Nearly all are returned as they are. One with line breaks,
/// control characters, characters that are invisible or change the order of others, odd blanks, a backtick, or a quotation
/// mark at its start, becomes a JSON string: `"a\nb"`. As a value in JSON it is the text itself again. Bytes that are not
/// UTF-8 become `\xNN`.
pub fn name(text: &(impl AsRef<OsStr> + ?Sized)) -> Cow<'_, str> {
    name_of_bytes(text.as_ref().as_encoded_bytes())
}

fn name_of_bytes(bytes: &[u8]) -> Cow<'_, str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(with_bytes(bytes)),
    };
    let is_plain = !text.starts_with(['"', ' ']) && !text.ends_with(' ') && !text.contains(is_odd);
    if is_plain {
        return text;
    }
    Cow::Owned(json_string(&text))
}

/// Returns the name of a file, or another text, as a JSON string, also if [`name`] returns it as it is: for an output in
/// which something follows the name that could be a part of it.
///
/// ```
/// assert_eq!(toolcell_sdk::show::quoted_name("a:1"), r#""a:1""#);
/// ```
pub fn quoted_name(text: &(impl AsRef<OsStr> + ?Sized)) -> String {
    json_string(&with_bytes(text.as_ref().as_encoded_bytes()))
}

fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 8);
    json.push('"');
    for c in text.chars() {
        match c {
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '"' | '\\' => json.extend(['\\', c]),
            c if is_odd(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(json, "\\u{unit:04x}");
                }
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

/// Text with `\xNN` for each byte that is not part of UTF-8, as the host writes it.
fn with_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns a text without its middle, where its size is told, if it has more than `max` bytes. Its lines are kept.
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let tail = text.ceil_char_boundary(text.len() - max / 4);
    let head = text.floor_char_boundary(max - max / 4);
    let missing = tail - head;
    Cow::Owned(format!(
        "{}…[{missing} bytes left out]…{}",
        &text[..head],
        &text[tail..]
    ))
}

/// Replaces the middle by `…`, at boundaries of characters.
fn middle_out(bytes: &[u8], max: usize) -> Cow<'_, [u8]> {
    if bytes.len() <= max {
        return Cow::Borrowed(bytes);
    }
    let is_boundary = |at: &usize| bytes[*at] & 0xc0 != 0x80;
    let (head, tail) = (max - max / 4, bytes.len() - max / 4);
    // A character has at most four bytes; what is not UTF-8 is cut anywhere.
    let head = (head - 3..=head).rev().find(is_boundary).unwrap_or(head);
    let tail = (tail..=tail + 3).find(is_boundary).unwrap_or(tail);
    Cow::Owned([&bytes[..head], "…".as_bytes(), &bytes[tail..]].concat())
}

/// True for a character that controls, is invisible, changes the order of others, or looks like a space or an end of a
/// quotation.
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '`'
            | '\u{a0}' | '\u{ad}'                 // no-break space, soft hyphen
            | '\u{34f}'                           // combining grapheme joiner
            | '\u{61c}'                           // Arabic letter mark
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{1680}'                          // Ogham space
            | '\u{17b4}' | '\u{17b5}'             // Khmer inherent vowels
            | '\u{180b}'..='\u{180f}'             // Mongolian selectors
            | '\u{2000}'..='\u{200f}'             // spaces, zero-width characters, direction marks
            | '\u{2028}'..='\u{202f}'             // separators, embeddings and overrides, narrow space
            | '\u{205f}'..='\u{206f}'             // medium space, invisible operators, isolates
            | '\u{2800}'                          // Braille pattern blank
            | '\u{3000}'                          // ideographic space
            | '\u{fe00}'..='\u{fe0d}'             // variation selectors without a meaning for emoji
            | '\u{feff}'                          // byte order mark
            | '\u{fff0}'..='\u{fffc}'             // unassigned, interlinear annotation, object replacement
            | '\u{1bca0}'..='\u{1bca3}'           // shorthand format controls
            | '\u{1d159}'                         // musical null notehead
            | '\u{1d173}'..='\u{1d17a}'           // musical format controls
            | '\u{e0000}'..='\u{e0fff}'           // tags and further variation selectors
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_name_is_shown_as_it_is() {
        for plain in [
            "a.txt",
            "müll",
            "e\u{301}",
            "日本",
            "a b",
            "a\"b",
            "a\\xff",
            "👩🏽.png",
            "",
        ] {
            assert_eq!(name(plain), plain);
        }
    }

    #[test]
    fn odd_name_is_a_json_string_of_itself() {
        for (odd, shown) in [
            ("a\nb", r#""a\nb""#),
            ("\u{1b}[2J", r#""\u001b[2J""#),
            ("exe\u{202e}txt", r#""exe\u202etxt""#),
            ("\u{e0041}", r#""\udb40\udc41""#),
            ("9\u{202f}PM", r#""9\u202fPM""#),
            ("\"a", r#""\"a""#),
            ("a\\\n", r#""a\\\n""#),
            ("a`", r#""a\u0060""#),
            ("a ", r#""a ""#),
        ] {
            assert_eq!(name(odd), shown);
            assert_eq!(serde_json::from_str::<String>(shown).unwrap(), odd);
        }
    }

    #[test]
    #[cfg(unix)]
    fn bytes_that_are_not_utf8_are_escaped() {
        use std::os::unix::ffi::OsStrExt as _;
        assert_eq!(name(OsStr::from_bytes(b"a\xffb")), "a\\xffb");
    }

    #[test]
    fn value_beyond_400_bytes_is_shown_without_its_middle() {
        let longest = "x".repeat(MAX_VALUE);
        assert_eq!(value(&longest), longest);
        assert_eq!(quoted(&longest).to_string(), format!("`{longest}`"));
        let long = format!("begin{}end", "é".repeat(10_000));
        let shown = quoted(&long).to_string();
        assert!(
            shown.starts_with("`beginé") && shown.ends_with("éend` (20008 bytes)"),
            "{shown}"
        );
        assert!(shown.len() < MAX_VALUE + 30, "{}", shown.len());
        let odd = "\u{1b}".repeat(20_000);
        assert!(value(odd).len() < 6 * MAX_VALUE + 30);
    }

    #[test]
    fn message_beyond_its_limit_loses_its_middle() {
        let longest = "x".repeat(MAX_MESSAGE);
        assert_eq!(cut(&longest, MAX_MESSAGE), longest);
        let long = format!("begin{}end", "é".repeat(MAX_MESSAGE));
        let cut = cut(&long, MAX_MESSAGE);
        assert!(cut.starts_with("beginé") && cut.ends_with("éend"), "{cut}");
        assert!(cut.contains(" bytes left out]") && cut.len() < MAX_MESSAGE + 40);
    }
}
