//! Keywords of JSON schemas: which of them constrain, and what they say of types.

use serde_json::{Map, Value};

/// Keywords that constrain a value and that grammars do not know.
pub(super) const UNKNOWN: [&str; 14] = [
    "not",
    "if",
    "multipleOf",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "uniqueItems",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "format",
];

/// True for keywords that are no annotations.
pub(super) fn constrains(key: &str) -> bool {
    !matches!(
        key,
        "title"
            | "description"
            | "default"
            | "examples"
            | "$defs"
            | "definitions"
            | "$schema"
            | "$id"
            | "$comment"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
            | "discriminator"
    )
}

/// Type that keywords without a type are about.
pub(super) fn implied(keys: &Map<String, Value>) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().any(|name| keys.contains_key(*name));
    if has(&[
        "properties",
        "required",
        "additionalProperties",
        "minProperties",
        "maxProperties",
    ]) {
        return Some("object");
    }
    if has(&["items", "prefixItems", "minItems", "maxItems"]) {
        return Some("array");
    }
    if has(&["pattern", "minLength", "maxLength"]) {
        return Some("string");
    }
    has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]).then_some("number")
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// True if a value has one of the types of a schema.
pub(super) fn is_of_type(value: &Value, types: Option<&Value>) -> bool {
    let own = type_of(value);
    let is = |kind: &str| kind == own || (kind == "number" && own == "integer");
    match types {
        Some(Value::String(kind)) => is(kind),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

/// True if no value matches two of the schemas: they have different types, or a property with different constants.
pub(super) fn are_disjoint(schemas: &[Value]) -> bool {
    let types: Vec<Option<&str>> = (schemas.iter())
        .map(|schema| match schema.get("const") {
            Some(value) => Some(type_of(value)),
            None => schema.get("type").and_then(Value::as_str),
        })
        .collect();
    let is_number = |kind: &str| matches!(kind, "integer" | "number");
    let pairs = |is_apart: &dyn Fn(usize, usize) -> bool| {
        (0..schemas.len()).all(|one| (0..one).all(|other| is_apart(one, other)))
    };
    pairs(&|one, other| match (types[one], types[other]) {
        (Some(a), Some(b)) if a != b && !(is_number(a) && is_number(b)) => true,
        _ => match (schemas[one].get("const"), schemas[other].get("const")) {
            (Some(a), Some(b)) => a != b,
            _ => has_tag(&schemas[one], &schemas[other]),
        },
    })
}

/// True if both require a property whose constants differ.
fn has_tag(one: &Value, other: &Value) -> bool {
    let constant = |schema: &Value, name: &str| -> Option<Value> {
        let required = schema.get("required")?.as_array()?;
        required.iter().find(|required| *required == name)?;
        schema.get("properties")?.get(name)?.get("const").cloned()
    };
    let names = one.get("properties").and_then(Value::as_object);
    names.is_some_and(|names| {
        names
            .keys()
            .any(|name| matches!((constant(one, name), constant(other, name)), (Some(a), Some(b)) if a != b))
    })
}

/// Pointer of a fragment whose percent signs are decoded.
pub(super) fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
