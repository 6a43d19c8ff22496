//! Tensors: names, shapes, types, places.

use std::fmt;
use std::io::Read;

use super::MAX_NAME_BYTES;
use super::reader::Reader;
use crate::error::GgufError;

/// Maximum number of dimensions, which is the format's own.
pub const MAX_DIMENSIONS: u32 = 4;

/// Maximum number of elements of a tensor: 2^40, so that its size in bytes cannot overflow.
const MAX_ELEMENTS: u64 = 1 << 40;

/// Description of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name.
    pub name: String,
    /// Length of each dimension; the first is that of a row.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub kind: TensorType,
    /// Position after the start of the weights, in bytes.
    pub offset: u64,
    /// Number of elements.
    pub elements: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Tensor {
    pub(super) fn read(reader: &mut Reader<impl Read>) -> Result<Self, GgufError> {
        let name = reader.text("name of a tensor", MAX_NAME_BYTES)?;
        let dimensions = reader.u32()?;
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(GgufError::Tensor(name, "it has no dimension, or more than four"));
        }
        let mut shape = Vec::new();
        let mut elements: u64 = 1;
        for _ in 0..dimensions {
            let length = reader.u64()?;
            let product = elements.checked_mul(length).filter(|n| *n <= MAX_ELEMENTS);
            match product {
                Some(product) if length > 0 => elements = product,
                Some(_) => return Err(GgufError::Tensor(name, "a dimension is 0")),
                None => return Err(GgufError::Tensor(name, "it has more than 2^40 elements")),
            }
            shape.push(length);
        }
        let kind = reader.u32()?;
        let Some(kind) = TensorType::of(kind) else {
            return Err(GgufError::Tensor(
                name,
                "its type does not exist, or is not one of weights",
            ));
        };
        let (block, block_bytes) = kind.block();
        if shape[0] % block != 0 {
            return Err(GgufError::Tensor(
                name,
                "its rows are not whole blocks of its type",
            ));
        }
        let offset = reader.u64()?;
        Ok(Self {
            name,
            shape,
            kind,
            offset,
            elements,
            bytes: elements / block * block_bytes,
        })
    }
}

/// Types of weights, with their numbers in the format, the elements of a block, and its size in bytes.
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
];

/// Type of the elements of a tensor: one of those that weights have. Doubles and whole numbers are none: engines end the
/// process when they compute with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType(u32);

impl TensorType {
    /// Returns the type of this number in the format.
    pub fn of(number: u32) -> Option<Self> {
        TYPES
            .iter()
            .any(|(known, ..)| *known == number)
            .then_some(Self(number))
    }

    fn row(self) -> &'static (u32, &'static str, u64, u64) {
        TYPES
            .iter()
            .find(|(known, ..)| *known == self.0)
            .unwrap_or(&TYPES[0])
    }

    /// Name, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Number of elements in a block, and the size of a block in bytes.
    pub fn block(self) -> (u64, u64) {
        let (_, _, elements, bytes) = self.row();
        (*elements, *bytes)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
