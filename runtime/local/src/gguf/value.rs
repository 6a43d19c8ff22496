//! Values of keys.

use std::io::Read;

use super::reader::Reader;
use super::{MAX_ELEMENT_BYTES, MAX_ELEMENTS, MAX_TEXT_BYTES};
use crate::error::GgufError;

/// Value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned number of 8 bits.
    U8(u8),
    /// Signed number of 8 bits.
    I8(i8),
    /// Unsigned number of 16 bits.
    U16(u16),
    /// Signed number of 16 bits.
    I16(i16),
    /// Unsigned number of 32 bits.
    U32(u32),
    /// Signed number of 32 bits.
    I32(i32),
    /// Number of single precision.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Array; its elements stay in the file.
    Array(Array),
    /// Unsigned number of 64 bits.
    U64(u64),
    /// Signed number of 64 bits.
    I64(i64),
    /// Number of double precision.
    F64(f64),
}

/// Array in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Type of all elements.
    pub element: ElementType,
    /// Number of elements.
    pub len: u64,
    /// Position of the first element in the file, in bytes.
    pub start: u64,
}

/// Type of a value or of the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// Number or truth value of this many bytes.
    Plain(u8),
    /// Text.
    Text,
}

impl Value {
    /// Returns the number, if it is whole and not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::U64(n) => Some(n),
            Self::I8(n) => n.try_into().ok(),
            Self::I16(n) => n.try_into().ok(),
            Self::I32(n) => n.try_into().ok(),
            Self::I64(n) => n.try_into().ok(),
            _ => None,
        }
    }

    /// Returns the number with a fraction.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(n) => Some(n.into()),
            Self::F64(n) => Some(n),
            _ => None,
        }
    }

    /// Reads the type of a value, and the value.
    pub(super) fn read(reader: &mut Reader<impl Read>, key: &str) -> Result<Self, GgufError> {
        // Conversions between the signs keep the bits.
        Ok(match reader.u32()? {
            0 => Self::U8(reader.u8()?),
            1 => Self::I8(reader.u8()?.cast_signed()),
            2 => Self::U16(reader.u16()?),
            3 => Self::I16(reader.u16()?.cast_signed()),
            4 => Self::U32(reader.u32()?),
            5 => Self::I32(reader.u32()?.cast_signed()),
            6 => Self::F32(f32::from_bits(reader.u32()?)),
            7 => match reader.u8()? {
                0 => Self::Bool(false),
                1 => Self::Bool(true),
                _ => {
                    return Err(GgufError::Value(
                        key.to_owned(),
                        "a truth value is neither 0 nor 1",
                    ));
                }
            },
            8 => Self::Text(reader.text("text", MAX_TEXT_BYTES)?),
            9 => Self::Array(array(reader, key)?),
            10 => Self::U64(reader.u64()?),
            11 => Self::I64(reader.u64()?.cast_signed()),
            12 => Self::F64(f64::from_bits(reader.u64()?)),
            _ => return Err(GgufError::Value(key.to_owned(), "its type does not exist")),
        })
    }
}

/// Reads over an array.
fn array(reader: &mut Reader<impl Read>, key: &str) -> Result<Array, GgufError> {
    let element = match reader.u32()? {
        0 | 1 | 7 => ElementType::Plain(1),
        2 | 3 => ElementType::Plain(2),
        4..=6 => ElementType::Plain(4),
        10..=12 => ElementType::Plain(8),
        8 => ElementType::Text,
        // No key of the format is an array of arrays, and engines end the process for a deep one.
        9 => return Err(GgufError::Value(key.to_owned(), "it is an array of arrays")),
        _ => {
            return Err(GgufError::Value(
                key.to_owned(),
                "the type of its elements does not exist",
            ));
        }
    };
    let len = reader.count("elements of an array", MAX_ELEMENTS)?;
    let start = reader.position();
    match element {
        ElementType::Plain(bytes) => reader.skip(len * u64::from(bytes))?,
        ElementType::Text => {
            reader.count_texts(len)?;
            for _ in 0..len {
                let bytes = reader.length("element of an array", MAX_ELEMENT_BYTES)?;
                reader.skip(bytes)?;
            }
        }
    }
    Ok(Array { element, len, start })
}
