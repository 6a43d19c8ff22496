//! The tool `files_edit`.

use std::path::Path;

use toolcell_sdk::files::{self, Encoding};
use toolcell_sdk::{Result, ToolError, show, tool};

use crate::replace::replace;

/// Maximum size of an edited file, in bytes: it is in memory up to four times.
const MAX_FILE: u64 = 16 << 20;

/// Maximum size of a file that is searched for similar text, in bytes.
const MAX_COMPARED: usize = 4 << 20;

/// Maximum line numbers in an answer.
const MAX_LINES: usize = 10;

/// Replace a text in a file by another one. The old text must stand in the file exactly once, or `replace_all` is set.
///
/// Line ends of the file (LF or CRLF) are kept.
#[tool(title = "Edit a file", destructive)]
pub(crate) fn files_edit(
    /// Path of the file.
    #[format("path")]
    #[alias("file_path", "filename", "file")]
    path: String,
    /// The text to replace, exactly as it stands in the file, with its indentation. Several lines are fine; take enough
    /// of them to be unique.
    #[alias("old_str", "old_text", "old")]
    old_string: String,
    /// The text to put there; empty to delete.
    #[alias("new_str", "new_text", "new")]
    new_string: String,
    /// Replace every occurrence.
    #[default(false)]
    replace_all: bool,
) -> Result<String> {
    let (old, new) = (old_string, new_string);
    if old.is_empty() {
        return Err(ToolError::invalid(
            "`old_string` is empty; to create or extend a file, use `files_write`",
        ));
    }
    if old == new {
        return Err(ToolError::invalid("`old_string` and `new_string` are the same"));
    }
    let contents = files::read_bytes(&path, MAX_FILE)?;
    let text = Text::new(&path, &contents)?;
    let (old, new) = text.with_its_line_ends(old, new);
    let found = text.find(old.as_bytes());
    match found.len() {
        0 => return Err(ToolError::failed(not_found(&path, &text, &old))),
        1 => {}
        n if !replace_all => {
            return Err(ToolError::failed(format_args!(
                "`old_string` occurs {n} times in {}, {}; nothing changed. Give more of the text around it, or set `replace_all`",
                show::quoted(&path),
                lines_of(&text, &found)
            )));
        }
        _ => {}
    }
    let lines = lines_of(&text, &found);
    replace(
        Path::new(&path),
        &contents,
        &text.replaced(&found, old.len(), new.as_bytes()),
    )
    .map_err(|error| files::explain(&path, &error))?;
    let times = if found.len() == 1 {
        "once".to_owned()
    } else {
        format!("{} times", found.len())
    };
    Ok(format!("Replaced {times} in {}, {lines}.", show::quoted(&path)))
}

/// Text of a file as UTF-8 bytes. Other bytes are kept, so that a file in a legacy encoding is not damaged.
struct Text {
    encoding: Encoding,
    bytes: Vec<u8>,
}

impl Text {
    fn new(path: &str, contents: &[u8]) -> Result<Self> {
        let (encoding, mark) = Encoding::sniff(contents);
        let body = &contents[mark..];
        if files::is_binary(&contents[..contents.len().min(8192)]) {
            return Err(ToolError::failed(format_args!(
                "{} is a binary file, not text",
                show::quoted(path)
            )));
        }
        let unit = match encoding {
            Encoding::Utf8 | Encoding::Utf8Bom => {
                return Ok(Self {
                    encoding,
                    bytes: body.to_vec(),
                });
            }
            Encoding::Utf16Le => u16::from_le_bytes,
            Encoding::Utf16Be => u16::from_be_bytes,
        };
        let units = body.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text: Option<String> = char::decode_utf16(units).map(std::result::Result::ok).collect();
        match text.filter(|_| body.len().is_multiple_of(2)) {
            Some(text) => Ok(Self {
                encoding,
                bytes: text.into_bytes(),
            }),
            None => Err(ToolError::failed(format_args!(
                "{} is not valid {}, so editing would destroy parts of it",
                show::quoted(path),
                encoding.name()
            ))),
        }
    }

    /// Converts the line ends of two texts to those of the file, if it has CRLF throughout.
    fn with_its_line_ends(&self, old: String, new: String) -> (String, String) {
        let ends = self.bytes.iter().filter(|byte| **byte == b'\n').count();
        let crlf = self.bytes.windows(2).filter(|pair| pair == b"\r\n").count();
        if ends == 0 || ends != crlf {
            return (old, new);
        }
        let convert = |text: String| text.replace("\r\n", "\n").replace('\n', "\r\n");
        (convert(old), convert(new))
    }

    /// Positions of a text; occurrences do not overlap.
    fn find(&self, wanted: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(offset) = find(&self.bytes[at..], wanted) {
            found.push(at + offset);
            at += offset + wanted.len();
        }
        found
    }

    /// Bytes of the file with the text at these positions replaced.
    fn replaced(&self, found: &[usize], old_len: usize, new: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes.len() + found.len() * new.len());
        let mut at = 0;
        for start in found {
            bytes.extend_from_slice(&self.bytes[at..*start]);
            bytes.extend_from_slice(new);
            at = start + old_len;
        }
        bytes.extend_from_slice(&self.bytes[at..]);
        let body = match self.encoding {
            Encoding::Utf8 | Encoding::Utf8Bom => bytes,
            // Consists of valid text only.
            encoding => encoding.encode(&String::from_utf8_lossy(&bytes)),
        };
        [self.encoding.mark(), &body].concat()
    }

    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.bytes)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut at = 0;
    while let Some(offset) = haystack[at..].iter().position(|byte| byte == first) {
        at += offset + 1;
        if haystack[at..].starts_with(rest) {
            return Some(at - 1);
        }
    }
    None
}

/// "at line 3" or "at lines 3, 8 and 11".
fn lines_of(text: &Text, found: &[usize]) -> String {
    let mut numbers = Vec::new();
    let (mut line, mut at) = (1, 0);
    for start in found.iter().take(MAX_LINES) {
        line += text.bytes[at..*start]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        at = *start;
        numbers.push(line.to_string());
    }
    let more = match found.len().saturating_sub(MAX_LINES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if found.len() == 1 { "" } else { "s" };
    format!("at line{plural} {}{more}", numbers.join(", "))
}

/// Message that a text does not occur in a file, with similar lines.
fn not_found(path: &str, text: &Text, old: &str) -> String {
    let said = format!(
        "`old_string` does not occur in {}; nothing changed",
        show::quoted(path)
    );
    if text.bytes.len() > MAX_COMPARED {
        return said;
    }
    let lines = text.lines();
    let wanted: Vec<String> = old.lines().map(squeeze).collect();
    let squeezed: Vec<String> = lines.iter().map(|line| squeeze(line)).collect();
    let start = wanted.iter().position(|line| !line.is_empty()).unwrap_or(0);
    let end = wanted
        .iter()
        .rposition(|line| !line.is_empty())
        .map_or(0, |at| at + 1);
    let wanted = &wanted[start..end.max(start)];
    if wanted.is_empty() {
        return said;
    }
    if let Some(at) = squeezed.windows(wanted.len()).position(|lines| lines == wanted) {
        return format!(
            "{said}. Lines {} to {} differ from it in white space only:\n{}",
            at + 1,
            at + wanted.len(),
            shown(&lines[at..at + wanted.len()])
        );
    }
    let longest = wanted
        .iter()
        .max_by_key(|line| line.len())
        .expect("there is at least one line");
    let mut near: Vec<(usize, usize)> = squeezed
        .iter()
        .enumerate()
        .map(|(at, line)| (likeness(longest, line), at))
        .filter(|(likeness, _)| *likeness >= 60)
        .collect();
    near.sort_by_key(|(likeness, at)| (usize::MAX - likeness, *at));
    near.truncate(3);
    near.sort_by_key(|(_, at)| *at);
    if near.is_empty() {
        return format!("{said}. Read the file and copy the text exactly");
    }
    let near: Vec<String> = near
        .iter()
        .map(|(_, at)| format!("{}: {}", at + 1, shown(&lines[*at..=*at])))
        .collect();
    format!("{said}. Lines that are like it:\n{}", near.join("\n"))
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Lines for the model, shortened.
fn shown(lines: &[String]) -> String {
    let text = lines.join("\n");
    match text.floor_char_boundary(2000) {
        end if end < text.len() => format!("{}[...]", &text[..end]),
        _ => text,
    }
}

/// Percentage of common byte bigrams of two lines (Dice's coefficient).
fn likeness(a: &str, b: &str) -> usize {
    let pairs = |line: &str| {
        let mut pairs: Vec<[u8; 2]> = line
            .as_bytes()
            .windows(2)
            .map(|pair| [pair[0], pair[1]])
            .collect();
        pairs.sort_unstable();
        pairs
    };
    // Lines of very different length cannot be similar; this excludes most of a file.
    if a.len() < 2 || b.len() < 2 || a.len() > 3 * b.len() || b.len() > 3 * a.len() {
        return 0;
    }
    let (a, b) = (pairs(a), pairs(b));
    let (mut i, mut j, mut common) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                common += 1;
                i += 1;
                j += 1;
            }
        }
    }
    200 * common / (a.len() + b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::testing;

    /// The answer without the file's path, and the file's content afterwards.
    fn edit(contents: &[u8], arguments: Value) -> (Result<String, String>, Vec<u8>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, contents).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let mut all = json!({"path": path});
        all.as_object_mut()
            .unwrap()
            .extend(arguments.as_object().unwrap().clone());
        let answer = testing::call::<files_edit>(all);
        let answer = answer.map(|output| output.to_text().replace(&path, "F"));
        (
            answer.map_err(|error| error.message().replace(&path, "F")),
            std::fs::read(&file).unwrap(),
        )
    }

    #[test]
    fn unique_text_is_replaced() {
        let (answer, after) = edit(b"a\nb\nc\n", json!({"old_string": "b", "new_string": "B"}));
        assert_eq!(
            (answer.unwrap().as_str(), after.as_slice()),
            ("Replaced once in `F`, at line 2.", &b"a\nB\nc\n"[..])
        );
        assert_eq!(
            edit(b"abc", json!({"old_string": "b", "new_string": ""})).1,
            b"ac"
        );
    }

    #[test]
    fn repeated_text_needs_all() {
        let (answer, after) = edit(b"x\ny\nx x\n", json!({"old_string": "x", "new_string": "z"}));
        assert_eq!(
            answer.unwrap_err(),
            "`old_string` occurs 3 times in `F`, at lines 1, 3, 3; nothing changed. Give more of the text around it, or set `replace_all`"
        );
        assert_eq!(after, b"x\ny\nx x\n");
        let (answer, after) = edit(
            b"x\ny\nx x\n",
            json!({"old_string": "x", "new_string": "z", "replace_all": true}),
        );
        assert_eq!(answer.unwrap(), "Replaced 3 times in `F`, at lines 1, 3, 3.");
        assert_eq!(after, b"z\ny\nz z\n");
    }

    #[test]
    fn text_that_differs_in_white_space_is_shown() {
        let file = b"fn main() {\n    one();\n    two();\n}\n";
        let (answer, after) = edit(file, json!({"old_string": "one();\ntwo();", "new_string": ""}));
        assert_eq!(
            answer.unwrap_err(),
            "`old_string` does not occur in `F`; nothing changed. Lines 2 to 3 differ from it in white space only:\n    one();\n    two();"
        );
        assert_eq!(after, file);
    }

    #[test]
    fn similar_lines_are_shown() {
        let (answer, _) = edit(
            b"let count = 1;\nlet other = 2;\n",
            json!({"old_string": "let counts = 1;", "new_string": ""}),
        );
        assert!(
            answer
                .unwrap_err()
                .ends_with("Lines that are like it:\n1: let count = 1;")
        );
        let (answer, _) = edit(
            b"abc\n",
            json!({"old_string": "something else", "new_string": ""}),
        );
        assert!(
            answer
                .unwrap_err()
                .ends_with("Read the file and copy the text exactly")
        );
    }

    #[test]
    fn line_ends_and_encoding_are_kept() {
        let (_, after) = edit(
            b"a\r\nb\r\nc\r\n",
            json!({"old_string": "a\nb", "new_string": "x\ny"}),
        );
        assert_eq!(after, b"x\r\ny\r\nc\r\n");
        let (_, after) = edit(
            b"\xef\xbb\xbfa\xfc",
            json!({"old_string": "a", "new_string": "b"}),
        );
        assert_eq!(after, b"\xef\xbb\xbfb\xfc");
        let (_, after) = edit(
            b"\xfe\xff\0a\0b",
            json!({"old_string": "b", "new_string": "\u{20ac}"}),
        );
        assert_eq!(after, b"\xfe\xff\0a\x20\xac");
    }

    #[test]
    fn invalid_edits_are_refused_and_change_nothing() {
        for (old, new) in [("", "a"), ("a", "a")] {
            let (answer, after) = edit(b"a", json!({"old_string": old, "new_string": new}));
            assert!(answer.is_err());
            assert_eq!(after, b"a");
        }
        let (answer, _) = edit(b"a\0", json!({"old_string": "a", "new_string": "b"}));
        assert_eq!(answer.unwrap_err(), "`F` is a binary file, not text");
        let (answer, _) = edit(
            b"\xff\xfea\0\0\xd8",
            json!({"old_string": "a", "new_string": "b"}),
        );
        assert!(answer.unwrap_err().contains("is not valid UTF-16"));
    }
}
