//! Types of parameters and results, taken from a compiled component once.

use wasmtime::component::Type;

/// Maximum nesting of a type. Each level adds at most four levels to a schema, which has at most
/// [`toolcell_core::schema::MAX_SCHEMA_DEPTH`].
pub(crate) const MAX_TYPE_DEPTH: usize = 14;

/// Maximum number of parts of all parameters and the result of one function, counted with repetition: a type of a few
/// hundred bytes can contain another one twice, and that another one twice.
pub(crate) const MAX_TYPE_PARTS: usize = 4_000;

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
    Record(Vec<(String, WitType)>),
    Tuple(Vec<WitType>),
    Variant(Vec<(String, Option<WitType>)>),
    Enum(Vec<String>),
    Flags(Vec<String>),
    Option(Box<WitType>),
    Result(Option<Box<WitType>>, Option<Box<WitType>>),
}

/// Reason why a function cannot be a tool, as the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) &'static str);

impl WitType {
    /// Converts a type. `parts` is the number of parts that the function may still have.
    pub(crate) fn of(ty: &Type, parts: &mut usize) -> Result<Self, Unsupported> {
        Self::nested(ty, parts, 1)
    }

    fn nested(ty: &Type, parts: &mut usize, depth: usize) -> Result<Self, Unsupported> {
        if depth > MAX_TYPE_DEPTH {
            return Err(Unsupported("its types are nested in more than 14 levels"));
        }
        take(parts, 1)?;
        let mut inner = |ty: &Type| Self::nested(ty, parts, depth + 1);
        let mut boxed = |ty: Option<Type>| ty.map(|ty| inner(&ty).map(Box::new)).transpose();
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
            Type::List(list) => Self::List(Box::new(inner(&list.ty())?)),
            Type::Record(record) => Self::Record(
                (record.fields())
                    .map(|field| Ok((field.name.to_owned(), inner(&field.ty)?)))
                    .collect::<Result<_, _>>()?,
            ),
            Type::Tuple(tuple) => Self::Tuple(tuple.types().map(|ty| inner(&ty)).collect::<Result<_, _>>()?),
            Type::Variant(variant) => Self::Variant(
                (variant.cases())
                    .map(|case| Ok((case.name.to_owned(), case.ty.map(|ty| inner(&ty)).transpose()?)))
                    .collect::<Result<_, _>>()?,
            ),
            Type::Enum(names) => {
                let names: Vec<String> = names.names().map(str::to_owned).collect();
                take(parts, names.len())?;
                Self::Enum(names)
            }
            Type::Flags(names) => {
                let names: Vec<String> = names.names().map(str::to_owned).collect();
                take(parts, names.len())?;
                Self::Flags(names)
            }
            Type::Option(option) => Self::Option(Box::new(inner(&option.ty())?)),
            Type::Result(result) => Self::Result(boxed(result.ok())?, boxed(result.err())?),
            Type::Own(_) | Type::Borrow(_) => {
                return Err(Unsupported(
                    "it uses a resource, which exists only within one call",
                ));
            }
            Type::Stream(_) => return Err(Unsupported("it uses a stream")),
            Type::Future(_) => return Err(Unsupported("it uses a future")),
            Type::Map(_) => return Err(Unsupported("it uses a map")),
            Type::ErrorContext => return Err(Unsupported("it uses an error context")),
            Type::FixedLengthList(_) => return Err(Unsupported("it uses a list of fixed length")),
        })
    }

    /// Returns `true` if the value `none` of an option of this type could not be told from one of its own values, both
    /// being `null`.
    pub(crate) fn has_null(&self) -> bool {
        matches!(self, Self::Option(_))
    }

    /// Returns the largest number of bytes that the host allocates for one byte which the engine counts when it reads a
    /// list of this type from a guest, at least 1. It counts 40 bytes for a value and the length of each name; the
    /// names of flags are texts of their own.
    pub(crate) fn uncounted(&self) -> u64 {
        match self {
            Self::List(item) => item.flags_weight(),
            Self::Record(fields) => fields.iter().map(|(_, ty)| ty.uncounted()).max().unwrap_or(1),
            Self::Tuple(types) => types.iter().map(Self::uncounted).max().unwrap_or(1),
            Self::Variant(cases) => {
                let types = cases.iter().filter_map(|(_, ty)| ty.as_ref());
                types.map(Self::uncounted).max().unwrap_or(1)
            }
            Self::Option(ty) => ty.uncounted(),
            Self::Result(ok, err) => {
                let types = ok.iter().chain(err).map(|ty| ty.uncounted());
                types.max().unwrap_or(1)
            }
            _ => 1,
        }
    }

    fn flags_weight(&self) -> u64 {
        match self {
            Self::Flags(names) => {
                // A text: its header, and an allocation of at least 32 bytes.
                let allocated: usize = names.iter().map(|name| 24 + name.len().max(32)).sum();
                let counted: usize = names.iter().map(String::len).sum();
                ((40 + allocated) as u64).div_ceil((40 + counted) as u64)
            }
            Self::List(item) => item.flags_weight(),
            Self::Record(fields) => fields.iter().map(|(_, ty)| ty.flags_weight()).max().unwrap_or(1),
            Self::Tuple(types) => types.iter().map(Self::flags_weight).max().unwrap_or(1),
            Self::Variant(cases) => {
                let types = cases.iter().filter_map(|(_, ty)| ty.as_ref());
                types.map(Self::flags_weight).max().unwrap_or(1)
            }
            Self::Option(ty) => ty.flags_weight(),
            Self::Result(ok, err) => {
                let types = ok.iter().chain(err).map(|ty| ty.flags_weight());
                types.max().unwrap_or(1)
            }
            _ => 1,
        }
    }

    /// Returns `true` if a value can contain a `list<u8>`, of which each byte takes 40 bytes of the host.
    pub(crate) fn has_bytes(&self) -> bool {
        match self {
            Self::Bytes => true,
            Self::List(ty) | Self::Option(ty) => ty.has_bytes(),
            Self::Record(fields) => fields.iter().any(|(_, ty)| ty.has_bytes()),
            Self::Tuple(types) => types.iter().any(Self::has_bytes),
            Self::Variant(cases) => cases
                .iter()
                .any(|(_, ty)| ty.as_ref().is_some_and(Self::has_bytes)),
            Self::Result(ok, err) => ok.iter().chain(err).any(|ty| ty.has_bytes()),
            _ => false,
        }
    }
}

fn take(parts: &mut usize, count: usize) -> Result<(), Unsupported> {
    *parts = parts
        .checked_sub(count)
        .ok_or(Unsupported("its types have more than 4000 parts"))?;
    Ok(())
}
