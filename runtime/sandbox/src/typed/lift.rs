//! Conversion of results from values of the component model to JSON.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use wasmtime::component::Val;

use crate::typed::schema::MAX_SAFE_INTEGER;
use crate::typed::wit_type::WitType;

/// Takes a part of `left` for each part of a value. Returns false if they are too many.
pub(crate) fn is_within(value: &Val, left: &mut usize) -> bool {
    let own = match value {
        Val::String(text) => 1 + text.len() / size_of::<Val>(),
        Val::List(items) | Val::FixedLengthList(items) | Val::Tuple(items) => 1 + items.len(),
        Val::Map(pairs) => 1 + 2 * pairs.len(),
        Val::Record(fields) => 1 + fields.len(),
        Val::Flags(names) => 1 + names.len(),
        _ => 1,
    };
    let Some(rest) = left.checked_sub(own) else {
        return false;
    };
    *left = rest;
    match value {
        Val::List(items) if matches!(items.first(), Some(Val::U8(_))) => true,
        Val::List(items) | Val::FixedLengthList(items) | Val::Tuple(items) => {
            items.iter().all(|item| is_within(item, left))
        }
        Val::Map(pairs) => pairs
            .iter()
            .all(|(key, value)| is_within(key, left) && is_within(value, left)),
        Val::Record(fields) => fields.iter().all(|(_, field)| is_within(field, left)),
        Val::Variant(_, Some(payload))
        | Val::Option(Some(payload))
        | Val::Result(Ok(Some(payload)) | Err(Some(payload))) => is_within(payload, left),
        _ => true,
    }
}

/// Returns the bytes of host memory that a value and its JSON take together, at most.
pub(crate) fn price(value: &Val) -> u64 {
    const NODE: u64 = (size_of::<Val>() + 2 * size_of::<Value>()) as u64;
    let below = match value {
        Val::String(text) | Val::Enum(text) => 2 * allocated(text.len()),
        // In base64.
        Val::List(items) if matches!(items.first(), Some(Val::U8(_))) => {
            return NODE + items.len() as u64 * (size_of::<Val>() as u64 + 3);
        }
        Val::List(items) | Val::FixedLengthList(items) | Val::Tuple(items) => items.iter().map(price).sum(),
        // As an object or as an array of arrays.
        Val::Map(pairs) => {
            let pairs_of = |(key, value): &(Val, Val)| 2 * NODE + price(key) + price(value);
            object(pairs.len()) + pairs.iter().map(pairs_of).sum::<u64>()
        }
        Val::Record(fields) => {
            let members = fields
                .iter()
                .map(|(name, value)| 2 * name_bytes(name) + price(value));
            object(fields.len()) + members.sum::<u64>()
        }
        Val::Variant(name, payload) => object(2) + 2 * name_bytes(name) + payload.as_deref().map_or(0, price),
        Val::Option(payload) => payload.as_deref().map_or(0, |payload| NODE + price(payload)),
        Val::Result(Ok(payload) | Err(payload)) => object(2) + payload.as_deref().map_or(0, price),
        Val::Flags(names) => names.iter().map(|name| NODE + 2 * name_bytes(name)).sum(),
        _ => 0,
    };
    NODE + below
}

/// Returns the bytes of the tree of a JSON object: a `BTreeMap`, of which a leaf has room for eleven members and is at least
/// half full, besides the first.
fn object(members: usize) -> u64 {
    const LEAF: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 4 * size_of::<usize>();
    (members.div_ceil(5).max(1) * LEAF) as u64
}

/// Returns the bytes of a name: a text of its own.
fn name_bytes(name: &str) -> u64 {
    size_of::<String>() as u64 + allocated(name.len())
}

/// Returns the bytes that an allocator takes for a text.
fn allocated(bytes: usize) -> u64 {
    if bytes == 0 { 0 } else { bytes as u64 + 16 }
}

/// Converts a value of this type. Once `stop` is set, the rest of its lists is left out.
pub(crate) fn json(value: Val, ty: &WitType, stop: &AtomicBool) -> Value {
    match (value, ty) {
        (Val::Bool(value), _) => value.into(),
        (Val::S8(value), _) => value.into(),
        (Val::S16(value), _) => value.into(),
        (Val::S32(value), _) => value.into(),
        (Val::U8(value), _) => value.into(),
        (Val::U16(value), _) => value.into(),
        (Val::U32(value), _) => value.into(),
        (Val::S64(value), _) if value.unsigned_abs() <= MAX_SAFE_INTEGER => value.into(),
        (Val::S64(value), _) => value.to_string().into(),
        (Val::U64(value), _) if value <= MAX_SAFE_INTEGER => value.into(),
        (Val::U64(value), _) => value.to_string().into(),
        (Val::Float32(value), _) => single(value),
        (Val::Float64(value), _) => float(value),
        (Val::Char(value), _) => value.to_string().into(),
        (Val::String(value) | Val::Enum(value), _) => value.into(),
        (Val::List(items), WitType::Bytes) => {
            let byte = |item: Val| match item {
                Val::U8(byte) => byte,
                _ => 0,
            };
            STANDARD
                .encode(items.into_iter().map(byte).collect::<Vec<u8>>())
                .into()
        }
        (Val::List(items), WitType::List(item)) => (items.into_iter())
            .take_while(|_| !stop.load(Relaxed))
            .map(|value| json(value, item, stop))
            .collect(),
        (Val::FixedLengthList(items), WitType::FixedList(item, _)) => (items.into_iter())
            .take_while(|_| !stop.load(Relaxed))
            .map(|value| json(value, item, stop))
            .collect(),
        (Val::Map(pairs), WitType::Map(key, item)) => map(pairs, key, item, stop),
        (Val::Tuple(items), WitType::Tuple(types)) => (items.into_iter())
            .zip(types)
            .map(|(value, ty)| json(value, ty, stop))
            .collect(),
        (Val::Record(fields), WitType::Record(types)) => {
            let fields = fields.into_iter().zip(types);
            let fields: Map<String, Value> = fields
                .map(|((name, value), (_, ty))| (name, json(value, ty, stop)))
                .collect();
            fields.into()
        }
        (Val::Variant(name, payload), WitType::Variant(cases)) => {
            let ty = cases.get(&name).and_then(Option::as_ref);
            tagged(&name, payload, ty, stop)
        }
        (Val::Result(result), WitType::Result(ok, err)) => match result {
            Ok(payload) => tagged("ok", payload, ok.as_deref(), stop),
            Err(payload) => tagged("err", payload, err.as_deref(), stop),
        },
        (Val::Option(Some(value)), WitType::Option(ty)) if ty.has_null() => json!([json(*value, ty, stop)]),
        (Val::Option(Some(value)), WitType::Option(ty)) => json(*value, ty, stop),
        (Val::Option(None), _) => Value::Null,
        (Val::Flags(names), _) => names.into(),
        // The engine returns only values of the type.
        _ => Value::Null,
    }
}

/// Converts a map. Of values with the same key the last counts.
fn map(pairs: Vec<(Val, Val)>, key: &WitType, item: &WitType, stop: &AtomicBool) -> Value {
    let pairs = pairs.into_iter().take_while(|_| !stop.load(Relaxed));
    if *key != WitType::String {
        return pairs
            .map(|(name, value)| json!([json(name, key, stop), json(value, item, stop)]))
            .collect();
    }
    let members = pairs.map(|(name, value)| match name {
        Val::String(name) => (name, json(value, item, stop)),
        // The engine returns only values of the type.
        _ => (String::new(), json(value, item, stop)),
    });
    Value::Object(members.collect())
}

fn tagged(tag: &str, payload: Option<Box<Val>>, ty: Option<&WitType>, stop: &AtomicBool) -> Value {
    match (payload, ty) {
        (Some(payload), Some(ty)) => json!({ "tag": tag, "value": json(*payload, ty, stop) }),
        _ => json!({ "tag": tag }),
    }
}

fn float(value: f64) -> Value {
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        value => value.into(),
    }
}

/// Converts to the shortest decimal number that is this one again.
fn single(value: f32) -> Value {
    let exact = f64::from(value);
    let short: f64 = value.to_string().parse().unwrap_or(exact);
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it came from")]
    let is_same = short as f32 == value;
    float(if is_same { short } else { exact })
}
