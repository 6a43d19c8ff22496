//! JSON Schemas (2020-12) of parameters and results.
//!
//! | type | JSON |
//! |---|---|
//! | `u8` to `u32`, `s8` to `s32` | a number within the bounds of the type |
//! | `u64`, `s64` | a number, or its decimal digits as a string |
//! | `f32`, `f64` | a number, or `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | `char` | a string of one character |
//! | `list<u8>` | a string in base64 |
//! | `list` | an array |
//! | `list` of fixed length, `tuple` | an array of that length |
//! | `map` with texts as keys | an object |
//! | another `map` | an array of arrays with a key and a value |
//! | `record` | an object |
//! | `option` | `null` or the value; in a record and as a parameter it can be left out. The value of an option in an option is an array of one element |
//! | `enum` | one of its names |
//! | `flags` | an array of names, each once |
//! | `variant` | an object with `tag`, and `value` if the case has one |
//! | `result` in another type | as a variant with the cases `ok` and `err` |
//!
//! Doc comments of types, fields and cases are descriptions.

use indexmap::IndexSet;
use serde_json::{Map, Value, json};
use toolcell_core::schema::{MAX_SCHEMA_BYTES, MAX_SCHEMA_ENTRIES};

use crate::typed::comments::Comments;
use crate::typed::docs::TypeDocs;
use crate::typed::wit_type::{Unsupported, WitType};

/// Largest integer that every JSON parser keeps exactly: 2^53 - 1 (RFC 8259, section 6).
pub(crate) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Name of the only member of a result that is no object itself.
pub(crate) const RESULT: &str = "result";

/// Returns the schema of the arguments of a function.
pub(crate) fn of_parameters(parameters: &[(String, WitType)], comments: &Comments<'_>) -> Value {
    of_fields(parameters, None, comments)
}

/// Returns the schema of the structured result of a function; `None` if it returns nothing.
pub(crate) fn of_result(result: Option<&WitType>, comments: &Comments<'_>) -> Option<Value> {
    let value = match result? {
        WitType::Result(ok, _) => ok.as_deref()?,
        other => other,
    };
    Some(match value {
        WitType::Record(_) => of(value, comments),
        other => json!({
            "type": "object",
            "properties": { RESULT: of(other, comments) },
            "required": [RESULT],
            "additionalProperties": false,
        }),
    })
}

/// Checks that the schemas of a function have at most the size of other schemas.
pub(crate) fn check(parameters: &[(String, WitType)], result: Option<&WitType>) -> Result<(), Unsupported> {
    let comments = Comments::default();
    for schema in std::iter::once(of_parameters(parameters, &comments)).chain(of_result(result, &comments)) {
        if schema.to_string().len() > MAX_SCHEMA_BYTES {
            return Err(Unsupported("the schema of its types has more than 64 KiB"));
        }
        if has_long_list(&schema) {
            return Err(Unsupported("one of its types has more than 2000 members"));
        }
    }
    Ok(())
}

fn has_long_list(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.len() > MAX_SCHEMA_ENTRIES || items.iter().any(has_long_list),
        Value::Object(members) => members.len() > MAX_SCHEMA_ENTRIES || members.values().any(has_long_list),
        _ => false,
    }
}

/// Returns the schema of a type.
pub(crate) fn of(ty: &WitType, comments: &Comments<'_>) -> Value {
    let docs = comments.of_type(ty);
    let mut schema = plain(ty, docs, comments);
    let text = docs.and_then(|docs| match ty {
        WitType::Enum(names) | WitType::Flags(names) => with_items(docs, names),
        _ => docs.text().map(str::to_owned),
    });
    if let Some(text) = text {
        schema["description"] = text.into();
    }
    schema
}

/// The comment of a type, with those of its cases or flags.
fn with_items(docs: &TypeDocs, names: &IndexSet<String>) -> Option<String> {
    let items = names
        .iter()
        .filter_map(|name| Some(format!("- `{name}`: {}", docs.of_item(name)?)));
    let lines: Vec<String> = docs.text().map(str::to_owned).into_iter().chain(items).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn plain(ty: &WitType, docs: Option<&TypeDocs>, comments: &Comments<'_>) -> Value {
    let of = |ty: &WitType| of(ty, comments);
    match ty {
        WitType::Bool => json!({ "type": "boolean" }),
        WitType::S8 => integer(i8::MIN.into(), i8::MAX.into()),
        WitType::S16 => integer(i16::MIN.into(), i16::MAX.into()),
        WitType::S32 => integer(i32::MIN.into(), i32::MAX.into()),
        WitType::U8 => integer(0, u8::MAX.into()),
        WitType::U16 => integer(0, u16::MAX.into()),
        WitType::U32 => integer(0, u32::MAX.into()),
        // The bounds hold for numbers, the pattern for strings.
        WitType::S64 => json!({
            "type": ["integer", "string"], "minimum": i64::MIN, "maximum": i64::MAX, "pattern": "^-?[0-9]{1,19}$",
        }),
        WitType::U64 => json!({
            "type": ["integer", "string"], "minimum": 0, "maximum": u64::MAX, "pattern": "^[0-9]{1,20}$",
        }),
        WitType::F32 | WitType::F64 => json!({
            "type": ["number", "string"], "pattern": "^(NaN|-?Infinity)$",
        }),
        WitType::Char => json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
        WitType::String => json!({ "type": "string" }),
        WitType::Bytes => json!({
            "type": "string", "contentEncoding": "base64", "contentMediaType": "application/octet-stream",
        }),
        WitType::List(item) => json!({ "type": "array", "items": of(item) }),
        WitType::FixedList(item, length) => json!({
            "type": "array", "items": of(item), "minItems": length, "maxItems": length,
        }),
        WitType::Map(key, item) if **key == WitType::String => json!({
            "type": "object", "additionalProperties": of(item),
        }),
        WitType::Map(key, item) => json!({
            "type": "array", "items": of_tuple([&**key, &**item].into_iter(), comments),
        }),
        WitType::Record(fields) => of_fields(fields, docs, comments),
        WitType::Tuple(types) => of_tuple(types.iter(), comments),
        WitType::Variant(cases) => json!({
            "oneOf": cases
                .iter()
                .map(|(name, ty)| described(case(name, ty.as_ref(), comments), docs.and_then(|docs| docs.of_item(name))))
                .collect::<Vec<_>>(),
        }),
        WitType::Enum(names) => one_of(names),
        WitType::Flags(names) => json!({
            "type": "array", "items": one_of(names), "uniqueItems": true,
        }),
        WitType::Option(ty) if ty.has_null() => nullable(of_tuple(std::iter::once(&**ty), comments)),
        WitType::Option(ty) => nullable(of(ty)),
        WitType::Result(ok, err) => json!({
            "oneOf": [case("ok", ok.as_deref(), comments), case("err", err.as_deref(), comments)],
        }),
    }
}

fn one_of(names: &IndexSet<String>) -> Value {
    json!({ "type": "string", "enum": names.iter().collect::<Vec<_>>() })
}

fn integer(minimum: i64, maximum: i64) -> Value {
    json!({ "type": "integer", "minimum": minimum, "maximum": maximum })
}

fn of_fields(fields: &[(String, WitType)], docs: Option<&TypeDocs>, comments: &Comments<'_>) -> Value {
    let property = |(name, ty): &(String, WitType)| {
        let text = docs.and_then(|docs| docs.of_item(name));
        (name.clone(), described(of(ty, comments), text))
    };
    let properties: Map<String, Value> = fields.iter().map(property).collect();
    let required: Vec<&str> = (fields.iter())
        .filter(|(_, ty)| !matches!(ty, WitType::Option(_)))
        .map(|(name, _)| name.as_str())
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn of_tuple<'a>(types: impl ExactSizeIterator<Item = &'a WitType>, comments: &Comments<'_>) -> Value {
    let count = types.len();
    json!({
        "type": "array",
        "prefixItems": types.map(|ty| of(ty, comments)).collect::<Vec<_>>(),
        "items": false,
        "minItems": count,
        "maxItems": count,
    })
}

fn case(name: &str, ty: Option<&WitType>, comments: &Comments<'_>) -> Value {
    let mut properties = json!({ "tag": { "const": name } });
    let mut required = vec!["tag"];
    if let Some(ty) = ty {
        properties["value"] = of(ty, comments);
        if !matches!(ty, WitType::Option(_)) {
            required.push("value");
        }
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Adds the comment of a field or case to a schema, before that of its type.
fn described(mut schema: Value, text: Option<&str>) -> Value {
    if let Some(text) = text {
        let text = match schema["description"].as_str() {
            Some(of_type) => format!("{text}\n\n{of_type}"),
            None => text.to_owned(),
        };
        schema["description"] = text.into();
    }
    schema
}

/// Returns a schema that accepts `null` as well.
fn nullable(mut schema: Value) -> Value {
    match (schema.get("type").cloned(), schema.get("enum").is_some()) {
        (Some(Value::String(name)), false) => schema["type"] = json!([name, "null"]),
        (Some(Value::Array(mut names)), false) => {
            names.push("null".into());
            schema["type"] = names.into();
        }
        _ => return json!({ "anyOf": [schema, { "type": "null" }] }),
    }
    schema
}
