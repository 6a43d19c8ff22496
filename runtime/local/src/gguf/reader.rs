//! Numbers and texts of a header, up to its end.

use std::io::{self, Read};

use super::MAX_TEXTS;
use crate::error::GgufError;

/// Size of the pieces in which texts are read and skipped, in bytes: a length that lies allocates no more.
const PIECE: usize = 8 << 10;

/// Returns a text with `?` for bytes that are not UTF-8: it is not longer than the bytes.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().first().map(|_| '?'));
    }
    text
}

/// Reader that counts, and stops at a limit.
pub(super) struct Reader<R> {
    input: R,
    position: u64,
    /// Position at which the header must have ended.
    limit: u64,
    /// Number of texts in arrays that are left.
    texts: u64,
    /// Size of the file, to tell a file that is cut off from a header that is too long.
    file_bytes: u64,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R, limit: u64, file_bytes: u64) -> Self {
        Self {
            input,
            position: 0,
            texts: MAX_TEXTS,
            limit,
            file_bytes,
        }
    }

    /// Number of bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Number of bytes that are left.
    fn room(&self) -> u64 {
        self.limit - self.position
    }

    fn take(&mut self, bytes: u64) -> Result<(), GgufError> {
        if bytes > self.room() {
            return Err(if self.limit < self.file_bytes {
                GgufError::HeaderTooLong
            } else {
                GgufError::CutOff
            });
        }
        self.position += bytes;
        Ok(())
    }

    /// Fills the buffer.
    pub(super) fn bytes(&mut self, into: &mut [u8]) -> Result<(), GgufError> {
        self.take(into.len() as u64)?;
        self.input.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => GgufError::CutOff,
            _ => GgufError::Io(error),
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, GgufError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, GgufError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a number of things and checks it.
    pub(super) fn count(&mut self, what: &'static str, most: u64) -> Result<u64, GgufError> {
        let count = self.u64()?;
        if count > most {
            return Err(GgufError::TooMany { what, count, most });
        }
        Ok(count)
    }

    /// Counts the texts of an array.
    pub(super) fn count_texts(&mut self, count: u64) -> Result<(), GgufError> {
        let left = self.texts.checked_sub(count);
        self.texts = left.ok_or(GgufError::TooMany {
            what: "texts in arrays",
            count: MAX_TEXTS - self.texts + count,
            most: MAX_TEXTS,
        })?;
        Ok(())
    }

    /// Reads the length of a text and checks it.
    pub(super) fn length(&mut self, what: &'static str, most: u64) -> Result<u64, GgufError> {
        let bytes = self.u64()?;
        if bytes > most {
            return Err(GgufError::TooLong { what, bytes, most });
        }
        Ok(bytes)
    }

    /// Reads a text with its length. Bytes that are not UTF-8 are replaced: tokens and names may contain them.
    pub(super) fn text(&mut self, what: &'static str, most: u64) -> Result<String, GgufError> {
        let mut left = usize::try_from(self.length(what, most)?).map_err(|_| GgufError::CutOff)?;
        let mut text = Vec::new();
        while left > 0 {
            let piece = left.min(PIECE);
            let start = text.len();
            text.resize(start + piece, 0);
            self.bytes(&mut text[start..])?;
            left -= piece;
        }
        Ok(String::from_utf8(text).unwrap_or_else(|error| replaced(error.as_bytes())))
    }

    /// Reads over bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), GgufError> {
        let mut scratch = [0; PIECE];
        let mut left = bytes;
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            self.bytes(&mut scratch[..piece])?;
            left -= piece as u64;
        }
        Ok(())
    }
}
