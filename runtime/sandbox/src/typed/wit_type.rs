//! Types of parameters and results, taken from a compiled component once.

use indexmap::{IndexMap, IndexSet};
use toolcell_core::schema::MAX_SCHEMA_BYTES;
use wasmtime::component::Type;

/// Maximum nesting of a type. Each level adds at most four levels to a schema, which has at most
/// [`toolcell_core::schema::MAX_SCHEMA_DEPTH`].
pub(crate) const MAX_TYPE_DEPTH: usize = 14;

/// Maximum size of the names in them, in bytes, counted likewise: as much as a schema has.
pub(crate) const MAX_NAME_BYTES: usize = MAX_SCHEMA_BYTES;

/// Maximum number of parts of all parameters and the result of one function, counted with repetition: a type of a few
/// hundred bytes can contain another one twice, and that another one twice.
pub(crate) const MAX_TYPE_PARTS: usize = 4_000;

/// Maximum number of values in a list of fixed length, those of its elements included. Arguments of 1 MiB have half as many.
/// The engine takes such a list for a part of the value that it is in, and its sizes, of 32 bits, could overflow.
pub(crate) const MAX_FIXED_VALUES: u64 = 1_000_000;

/// Rest of the limits for the types of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) parts: usize,
    pub(crate) name_bytes: usize,
}

/// A type whose values have a form in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WitType {
    Bool,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Char,
    String,
    /// `list<u8>`.
    Bytes,
    List(Box<WitType>),
    /// A list of this length.
    FixedList(Box<WitType>, u32),
    /// Values by their keys.
    Map(Box<WitType>, Box<WitType>),
    Record(Vec<(String, WitType)>),
    Tuple(Vec<WitType>),
    /// Found by name, as is each of the next two: a value can have many of them, and a type many names.
    Variant(IndexMap<String, Option<WitType>>),
    Enum(IndexSet<String>),
    Flags(IndexSet<String>),
    Option(Box<WitType>),
    Result(Option<Box<WitType>>, Option<Box<WitType>>),
}

/// Reason why a function cannot be a tool, as the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) &'static str);

impl WitType {
    /// Converts a type.
    pub(crate) fn of(ty: &Type, room: &mut Room) -> Result<Self, Unsupported> {
        Self::nested(ty, room, 1)
    }

    fn nested(ty: &Type, room: &mut Room, depth: usize) -> Result<Self, Unsupported> {
        if depth > MAX_TYPE_DEPTH {
            return Err(Unsupported("its types are nested in more than 14 levels"));
        }
        room.take_part()?;
        let boxed = |ty: Option<Type>, room: &mut Room| {
            ty.map(|ty| Self::nested(&ty, room, depth + 1).map(Box::new))
                .transpose()
        };
        let inner = |ty: &Type, room: &mut Room| Self::nested(ty, room, depth + 1);
        Ok(match ty {
            Type::Bool => Self::Bool,
            Type::S8 => Self::S8,
            Type::U8 => Self::U8,
            Type::S16 => Self::S16,
            Type::U16 => Self::U16,
            Type::S32 => Self::S32,
            Type::U32 => Self::U32,
            Type::S64 => Self::S64,
            Type::U64 => Self::U64,
            Type::Float32 => Self::F32,
            Type::Float64 => Self::F64,
            Type::Char => Self::Char,
            Type::String => Self::String,
            Type::List(list) if list.ty() == Type::U8 => Self::Bytes,
            Type::List(list) => Self::List(Box::new(inner(&list.ty(), room)?)),
            Type::Record(record) => Self::Record(
                (record.fields())
                    .map(|field| Ok((room.take_name(field.name)?, inner(&field.ty, room)?)))
                    .collect::<Result<_, _>>()?,
            ),
            Type::Tuple(tuple) => Self::Tuple(
                (tuple.types())
                    .map(|ty| inner(&ty, room))
                    .collect::<Result<_, _>>()?,
            ),
            Type::Variant(variant) => Self::Variant(
                (variant.cases())
                    .map(|case| {
                        let name = room.take_name(case.name)?;
                        Ok((name, case.ty.map(|ty| inner(&ty, room)).transpose()?))
                    })
                    .collect::<Result<_, _>>()?,
            ),
            Type::Enum(names) => Self::Enum(room.take_names(names.names())?),
            Type::Flags(names) => Self::Flags(room.take_names(names.names())?),
            Type::Option(option) => Self::Option(Box::new(inner(&option.ty(), room)?)),
            Type::Result(result) => Self::Result(boxed(result.ok(), room)?, boxed(result.err(), room)?),
            Type::Own(_) | Type::Borrow(_) => {
                return Err(Unsupported(
                    "it uses a resource, which exists only within one call",
                ));
            }
            Type::Stream(_) => return Err(Unsupported("it uses a stream")),
            Type::Future(_) => return Err(Unsupported("it uses a future")),
            Type::Map(map) => Self::Map(
                Box::new(inner(&map.key(), room)?),
                Box::new(inner(&map.value(), room)?),
            ),
            Type::FixedLengthList(list) => {
                let fixed = Self::FixedList(Box::new(inner(&list.ty(), room)?), list.len());
                if fixed.values() > MAX_FIXED_VALUES {
                    return Err(Unsupported(
                        "a list of fixed length in its types has more than 1000000 values",
                    ));
                }
                fixed
            }
            Type::ErrorContext => return Err(Unsupported("it uses an error context")),
        })
    }

    /// Returns `true` if the value `none` of an option of this type could not be told from one of its own values, both
    /// being `null`.
    pub(crate) fn has_null(&self) -> bool {
        matches!(self, Self::Option(_))
    }

    /// Returns the largest number of bytes that the host allocates for one byte which the engine counts when it reads a
    /// list of this type from a guest, at least 1. It counts 40 bytes for a value and the length of each name; the
    /// names of fields and flags are texts of their own.
    pub(crate) fn uncounted(&self) -> u64 {
        match self {
            Self::List(item) | Self::FixedList(item, _) => item.weight(),
            Self::Map(key, item) => key.weight().max(item.weight()),
            other => other.children().map(Self::uncounted).max().unwrap_or(1),
        }
    }

    /// The same for one element of a list.
    fn weight(&self) -> u64 {
        let own = match self {
            Self::Flags(names) => weight_of_names(1, names.iter()),
            Self::Record(fields) => weight_of_names(1 + fields.len(), fields.iter().map(|(name, _)| name)),
            _ => 1,
        };
        self.children().map(Self::weight).max().unwrap_or(1).max(own)
    }

    /// Returns the number of values that lie in one of this type; those of a list of any length lie elsewhere.
    fn values(&self) -> u64 {
        let inner = || self.children().map(Self::values);
        match self {
            Self::FixedList(item, length) => item.values().saturating_mul(u64::from(*length)),
            Self::Record(_) | Self::Tuple(_) => inner().fold(0, u64::saturating_add),
            Self::Variant(_) | Self::Option(_) | Self::Result(..) => 1 + inner().max().unwrap_or(0),
            _ => 1,
        }
    }

    /// Types of which a value of this type consists.
    fn children(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        match self {
            Self::List(ty) | Self::FixedList(ty, _) | Self::Option(ty) => Box::new(std::iter::once(&**ty)),
            Self::Map(key, item) => Box::new([&**key, &**item].into_iter()),
            Self::Record(fields) => Box::new(fields.iter().map(|(_, ty)| ty)),
            Self::Tuple(types) => Box::new(types.iter()),
            Self::Variant(cases) => Box::new(cases.values().flatten()),
            Self::Result(ok, err) => Box::new(ok.iter().chain(err).map(|ty| &**ty)),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// Returns the largest number of bytes that the host allocates for one byte which the engine counts, for this many values with these
/// names.
pub(crate) fn weight_of_names<T: AsRef<str>>(values: usize, names: impl Iterator<Item = T>) -> u64 {
    // A text: its header, and an allocation of at least 32 bytes.
    let (allocated, counted) = names.fold((0, 0), |(allocated, counted), name| {
        let length = name.as_ref().len();
        (allocated + 24 + length.max(32), counted + length)
    });
    let values = 40 * values;
    ((values + allocated) as u64).div_ceil((values + counted) as u64)
}

impl Room {
    /// Room of one function, within that of all.
    pub(crate) fn of_one(all: Self) -> Self {
        Self {
            parts: all.parts.min(MAX_TYPE_PARTS),
            name_bytes: all.name_bytes.min(MAX_NAME_BYTES),
        }
    }

    fn take_part(&mut self) -> Result<(), Unsupported> {
        let left = self.parts.checked_sub(1);
        self.parts = left.ok_or(Unsupported("its types have more than 4000 parts"))?;
        Ok(())
    }

    /// Returns a copy of a name.
    pub(crate) fn take_name(&mut self, name: &str) -> Result<String, Unsupported> {
        let left = self.name_bytes.checked_sub(name.len());
        self.name_bytes = left.ok_or(Unsupported("the names in its types have more than 64 KiB"))?;
        Ok(name.to_owned())
    }

    fn take_names<'n>(
        &mut self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<IndexSet<String>, Unsupported> {
        names
            .map(|name| {
                self.take_part()?;
                self.take_name(name)
            })
            .collect()
    }
}
