//! The tool `text_count`.

use toolcell_sdk::files::TextReader;
use toolcell_sdk::{Result, output, tool};

use crate::source::Source;

/// Length of a text.
#[output]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Lines; a last line without a line end counts.
    pub(crate) lines: u64,
    /// Words: what stands between white space.
    pub(crate) words: u64,
    /// Characters: Unicode scalar values, with white space and line ends.
    pub(crate) characters: u64,
    /// Bytes: of a file as it is stored, of a text as UTF-8.
    pub(crate) bytes: u64,
}

/// Count the lines, words, characters and bytes of a text or of a text file of any size.
///
/// Use it instead of counting yourself.
#[tool(title = "Count text", read_only, idempotent)]
pub(crate) fn text_count(
    /// The text. Give this or `path`.
    #[alias("content")]
    text: Option<String>,
    /// Path of a text file. Give this or `text`.
    #[format("path")]
    #[alias("file_path", "filename", "file")]
    path: Option<String>,
) -> Result<Counts> {
    let mut counter = Counter::default();
    match Source::one_of(text, path, ["text", "path"])? {
        Source::Text(text) => {
            counter.push(&text);
            counter.counts.bytes = text.len() as u64;
        }
        Source::File(path) => {
            let mut reader = TextReader::open(path)?;
            counter.counts.bytes = reader.len();
            let mut piece = String::new();
            while reader.read_chunk(&mut piece)? {
                counter.push(&piece);
                piece.clear();
            }
        }
    }
    Ok(counter.finish())
}

/// Incremental counter.
#[derive(Default)]
struct Counter {
    counts: Counts,
    in_word: bool,
    in_line: bool,
}

impl Counter {
    fn push(&mut self, text: &str) {
        let Some(last) = text.bytes().last() else { return };
        self.in_line = last != b'\n';
        let line_ends = text.bytes().filter(|byte| *byte == b'\n').count();
        self.counts.lines += line_ends as u64;
        if text.is_ascii() {
            self.counts.characters += text.len() as u64;
            // Including the vertical tab, like `char::is_whitespace`.
            self.count_words(text.bytes().map(|byte| matches!(byte, b'\t'..=b'\r' | b' ')));
        } else {
            self.counts.characters += text.chars().count() as u64;
            self.count_words(text.chars().map(char::is_whitespace));
        }
    }

    /// Counts words by whether each character is white space.
    fn count_words(&mut self, spaces: impl Iterator<Item = bool>) {
        let (mut words, mut in_word) = (0, self.in_word);
        for is_space in spaces {
            words += u64::from(!is_space && !in_word);
            in_word = !is_space;
        }
        self.counts.words += words;
        self.in_word = in_word;
    }

    fn finish(mut self) -> Counts {
        self.counts.lines += u64::from(self.in_line);
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_sdk::serde_json::json;
    use toolcell_sdk::{ErrorKind, testing};

    fn count(text: &str) -> [u64; 4] {
        let counts = text_count(Some(text.into()), None).unwrap();
        [counts.lines, counts.words, counts.characters, counts.bytes]
    }

    #[test]
    fn words_are_separated_by_white_space() {
        assert_eq!(count(""), [0, 0, 0, 0]);
        assert_eq!(count("one"), [1, 1, 3, 3]);
        assert_eq!(count(" one  two\nthree\r\n"), [2, 3, 17, 17]);
        assert_eq!(count("\n\n"), [2, 0, 2, 2]);
        assert_eq!(count("a\u{b}b\u{c}c"), [1, 3, 5, 5]);
        assert_eq!(count("a\u{2003}b"), [1, 2, 3, 5]);
        assert_eq!(count("z\u{fc}rich \u{1f600}"), [1, 2, 8, 12]);
    }

    #[test]
    fn file_larger_than_a_chunk_is_counted() {
        let text = "some w\u{f6}rds in a line\n".repeat(20_000);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, &text).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let expected = text_count(Some(text), None).unwrap();
        assert_eq!(text_count(None, Some(path)).unwrap(), expected);
        assert_eq!((expected.lines, expected.words), (20_000, 100_000));
    }

    #[test]
    fn exactly_one_source_is_required() {
        for arguments in [json!({}), json!({"text": "a", "path": "b"})] {
            let error = testing::call::<text_count>(arguments).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArguments);
        }
    }

    #[test]
    fn counts_are_text_and_structured_output() {
        let output = testing::call::<text_count>(json!({"text": "a b"})).unwrap();
        assert_eq!(
            output.structured,
            Some(json!({"lines": 1, "words": 2, "characters": 3, "bytes": 3}))
        );
        let definition = testing::definition::<text_count>();
        assert_eq!(
            definition.output_schema.unwrap()["properties"]["words"]["minimum"],
            0
        );
        assert_eq!(
            definition.input_schema,
            json!({
                "type": "object",
                "properties": {
                    "text": {"type": "string", "description": "The text. Give this or `path`."},
                    "path": {"type": "string", "format": "path", "description": "Path of a text file. Give this or `text`."},
                },
                "additionalProperties": false,
            })
        );
    }
}
