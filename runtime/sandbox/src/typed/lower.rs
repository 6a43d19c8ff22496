//! Conversion of arguments from JSON to values of the component model.
//!
//! Arguments match the schema of the tool already, which leaves what a schema cannot say: base64, numbers of 64 bits in
//! digits, the range of `f32`. Everything is checked here nevertheless, so that a value always has its type.

use std::collections::HashSet;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use indexmap::IndexSet;
use serde_json::{Map, Value};
use toolcell_core::ToolError;
use toolcell_core::suggest::nearest;
use wasmtime::component::Val;

use crate::cell::memory::{OutOfMemory, Reservation};
use crate::typed::number::{float, integer, long, single};
use crate::typed::wit_type::WitType;

/// Maximum number of names listed in an error.
const MAX_LISTED: usize = 40;

/// Maximum length of a value or name of the arguments in an error, in bytes.
const MAX_SHOWN: usize = 100;

/// Bytes that are charged ahead, so that not each small value needs the account of the call.
const CHARGED_AT_ONCE: usize = 4 << 10;

/// Size of a key with its value, in bytes: as values, and for a while as what finds keys that are there twice.
const PAIR: usize = size_of::<(Val, Val)>() + 96;

/// The standard alphabet (RFC 4648, section 4), with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Error of converting arguments.
#[derive(Debug)]
pub(crate) enum LowerError {
    /// An argument does not have its type.
    Invalid {
        /// Location, innermost part first.
        path: Vec<Part>,
        reason: String,
    },
    Memory(OutOfMemory),
}

/// Part of a location.
#[derive(Debug)]
pub(crate) enum Part {
    Name(String),
    Index(usize),
}

impl LowerError {
    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid {
            path: Vec::new(),
            reason: reason.into(),
        }
    }

    fn inside(mut self, part: impl FnOnce() -> Part) -> Self {
        if let Self::Invalid { path, .. } = &mut self {
            path.push(part());
        }
        self
    }

    /// Returns the error of the call.
    pub(crate) fn into_error(self) -> ToolError {
        match self {
            Self::Memory(refused) => refused.into_error(),
            Self::Invalid { path, reason } => {
                // A JSON Pointer (RFC 6901), as in the errors of the schema.
                let mut text = String::new();
                for part in path.iter().rev() {
                    let _ = match part {
                        Part::Name(name) => {
                            write!(text, "/{}", name.replace('~', "~0").replace('/', "~1"))
                        }
                        Part::Index(index) => write!(text, "/{index}"),
                    };
                }
                match text.is_empty() {
                    true => ToolError::invalid(reason),
                    false => ToolError::invalid(format!("at {text}: {reason}")),
                }
            }
        }
    }
}

impl From<OutOfMemory> for LowerError {
    fn from(refused: OutOfMemory) -> Self {
        Self::Memory(refused)
    }
}

/// Converts the arguments of a call, and charges the memory of the values to it.
pub(crate) fn arguments(
    parameters: &[(String, WitType)],
    arguments: &Map<String, Value>,
    memory: &mut Reservation,
) -> Result<Vec<Val>, LowerError> {
    let mut lower = Lower { memory, room: 0 };
    let fields = lower.fields(parameters, arguments, "parameter")?;
    let unused = lower.room as u64;
    memory.shrink(unused);
    Ok(fields.into_iter().map(|(_, value)| value).collect())
}

struct Lower<'a> {
    memory: &'a mut Reservation,
    /// Bytes that are charged and not used yet.
    room: usize,
}

impl Lower<'_> {
    /// Charges bytes, in pieces of [`CHARGED_AT_ONCE`] while there is memory for them.
    fn charge(&mut self, bytes: usize) -> Result<(), LowerError> {
        let Some(missing) = bytes.checked_sub(self.room).filter(|missing| *missing > 0) else {
            self.room -= bytes;
            return Ok(());
        };
        let ahead = missing.saturating_add(CHARGED_AT_ONCE) as u64;
        let has_room = self.memory.left() >= ahead;
        self.memory.grow(if has_room { ahead } else { missing as u64 })?;
        self.room = if has_room { CHARGED_AT_ONCE } else { 0 };
        Ok(())
    }

    /// Converts a value. Its allocations are charged, and the value itself by that which contains it.
    fn value(&mut self, ty: &WitType, value: &Value) -> Result<Val, LowerError> {
        Ok(match ty {
            WitType::Bool => Val::Bool(value.as_bool().ok_or_else(|| expected("true or false", value))?),
            WitType::S8 => Val::S8(integer(value)?),
            WitType::S16 => Val::S16(integer(value)?),
            WitType::S32 => Val::S32(integer(value)?),
            WitType::U8 => Val::U8(integer(value)?),
            WitType::U16 => Val::U16(integer(value)?),
            WitType::U32 => Val::U32(integer(value)?),
            WitType::S64 => Val::S64(long(value)?),
            WitType::U64 => Val::U64(long(value)?),
            WitType::F32 => Val::Float32(single(float(value)?)?),
            WitType::F64 => Val::Float64(float(value)?),
            WitType::Char => {
                let text = text(value)?;
                let mut chars = text.chars();
                match (chars.next(), chars.next()) {
                    (Some(only), None) => Val::Char(only),
                    _ => {
                        let count = text.chars().count();
                        return Err(LowerError::invalid(format!(
                            "expected one character, found {count}"
                        )));
                    }
                }
            }
            WitType::String => {
                let text = text(value)?;
                self.charge(text.len())?;
                Val::String(text.to_owned())
            }
            WitType::Bytes => self.bytes(value)?,
            WitType::List(item) => Val::List(self.items(list(value)?, std::iter::repeat(&**item))?),
            WitType::Tuple(types) => {
                let items = list(value)?;
                if items.len() != types.len() {
                    return Err(LowerError::invalid(format!(
                        "expected {} elements, found {}",
                        types.len(),
                        items.len()
                    )));
                }
                Val::Tuple(self.items(items, types.iter())?)
            }
            WitType::FixedList(item, length) => {
                let items = list(value)?;
                if items.len() as u64 != u64::from(*length) {
                    return Err(LowerError::invalid(format!(
                        "expected {length} elements, found {}",
                        items.len()
                    )));
                }
                Val::FixedLengthList(self.items(items, std::iter::repeat(&**item))?)
            }
            WitType::Map(key, item) if **key == WitType::String => {
                let object = value.as_object().ok_or_else(|| expected("an object", value))?;
                let names: usize = object.keys().map(String::len).sum();
                self.charge(names.saturating_add(object.len().saturating_mul(PAIR)))?;
                let pairs = object.iter().map(|(name, value)| {
                    let value = self.value(item, value);
                    let value = value.map_err(|e| e.inside(|| Part::Name(shown(name))))?;
                    Ok((Val::String(name.clone()), value))
                });
                Val::Map(pairs.collect::<Result<_, LowerError>>()?)
            }
            WitType::Map(key, item) => Val::Map(self.pairs(key, item, list(value)?)?),
            WitType::Record(fields) => {
                let object = value.as_object().ok_or_else(|| expected("an object", value))?;
                Val::Record(self.fields(fields, object, "field")?)
            }
            WitType::Variant(cases) => {
                let names = || cases.keys().map(String::as_str);
                let find = |name: &str| {
                    let (name, ty) = cases.get_key_value(name)?;
                    Some((name.as_str(), ty.as_ref()))
                };
                let (name, payload) = self.case(value, names, find)?;
                self.charge(name.len())?;
                Val::Variant(name.to_owned(), payload)
            }
            WitType::Result(ok, err) => {
                let cases = [("ok", ok.as_deref()), ("err", err.as_deref())];
                let names = || ["ok", "err"].into_iter();
                let find = |name: &str| cases.into_iter().find(|(case, _)| *case == name);
                let (name, payload) = self.case(value, names, find)?;
                Val::Result(match name {
                    "ok" => Ok(payload),
                    _ => Err(payload),
                })
            }
            WitType::Enum(names) => Val::Enum(self.name(names, value, "value")?),
            WitType::Flags(names) => {
                let chosen = list(value)?;
                self.charge(chosen.len().saturating_mul(size_of::<String>()))?;
                let mut flags: Vec<String> = Vec::with_capacity(chosen.len());
                for (index, flag) in chosen.iter().enumerate() {
                    let part = || Part::Index(index);
                    let flag = self.name(names, flag, "flag").map_err(|e| e.inside(part))?;
                    if flags.contains(&flag) {
                        let twice = LowerError::invalid(format!("the flag `{flag}` is there twice"));
                        return Err(twice.inside(part));
                    }
                    flags.push(flag);
                }
                Val::Flags(flags)
            }
            WitType::Option(_) if value.is_null() => Val::Option(None),
            WitType::Option(ty) => {
                let inner = match ty.has_null() {
                    false => self.value(ty, value)?,
                    // The value of an option in an option.
                    true => match list(value)? {
                        [only] => self.value(ty, only).map_err(|e| e.inside(|| Part::Index(0)))?,
                        items => {
                            return Err(LowerError::invalid(format!(
                                "expected null or an array of one element, found {}",
                                items.len()
                            )));
                        }
                    },
                };
                self.charge(size_of::<Val>())?;
                Val::Option(Some(Box::new(inner)))
            }
        })
    }

    fn items<'a>(
        &mut self,
        items: &[Value],
        types: impl Iterator<Item = &'a WitType>,
    ) -> Result<Vec<Val>, LowerError> {
        self.charge(items.len().saturating_mul(size_of::<Val>()))?;
        let mut values = Vec::with_capacity(items.len());
        for (index, (item, ty)) in items.iter().zip(types).enumerate() {
            values.push(
                self.value(ty, item)
                    .map_err(|e| e.inside(|| Part::Index(index)))?,
            );
        }
        Ok(values)
    }

    /// Converts arrays with a key and a value.
    fn pairs(
        &mut self,
        key: &WitType,
        item: &WitType,
        pairs: &[Value],
    ) -> Result<Vec<(Val, Val)>, LowerError> {
        self.charge(pairs.len().saturating_mul(PAIR))?;
        let mut converted = Vec::with_capacity(pairs.len());
        let mut keys = HashSet::with_capacity(pairs.len());
        for (index, pair) in pairs.iter().enumerate() {
            let inside = |e: LowerError| e.inside(|| Part::Index(index));
            let [name, value] = list(pair).map_err(inside)? else {
                let reason = "expected an array with a key and a value";
                return Err(inside(LowerError::invalid(reason)));
            };
            let in_pair = |part: usize| move |e: LowerError| e.inside(|| Part::Index(part));
            let name = self.value(key, name).map_err(in_pair(0)).map_err(inside)?;
            if !keys.insert(format!("{name:?}")) {
                return Err(inside(LowerError::invalid("its key is there twice")));
            }
            let value = self.value(item, value).map_err(in_pair(1)).map_err(inside)?;
            converted.push((name, value));
        }
        Ok(converted)
    }

    fn fields(
        &mut self,
        fields: &[(String, WitType)],
        object: &Map<String, Value>,
        kind: &str,
    ) -> Result<Vec<(String, Val)>, LowerError> {
        let names = || fields.iter().map(|(name, _)| name.as_str());
        if let Some(unknown) = (object.keys()).find(|key| !names().any(|name| name == key.as_str())) {
            return Err(LowerError::invalid(unknown_name(unknown, names(), kind)));
        }
        let texts: usize = names().map(str::len).sum();
        let pairs = fields.len().saturating_mul(size_of::<(String, Val)>());
        self.charge(texts.saturating_add(pairs))?;
        let mut values = Vec::with_capacity(fields.len());
        for (name, ty) in fields {
            let value = match (object.get(name), ty) {
                (Some(value), _) => self
                    .value(ty, value)
                    .map_err(|e| e.inside(|| Part::Name(name.clone())))?,
                (None, WitType::Option(_)) => Val::Option(None),
                (None, _) => return Err(LowerError::invalid(format!("the {kind} `{name}` is missing"))),
            };
            values.push((name.clone(), value));
        }
        Ok(values)
    }

    /// Converts an object with a tag, and returns the tag and the value.
    fn case<'a, N>(
        &mut self,
        value: &Value,
        names: impl Fn() -> N,
        find: impl Fn(&str) -> Option<(&'a str, Option<&'a WitType>)>,
    ) -> Result<(&'a str, Option<Box<Val>>), LowerError>
    where
        N: Iterator<Item = &'a str> + Clone,
    {
        let object = (value.as_object()).ok_or_else(|| expected("an object with a `tag`", value))?;
        let Some(tag) = object.get("tag") else {
            let reason = format!("the `tag` is missing; {}", there_are(names()));
            return Err(LowerError::invalid(reason));
        };
        let at_tag = || Part::Name("tag".into());
        let tag = text(tag).map_err(|e| e.inside(at_tag))?;
        let Some((name, ty)) = find(tag) else {
            let reason = unknown_name(tag, names(), "case");
            return Err(LowerError::invalid(reason).inside(at_tag));
        };
        if let Some(unknown) = object.keys().find(|key| !matches!(key.as_str(), "tag" | "value")) {
            let names = ["tag", "value"].into_iter();
            return Err(LowerError::invalid(unknown_name(unknown, names, "field")));
        }
        let at_value = || Part::Name("value".into());
        let payload = match (ty, object.get("value")) {
            (None, None) => return Ok((name, None)),
            (None, Some(_)) => {
                let reason = format!("the case `{name}` has no value");
                return Err(LowerError::invalid(reason).inside(at_value));
            }
            (Some(ty), Some(value)) => self.value(ty, value).map_err(|e| e.inside(at_value))?,
            (Some(WitType::Option(_)), None) => Val::Option(None),
            (Some(_), None) => {
                let reason = format!("the case `{name}` needs a `value`");
                return Err(LowerError::invalid(reason));
            }
        };
        self.charge(size_of::<Val>())?;
        Ok((name, Some(Box::new(payload))))
    }

    fn name(&mut self, names: &IndexSet<String>, value: &Value, kind: &str) -> Result<String, LowerError> {
        let name = text(value)?;
        if !names.contains(name) {
            let names = names.iter().map(String::as_str);
            return Err(LowerError::invalid(unknown_name(name, names, kind)));
        }
        self.charge(name.len())?;
        Ok(name.to_owned())
    }

    fn bytes(&mut self, value: &Value) -> Result<Val, LowerError> {
        let text = text(value)?;
        // Decoded, and as values.
        let most = text.len() / 4 * 3 + 3;
        self.charge(most.saturating_mul(1 + size_of::<Val>()))?;
        let bytes = BASE64
            .decode(text)
            .map_err(|error| LowerError::invalid(format!("expected base64 (RFC 4648): {error}")))?;
        Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
    }
}

/// Returns a name of the arguments for an error, cut if it is long.
fn shown(name: &str) -> String {
    match name.len() {
        0..=MAX_SHOWN => name.escape_debug().to_string(),
        _ => format!("{}…", name[..name.floor_char_boundary(MAX_SHOWN)].escape_debug()),
    }
}

fn text(value: &Value) -> Result<&str, LowerError> {
    value.as_str().ok_or_else(|| expected("a string", value))
}

fn list(value: &Value) -> Result<&[Value], LowerError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(expected("an array", other)),
    }
}

pub(super) fn expected(what: &str, found: &Value) -> LowerError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    LowerError::invalid(format!("expected {what}, found {found}"))
}

fn unknown_name<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone, kind: &str) -> String {
    let mut text = match name.len() {
        0..=MAX_SHOWN => format!("there is no {kind} `{}`", name.escape_debug()),
        length => format!("there is no {kind} with a name of {length} bytes"),
    };
    if name.len() <= MAX_SHOWN {
        let all: Vec<&str> = known.clone().take(1_000).collect();
        if let Some(near) = nearest(name, &all).first() {
            let _ = write!(text, " (did you mean `{near}`?)");
        }
    }
    let _ = write!(text, "; {}", there_are(known));
    text
}

fn there_are<'a>(known: impl Iterator<Item = &'a str> + Clone) -> String {
    let count = known.clone().count();
    let listed: Vec<String> = known.take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    match count.saturating_sub(MAX_LISTED) {
        0 if count == 0 => "there are none".into(),
        0 if count == 1 => format!("there is {}", listed.join("")),
        0 => format!("there are {}", listed.join(", ")),
        more => format!("there are {} and {more} more", listed.join(", ")),
    }
}
