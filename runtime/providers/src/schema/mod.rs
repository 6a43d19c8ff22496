//! Conversions of schemas for providers.
//!
//! A tool has one schema (JSON Schema 2020-12). It is sent unchanged to providers that accept it, and converted for
//! others. A conversion may only widen the schema or express it differently: every argument is checked against the
//! tool's own schema afterwards, and values in a different form are converted back before that
//! ([`strict::Strict::restore`]).

mod gemini;
mod inline;
mod ollama;
pub(crate) mod strict;

use serde_json::{Map, Value};

pub(crate) use gemini::gemini;
pub(crate) use ollama::ollama;
pub(crate) use strict::Strict;

/// Keywords that annotate a value without constraining it.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$id",
    "$defs",
];

/// Returns a schema whose root has no `anyOf`, `oneOf` or `allOf`, which Anthropic and Gemini refuse there.
pub(crate) fn plain_root(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(map) = &mut schema {
        for keyword in ["$schema", "anyOf", "oneOf", "allOf"] {
            map.remove(keyword);
        }
    }
    schema
}

/// Constraints that Anthropic's structured output refuses (<https://docs.anthropic.com/en/api/messages>,
/// `output_config.format`). Without them the schema guarantees less.
const NOT_PROMISED: &[&str] = &[
    "$schema",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
];

/// Converts a schema for Anthropic's structured output: objects are closed, and unsupported constraints are dropped.
pub(crate) fn closed(schema: &Value) -> Value {
    let mut schema = schema.clone();
    close(&mut schema);
    schema
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.retain(|keyword, value| {
                let is_refused = keyword == "minItems" && value.as_u64().is_none_or(|n| n > 1);
                !is_refused && !NOT_PROMISED.contains(&keyword.as_str())
            });
            if map.get("type").is_some_and(|t| t == "object") && !map.contains_key("additionalProperties") {
                map.insert("additionalProperties".into(), false.into());
            }
            // A property may be called `type`; only schemas are closed, not data that looks like one (`const`, `enum`,
            // `default`).
            for (keyword, value) in map.iter_mut() {
                match keyword.as_str() {
                    "properties" | "$defs" => {
                        if let Value::Object(inner) = value {
                            inner.values_mut().for_each(close);
                        }
                    }
                    "items" | "anyOf" | "oneOf" | "allOf" | "prefixItems" => close(value),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// The types of a schema without `null`, and whether `null` is among them.
fn types(map: &Map<String, Value>) -> (Vec<&str>, bool) {
    let named: Vec<&str> = match map.get("type") {
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let nullable = named.contains(&"null");
    (
        named.into_iter().filter(|name| *name != "null").collect(),
        nullable,
    )
}

/// True if `null` fits a schema whose references are resolved.
fn takes_null(schema: &Value) -> bool {
    let Value::Object(map) = schema else {
        return *schema == Value::Bool(true);
    };
    let named = match map.get("type") {
        None => true,
        Some(_) => types(map).1,
    };
    let listed = map
        .get("enum")
        .is_none_or(|values| values.as_array().is_some_and(|v| v.contains(&Value::Null)));
    let constant = map.get("const").is_none_or(Value::is_null);
    let any = ["anyOf", "oneOf"].iter().all(|keyword| {
        map.get(*keyword)
            .and_then(Value::as_array)
            .is_none_or(|forms| forms.iter().any(takes_null))
    });
    named && listed && constant && any
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn closing_affects_every_object_schema_and_no_data() {
        let schema = json!({
            "type": "object",
            "properties": {
                "type": {"type": "string", "const": {"type": "object"}},
                "list": {"type": "array", "items": {"type": "object"}},
                "open": {"type": "object", "additionalProperties": true},
                "minimum": {"type": "integer", "minimum": 1, "description": "Least."},
                "some": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "maxLength": 9}},
            },
        });
        let closed = closed(&schema);
        assert_eq!(closed["additionalProperties"], false);
        assert_eq!(
            closed["properties"]["list"]["items"]["additionalProperties"],
            false
        );
        assert_eq!(closed["properties"]["open"]["additionalProperties"], true);
        assert_eq!(
            closed["properties"]["minimum"],
            json!({"type": "integer", "description": "Least."})
        );
        assert_eq!(
            closed["properties"]["some"],
            json!({"type": "array", "minItems": 1, "items": {"type": "string"}})
        );
        assert_eq!(closed["properties"]["type"], schema["properties"]["type"]);
    }

    #[test]
    fn null_fits_nullable_schemas_only() {
        for (schema, takes) in [
            (json!({}), true),
            (json!({"type": "string"}), false),
            (json!({"type": ["string", "null"]}), true),
            (json!({"type": ["string", "null"], "enum": ["a"]}), false),
            (json!({"enum": ["a", null]}), true),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), true),
            (json!({"anyOf": [{"type": "string"}]}), false),
            (json!({"const": 1}), false),
        ] {
            assert_eq!(takes_null(&schema), takes, "{schema}");
        }
    }
}
