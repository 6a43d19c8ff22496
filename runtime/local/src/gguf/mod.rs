//! Header of a GGUF file: its keys and its tensors, read as untrusted input.
//!
//! The format is that of <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3, in little-endian
//! order. Nothing of the weights is read. Every count, length and size is checked before anything is kept for it: engines
//! end the process, or allocate without a bound, for files that this module refuses.

mod reader;
mod tensor;
mod value;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use toolcell_fs::Rules;

use crate::error::GgufError;
use reader::Reader;
pub use tensor::{MAX_DIMENSIONS, Tensor, TensorType};
pub use value::{Array, ElementType, Value};

/// Maximum size of a file, in bytes: 4 TiB, more than any model that fits a machine; offsets stay far from overflow.
pub const MAX_FILE_BYTES: u64 = 4 << 40;

/// Maximum size of the header, in bytes: 256 MiB. The largest vocabularies take 20 MiB.
pub const MAX_HEADER_BYTES: u64 = 256 << 20;

/// Maximum number of keys. Published files have about 40.
pub const MAX_KEYS: u64 = 1_024;

/// Maximum number of tensors. A model of 512 layers has about 6,000.
pub const MAX_TENSORS: u64 = 16_384;

/// Maximum length of a key, in bytes. The format allows 65,535; published keys have less than 64.
pub const MAX_KEY_BYTES: u64 = 256;

/// Maximum length of the name of a tensor, in bytes, which is the format's own.
pub const MAX_NAME_BYTES: u64 = 64;

/// Maximum length of a text that is a value, in bytes: 1 MiB. The longest are chat templates, of about 20 KiB.
pub const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Maximum length of a text in an array, in bytes: 64 KiB. Tokens have less than 1 KiB.
pub const MAX_ELEMENT_BYTES: u64 = 64 << 10;

/// Maximum number of elements of an array: 4 million. The largest vocabularies have 260,000 tokens and 600,000 merges.
pub const MAX_ELEMENTS: u64 = 4 << 20;

/// Maximum number of texts in all arrays of a file: 8 million. Each is read over alone; the largest vocabularies have a quarter of a
/// million tokens, and as many merges.
pub const MAX_TEXTS: u64 = 8 << 20;

/// Alignment of the weights in bytes, if the file does not say it.
const DEFAULT_ALIGNMENT: u32 = 32;

/// Maximum alignment, in bytes: a page of 64 KiB.
pub const MAX_ALIGNMENT: u32 = 64 << 10;

/// Header of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    /// Version of the format.
    pub version: u32,
    /// Keys and their values, in the order of the file. Of arrays, only type and length are kept.
    pub metadata: Vec<(String, Value)>,
    /// Tensors, in the order of the file.
    pub tensors: Vec<Tensor>,
    /// Size of the file, in bytes.
    pub file_bytes: u64,
    /// Position of the weights in the file, in bytes.
    pub data_start: u64,
}

impl Gguf {
    /// Reads the header of a file that the user named.
    ///
    /// # Errors
    /// [`GgufError`] if the file cannot be read, is not a GGUF file, or violates the format or a limit.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let file = toolcell_fs::open(path, &Rules::named(MAX_FILE_BYTES))?;
        Self::read_file(file)
    }

    /// Reads the header of an open file.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn read_file(file: File) -> Result<Self, GgufError> {
        let file_bytes = file.metadata()?.len();
        Self::read(BufReader::with_capacity(64 << 10, file), file_bytes)
    }

    /// Reads a header from its beginning; `file_bytes` is the size of the whole file.
    ///
    /// # Errors
    /// [`GgufError`] if it violates the format or a limit.
    pub fn read(input: impl Read, file_bytes: u64) -> Result<Self, GgufError> {
        let mut reader = Reader::new(input, file_bytes.min(MAX_HEADER_BYTES), file_bytes);
        let version = start(&mut reader)?;
        let tensor_count = reader.count("tensors", MAX_TENSORS)?;
        let key_count = reader.count("keys", MAX_KEYS)?;
        let metadata = read_metadata(&mut reader, key_count)?;
        let alignment = alignment(&metadata)?;
        let tensors = read_tensors(&mut reader, tensor_count)?;
        let data_start = reader.position().next_multiple_of(u64::from(alignment));
        let gguf = Self {
            version,
            metadata,
            tensors,
            file_bytes,
            data_start,
        };
        gguf.check_places(u64::from(alignment))?;
        Ok(gguf)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Returns the text of a key, if it is one.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number of a key, if it is a whole number that is not negative.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// Sum of the sizes of all tensors, in bytes.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors
            .iter()
            .fold(0, |sum, tensor| sum.saturating_add(tensor.bytes))
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u64 {
        self.tensors
            .iter()
            .fold(0, |sum, tensor| sum.saturating_add(tensor.elements))
    }

    /// Reads texts of an array of texts by their indices, which must be ascending. What does not exist is left out.
    ///
    /// # Errors
    /// [`GgufError`] if the file cannot be read, or has changed since its header was read.
    pub fn elements(&self, path: &Path, key: &str, indices: &[u64]) -> Result<Vec<(u64, String)>, GgufError> {
        let Some(Value::Array(array)) = self.get(key) else {
            return Ok(Vec::new());
        };
        if array.element != ElementType::Text {
            return Ok(Vec::new());
        }
        let mut file = toolcell_fs::open(path, &Rules::named(MAX_FILE_BYTES))?;
        file.seek(SeekFrom::Start(array.start))?;
        let limit = self.data_start.saturating_sub(array.start);
        let mut reader = Reader::new(BufReader::new(file), limit, self.file_bytes);
        let mut found = Vec::new();
        let mut wanted = indices.iter().copied().peekable();
        for index in 0..array.len {
            match wanted.peek() {
                None => break,
                Some(&next) if next == index => {
                    found.push((index, reader.text("element", MAX_ELEMENT_BYTES)?));
                    while wanted.next_if(|next| *next <= index).is_some() {}
                }
                Some(_) => {
                    let bytes = reader.length("element", MAX_ELEMENT_BYTES)?;
                    reader.skip(bytes)?;
                }
            }
        }
        Ok(found)
    }

    /// Checks that each tensor is aligned, lies in the file and overlaps no other.
    fn check_places(&self, alignment: u64) -> Result<(), GgufError> {
        let room = self.file_bytes.saturating_sub(self.data_start);
        let mut places: Vec<(u64, u64, &str)> = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let name = || tensor.name.clone();
            if tensor.offset % alignment != 0 {
                return Err(GgufError::Tensor(name(), "its offset is not aligned"));
            }
            let end = tensor
                .offset
                .checked_add(tensor.bytes)
                .ok_or_else(|| GgufError::Tensor(name(), "its end is beyond every file"))?;
            if end > room {
                return Err(GgufError::Tensor(name(), "it ends after the end of the file"));
            }
            places.push((tensor.offset, end, &tensor.name));
        }
        places.sort_unstable();
        for pair in places.windows(2) {
            if pair[1].0 < pair[0].1 {
                return Err(GgufError::Tensor(
                    pair[1].2.to_owned(),
                    "it overlaps another tensor",
                ));
            }
        }
        Ok(())
    }
}

/// Reads magic and version.
fn start(reader: &mut Reader<impl Read>) -> Result<u32, GgufError> {
    let mut magic = [0; 4];
    reader.bytes(&mut magic)?;
    if &magic != b"GGUF" {
        return Err(GgufError::NotGguf);
    }
    let version = reader.u32()?;
    match version {
        2 | 3 => Ok(version),
        // Version 3 in the other byte order.
        _ if version.swap_bytes() == 3 => Err(GgufError::BigEndian),
        _ => Err(GgufError::Version(version)),
    }
}

fn read_metadata(reader: &mut Reader<impl Read>, count: u64) -> Result<Vec<(String, Value)>, GgufError> {
    let mut metadata = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..count {
        let key = reader.text("key", MAX_KEY_BYTES)?;
        if !seen.insert(key.clone()) {
            return Err(GgufError::DuplicateKey(key));
        }
        let value = Value::read(reader, &key)?;
        metadata.push((key, value));
    }
    Ok(metadata)
}

fn read_tensors(reader: &mut Reader<impl Read>, count: u64) -> Result<Vec<Tensor>, GgufError> {
    let mut tensors = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..count {
        let tensor = Tensor::read(reader)?;
        if !seen.insert(tensor.name.clone()) {
            return Err(GgufError::Tensor(tensor.name, "the file has two of this name"));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn alignment(metadata: &[(String, Value)]) -> Result<u32, GgufError> {
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == "general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match value {
        Value::U32(alignment) if alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(alignment) => {
            Ok(*alignment)
        }
        _ => Err(GgufError::Alignment),
    }
}

#[cfg(test)]
mod tests;
