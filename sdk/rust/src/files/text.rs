//! Streaming reader of text files of any size.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::decode::{Decoder, Encoding, is_binary};
use super::{explain, open};
use crate::{Result, ToolError, show};

/// Bytes per read: few calls to the host, little memory.
const CHUNK: usize = 64 << 10;

/// Streaming reader of a text file in any [`Encoding`]. Invalid bytes become U+FFFD and are counted.
#[derive(Debug)]
pub struct TextReader {
    path: PathBuf,
    file: File,
    len: u64,
    encoding: Encoding,
    decoder: Decoder,
    chunk: Vec<u8>,
    /// Part of `chunk` that is not decoded yet; only before the first chunk is returned.
    start: usize,
    ended: bool,
}

impl TextReader {
    /// Opens a text file.
    ///
    /// # Errors
    /// As [`open`](super::open); also for a binary file, by [`is_binary`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = open(path)?;
        match Self::from_file(path, file)? {
            Ok(reader) => Ok(reader),
            Err(binary) => Err(ToolError::failed(format_args!(
                "{} is a binary file of {} bytes, not text",
                show::quoted(path),
                binary.len
            ))),
        }
    }

    /// Reads an open file as text; returns [`Binary`] with the first bytes if it is binary.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>, mut file: File) -> Result<std::result::Result<Self, Binary>> {
        let path = path.as_ref();
        let len = file.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        let mut chunk = Vec::new();
        fill(&mut file, &mut chunk).map_err(|error| explain(path, &error))?;
        let (encoding, start) = Encoding::sniff(&chunk);
        if is_binary(&chunk) {
            return Ok(Err(Binary { start: chunk, len }));
        }
        Ok(Ok(Self {
            path: path.to_owned(),
            file,
            len,
            encoding,
            decoder: Decoder::new(encoding),
            chunk,
            start,
            ended: false,
        }))
    }

    /// Size of the file in bytes, when it was opened.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a size on disk, not a number of elements"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Encoding of the text.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Number of replacements of invalid bytes so far.
    pub fn replaced(&self) -> u64 {
        self.decoder.replaced
    }

    /// Appends the next chunk to `text`. `false` at the end of the file.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read_chunk(&mut self, text: &mut String) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.chunk.is_empty() {
            fill(&mut self.file, &mut self.chunk).map_err(|error| explain(&self.path, &error))?;
        }
        // The first chunk may be followed by more; an empty one is the end.
        self.ended = self.chunk.is_empty();
        self.decoder.push(&self.chunk[self.start..], self.ended, text);
        self.chunk.clear();
        self.start = 0;
        Ok(true)
    }

    /// Reads by line; keeps at most `max_bytes` of each line.
    pub fn lines(self, max_bytes: usize) -> Lines {
        Lines {
            reader: self,
            max_bytes,
            text: String::new(),
            at: 0,
        }
    }
}

/// File that is not text.
#[derive(Debug)]
pub struct Binary {
    /// First bytes of the file.
    pub start: Vec<u8>,
    /// Size in bytes.
    pub len: u64,
}

/// Lines of a text file.
#[derive(Debug)]
pub struct Lines {
    reader: TextReader,
    max_bytes: usize,
    text: String,
    at: usize,
}

/// Line of a text file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Text without the line end, possibly cut.
    pub text: String,
    /// Number of bytes that were cut off.
    pub cut: usize,
    /// True if the line has a line end.
    pub ended: bool,
}

impl Lines {
    /// Next line; `None` after the last one. A line end at the end of the file does not start another line.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn next_line(&mut self) -> Result<Option<Line>> {
        let mut line = Line::default();
        let mut is_empty = true;
        loop {
            if self.at == self.text.len() {
                self.text.clear();
                self.at = 0;
                if !self.reader.read_chunk(&mut self.text)? {
                    return Ok((!is_empty).then_some(line));
                }
                continue;
            }
            is_empty = false;
            let rest = &self.text[self.at..];
            let end = rest.find('\n');
            let piece = &rest[..end.unwrap_or(rest.len())];
            let room = self.max_bytes.saturating_sub(line.text.len() + line.cut);
            let kept = piece.floor_char_boundary(room);
            line.text.push_str(&piece[..kept]);
            line.cut += piece.len() - kept;
            self.at += piece.len();
            if end.is_some() {
                self.at += 1;
                line.ended = true;
                if line.cut == 0 && line.text.ends_with('\r') {
                    line.text.pop();
                }
                return Ok(Some(line));
            }
        }
    }

    /// Skips up to `n` lines without storing them; returns the number of skipped lines.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn skip_lines(&mut self, n: usize) -> Result<usize> {
        let mut skipped = 0;
        let mut in_line = false;
        while skipped < n {
            if self.at == self.text.len() {
                self.text.clear();
                self.at = 0;
                if !self.reader.read_chunk(&mut self.text)? {
                    return Ok(skipped + usize::from(in_line));
                }
                continue;
            }
            match self.text[self.at..].find('\n') {
                Some(end) => {
                    self.at += end + 1;
                    skipped += 1;
                    in_line = false;
                }
                None => {
                    self.at = self.text.len();
                    in_line = true;
                }
            }
        }
        Ok(skipped)
    }

    /// Reader of the lines.
    pub fn reader(&self) -> &TextReader {
        &self.reader
    }
}

fn fill(file: &mut File, chunk: &mut Vec<u8>) -> io::Result<()> {
    chunk.clear();
    file.take(CHUNK as u64).read_to_end(chunk)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unique file for each test.
    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("toolcell-sdk-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn lines(name: &str, bytes: &[u8], max: usize) -> Vec<(String, usize, bool)> {
        let path = file(name, bytes);
        let mut lines = TextReader::open(&path).unwrap().lines(max);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push((line.text, line.cut, line.ended));
        }
        std::fs::remove_file(path).unwrap();
        all
    }

    #[test]
    fn lines_end_at_line_ends_and_at_the_end_of_the_file() {
        assert_eq!(
            lines("ends", b"a\r\n\nb", 9),
            [
                ("a".into(), 0, true),
                (String::new(), 0, true),
                ("b".into(), 0, false)
            ]
        );
        assert_eq!(lines("last", b"a\n", 9), [("a".into(), 0, true)]);
        assert_eq!(lines("none", b"", 9), []);
    }

    #[test]
    fn line_beyond_the_limit_is_cut() {
        assert_eq!(
            lines("limit", b"abc\nabcd\n", 3),
            [("abc".into(), 0, true), ("abc".into(), 1, true)]
        );
        let long = vec![b'x'; 3 * CHUNK];
        assert_eq!(lines("long", &long, 5), [("xxxxx".into(), 3 * CHUNK - 5, false)]);
    }

    #[test]
    fn skipped_lines_are_counted() {
        let path = file("skip", b"1\n2\n3");
        let skip = |n| {
            let mut lines = TextReader::open(&path).unwrap().lines(9);
            let skipped = lines.skip_lines(n).unwrap();
            (skipped, lines.next_line().unwrap().map(|line| line.text))
        };
        assert_eq!(skip(0), (0, Some("1".into())));
        assert_eq!(skip(2), (2, Some("3".into())));
        assert_eq!(skip(3), (3, None));
        assert_eq!(skip(4), (3, None));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn every_encoding_is_read_across_chunks() {
        let text = "\u{e4}\u{1f600}\n".repeat(CHUNK / 4);
        for encoding in [
            Encoding::Utf8,
            Encoding::Utf8Bom,
            Encoding::Utf16Le,
            Encoding::Utf16Be,
        ] {
            let path = file(
                &format!("{encoding:?}"),
                &[encoding.mark(), &encoding.encode(&text)].concat(),
            );
            let mut reader = TextReader::open(&path).unwrap();
            let mut read = String::new();
            while reader.read_chunk(&mut read).unwrap() {}
            assert!(read == text, "{encoding:?}");
            assert_eq!((reader.encoding(), reader.replaced()), (encoding, 0));
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn file_with_a_zero_byte_is_binary() {
        let path = file("binary", b"\x7fELF\0\0");
        let error = TextReader::open(&path).unwrap_err();
        assert!(
            error.message().ends_with("is a binary file of 6 bytes, not text"),
            "{error}"
        );
        std::fs::remove_file(path).unwrap();
    }
}
