//! The tool `files_read`.

use std::collections::VecDeque;
use std::fmt::Write as _;

use toolcell_sdk::files::{self, Binary, Encoding, Line, Lines, TextReader};
use toolcell_sdk::{Output, Result, ToolError, show, tool};

use crate::media;

/// Maximum bytes of text in one answer.
const MAX_TEXT: usize = 200_000;

/// Maximum bytes shown of one line: minified sources and data files have lines of megabytes.
const MAX_LINE: usize = 10_000;

/// Maximum size of a returned picture, in bytes: about the limit of model providers.
const MAX_PICTURE: u64 = 3 << 20;

/// Read a text file, the whole or some of its lines. Files of any size can be read in parts. A picture (PNG, JPEG, GIF,
/// WebP) is handed over as one; of other binary files only type and size are told.
#[tool(title = "Read a file", read_only, idempotent)]
pub(crate) fn files_read(
    /// Path of the file.
    #[format("path")]
    #[alias("file_path", "filename", "file")]
    path: String,
    /// The first line to read, counted from 1. A negative number counts from the end: -20 reads the last 20 lines.
    #[default(1)]
    #[alias("start_line", "line")]
    offset: i64,
    /// The most lines to read.
    #[default(2000)]
    #[alias("max_lines", "num_lines")]
    limit: u32,
    /// Put the number of each line before it.
    #[default(false)]
    line_numbers: bool,
) -> Result<Output> {
    let lines = match TextReader::from_file(&path, files::open(&path)?)? {
        Ok(reader) => reader.lines(MAX_LINE),
        Err(binary) => return read_binary(&path, &binary),
    };
    let max_lines = (limit as usize).max(1);
    let numbers = line_numbers;
    let text = match usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX) {
        0 => Err(ToolError::invalid(
            "`offset` is 0; the first line is 1, the last one -1",
        )),
        back if offset < 0 => read_end(lines, back, max_lines, numbers),
        first => read_from(&path, lines, first, max_lines, numbers),
    }?;
    Ok(Output::new().text(text))
}

/// Reads from a line on, and no further than needed.
fn read_from(path: &str, mut lines: Lines, first: usize, max_lines: usize, numbers: bool) -> Result<String> {
    let mut page = Page::new(first, numbers);
    let mut number = lines.skip_lines(first - 1)?;
    let mut next = None;
    while let Some(line) = lines.next_line()? {
        number += 1;
        if number - first == max_lines || !page.push(&line) {
            next = Some(number);
            break;
        }
    }
    if number < first && (number > 0 || first > 1) {
        return Err(ToolError::invalid(format_args!(
            "{} has {}, so there is no line {first}",
            show::quoted(path),
            count(number, "line")
        )));
    }
    Ok(page.finish(&lines, next))
}

/// Reads the last lines; only these are kept in memory.
fn read_end(mut lines: Lines, back: usize, max_lines: usize, numbers: bool) -> Result<String> {
    let keep = back.min(MAX_TEXT);
    let mut last: VecDeque<Line> = VecDeque::new();
    let (mut number, mut bytes) = (0, 0);
    while let Some(line) = lines.next_line()? {
        number += 1;
        bytes += line.text.len() + 1;
        last.push_back(line);
        // With room for two answers, as the first line shown may be far from the last one.
        while last.len() > keep || bytes > 2 * MAX_TEXT.max(MAX_LINE) {
            bytes -= last.pop_front().map_or(0, |line| line.text.len() + 1);
        }
    }
    let first = number - last.len() + 1;
    let mut page = Page::new(first, numbers);
    let mut next = None;
    for (i, line) in last.iter().enumerate() {
        if i == max_lines || !page.push(line) {
            next = Some(first + i);
            break;
        }
    }
    Ok(page.finish(&lines, next))
}

/// Text of an answer, up to its limit.
struct Page {
    text: String,
    number: usize,
    first: usize,
    numbers: bool,
}

impl Page {
    fn new(first: usize, numbers: bool) -> Self {
        Self {
            text: String::new(),
            number: first,
            first,
            numbers,
        }
    }

    /// Adds a line; `false` if there is no room.
    fn push(&mut self, line: &Line) -> bool {
        if !self.text.is_empty() && self.text.len() + line.text.len() > MAX_TEXT {
            return false;
        }
        if self.numbers {
            let _ = write!(self.text, "{:>6}\t", self.number);
        }
        self.text.push_str(&line.text);
        if line.cut > 0 {
            let _ = write!(self.text, " [{} more bytes of this line are left out]", line.cut);
        }
        if line.ended {
            self.text.push('\n');
        }
        self.number += 1;
        true
    }

    /// Adds notes for the model about the text.
    fn finish(mut self, lines: &Lines, next: Option<usize>) -> String {
        let reader = lines.reader();
        let mut notes = Vec::new();
        if let Some(next) = next {
            notes.push(format!(
                "lines {} to {} of a file of {} bytes; go on with offset {next}",
                self.first,
                next - 1,
                reader.len(),
            ));
        }
        if self.text.is_empty() {
            notes.push("the file is empty".into());
        }
        if matches!(reader.encoding(), Encoding::Utf16Le | Encoding::Utf16Be) {
            notes.push(format!("decoded from {}", reader.encoding().name()));
        }
        if reader.replaced() > 0 {
            notes.push(format!(
                "not valid {} in {}, shown as \u{fffd}",
                reader.encoding().name(),
                count(usize::try_from(reader.replaced()).unwrap_or(usize::MAX), "place")
            ));
        }
        if !notes.is_empty() {
            if !self.text.is_empty() && !self.text.ends_with('\n') {
                self.text.push('\n');
            }
            let _ = write!(self.text, "[{}]", notes.join("; "));
        }
        self.text
    }
}

fn read_binary(path: &str, binary: &Binary) -> Result<Output> {
    let (media_type, is_picture) = media::sniff(&binary.start);
    let said = format!(
        "{} is a binary file: {media_type}, {} bytes.",
        show::quoted(path),
        binary.len
    );
    if !is_picture {
        return Ok(Output::new().text(said));
    }
    if binary.len > MAX_PICTURE {
        return Ok(Output::new().text(format!("{said} Pictures are shown up to {MAX_PICTURE} bytes.")));
    }
    Ok(Output::new()
        .text(said)
        .blob(media_type, files::read_bytes(path, MAX_PICTURE)?))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::{Value, json};
    use toolcell_sdk::{Content, testing};

    fn read(bytes: &[u8], more: Value) -> Result<Output> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, bytes).unwrap();
        let mut arguments = json!({"path": file.path()});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        testing::call::<files_read>(arguments)
    }

    fn text(bytes: &[u8], more: Value) -> String {
        read(bytes, more).unwrap().to_text()
    }

    #[test]
    fn text_file_is_returned_unchanged() {
        assert_eq!(text(b"a\n\nb", json!({})), "a\n\nb");
        assert_eq!(text(b"", json!({})), "[the file is empty]");
    }

    #[test]
    fn range_of_lines_names_the_next_line() {
        let file = b"1\n2\n3\n4\n";
        assert_eq!(
            text(file, json!({"offset": 2, "limit": 2})),
            "2\n3\n[lines 2 to 3 of a file of 8 bytes; go on with offset 4]"
        );
        assert_eq!(text(file, json!({"offset": 3, "limit": 2})), "3\n4\n");
        assert_eq!(
            text(file, json!({"offset": 4, "line_numbers": true})),
            "     4\t4\n"
        );
    }

    #[test]
    fn negative_start_reads_the_end() {
        let file = b"1\n2\n3\n4\n";
        assert_eq!(text(file, json!({"offset": -2})), "3\n4\n");
        assert_eq!(
            text(file, json!({"offset": -9, "limit": 1})),
            "1\n[lines 1 to 1 of a file of 8 bytes; go on with offset 2]"
        );
        let long = "0123456789\n".repeat(100_000);
        assert_eq!(
            text(long.as_bytes(), json!({"offset": -1, "line_numbers": true})),
            "100000\t0123456789\n"
        );
    }

    #[test]
    fn start_beyond_the_end_is_refused() {
        let error = read(b"1\n2\n", json!({"offset": 3})).unwrap_err();
        assert!(
            error.message().ends_with("has 2 lines, so there is no line 3"),
            "{error}"
        );
        assert!(read(b"1\n", json!({"offset": 0})).is_err());
    }

    #[test]
    fn text_is_cut_at_the_answer_and_line_limits() {
        let long = text("x".repeat(99).as_bytes().repeat(3000).as_slice(), json!({}));
        assert!(long.contains("[287000 more bytes of this line are left out]"));
        let lines = format!("{}\n", "x".repeat(99)).repeat(3000);
        let answer = text(lines.as_bytes(), json!({"limit": 100_000}));
        assert!(answer.len() <= MAX_TEXT + 200);
        assert!(
            answer.ends_with("go on with offset 2001]"),
            "{}",
            &answer[answer.len() - 100..]
        );
    }

    #[test]
    fn other_encodings_are_decoded_and_named() {
        assert_eq!(text(b"\xef\xbb\xbfa\n", json!({})), "a\n");
        assert_eq!(
            text(b"\xff\xfea\0\n\0", json!({})),
            "a\n[decoded from UTF-16 (little-endian)]"
        );
        assert_eq!(
            text(b"z\xfcrich", json!({})),
            "z\u{fffd}rich\n[not valid UTF-8 in 1 place, shown as \u{fffd}]"
        );
    }

    #[test]
    fn pictures_are_returned_and_other_binaries_described() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0";
        let output = read(png, json!({})).unwrap();
        assert_eq!(
            output.content[1],
            Content::Blob {
                media_type: "image/png".into(),
                data: png.to_vec()
            }
        );
        assert!(text(b"\x7fELF\0", json!({})).ends_with("is a binary file: application/x-elf, 5 bytes."));
    }

    #[test]
    fn reading_a_directory_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let error = testing::call::<files_read>(json!({"path": root.path()})).unwrap_err();
        assert!(error.message().ends_with("is a directory, not a file"), "{error}");
    }
}
