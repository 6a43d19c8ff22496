//! Conversion to Gemini's schema type, a subset of OpenAPI 3.0 (<https://ai.google.dev/api/caching#Schema>), for models
//! without `parametersJsonSchema`.
//!
//! Unsupported constraints are dropped: the model is told a wider schema, and arguments are checked against the full
//! one.

use serde_json::{Map, Value, json};

use super::inline::inline;
use super::types;

/// Converts the schema of a tool's arguments; `None` without properties, which the API cannot express.
pub(crate) fn gemini(schema: &Value) -> Option<Value> {
    let inlined = inline(schema).ok();
    let lowered = match &inlined {
        Some(schema) => node(schema),
        // A recursive schema cannot be expressed; its outermost level can.
        None => node(&without_references(schema)),
    };
    lowered.get("properties")?;
    Some(lowered)
}

fn without_references(schema: &Value) -> Value {
    match schema {
        Value::Object(map) if map.contains_key("$ref") => json!({"type": "object"}),
        Value::Object(map) => map
            .iter()
            .filter(|(keyword, _)| *keyword != "$defs")
            .map(|(keyword, value)| (keyword.clone(), without_references(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_references).collect(),
        other => other.clone(),
    }
}

fn node(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return json!({"type": "STRING"});
    };
    let mut out = Map::new();
    let (named, mut nullable) = types(map);
    for keyword in [
        "description",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "pattern",
    ] {
        if let Some(value) = map.get(keyword) {
            out.insert(keyword.into(), value.clone());
        }
    }
    let forms: Vec<Value> = ["anyOf", "oneOf"]
        .iter()
        .filter_map(|k| map.get(*k)?.as_array())
        .flatten()
        .filter(|form| {
            let is_null = form.get("type").is_some_and(|t| t == "null");
            nullable |= is_null;
            !is_null
        })
        .map(node)
        .collect();
    match (&forms[..], &named[..]) {
        ([only], []) => {
            // The only form besides `null` gets the annotations of the whole.
            let annotations = std::mem::take(&mut out);
            out = only.as_object().cloned().unwrap_or_default();
            out.extend(annotations);
        }
        ([_, ..], _) => {
            out.insert("anyOf".into(), forms.into());
        }
        ([], [_, _, ..]) => {
            let forms: Vec<Value> = named
                .iter()
                .map(|name| {
                    let mut single = map.clone();
                    single.remove("description");
                    single.insert("type".into(), json!(name));
                    node(&Value::Object(single))
                })
                .collect();
            out.insert("anyOf".into(), forms.into());
        }
        ([], _) => typed(map, named.first().copied(), &mut out),
    }
    if nullable {
        out.insert("nullable".into(), true.into());
    }
    Value::Object(out)
}

fn typed(map: &Map<String, Value>, named: Option<&str>, out: &mut Map<String, Value>) {
    let listed: Vec<&Value> = match (map.get("enum"), map.get("const")) {
        (Some(Value::Array(values)), _) => values.iter().filter(|v| !v.is_null()).collect(),
        (_, Some(value)) => vec![value],
        _ => Vec::new(),
    };
    let kind = named.unwrap_or(match listed.first() {
        Some(Value::Number(_)) => "number",
        Some(Value::Bool(_)) => "boolean",
        _ if map.contains_key("properties") => "object",
        _ if map.contains_key("items") => "array",
        _ => "string",
    });
    out.insert("type".into(), kind.to_uppercase().into());
    if kind == "string" && !listed.is_empty() && listed.iter().all(|v| v.is_string()) {
        out.insert("enum".into(), json!(listed));
        out.insert("format".into(), "enum".into());
    } else if !listed.is_empty() {
        // Only strings can be enumerated; numbers are listed in the description.
        let values: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let before = out.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = format!("{before} One of: {}.", values.join(", "));
        out.insert("description".into(), description.trim().into());
    }
    match kind {
        "string" if map.get("format").is_some_and(|f| f == "date-time") => {
            out.insert("format".into(), "date-time".into());
        }
        "object" => {
            if let Some(Value::Object(properties)) = map.get("properties")
                && !properties.is_empty()
            {
                let lowered: Map<String, Value> = properties
                    .iter()
                    .map(|(name, p)| (name.clone(), node(p)))
                    .collect();
                // The API refuses a required name without a property.
                let required: Vec<&Value> = map
                    .get("required")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter(|name| name.as_str().is_some_and(|name| lowered.contains_key(name)))
                    .collect();
                if !required.is_empty() {
                    out.insert("required".into(), json!(required));
                }
                out.insert("properties".into(), lowered.into());
            }
        }
        "array" => {
            // The API refuses an array without items.
            let items = map.get("items").map_or_else(|| json!({"type": "STRING"}), node);
            out.insert("items".into(), items);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn supported_keywords_are_converted() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {"Unit": {"oneOf": [{"const": "c"}, {"const": "f"}]}},
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "city": {"type": "string", "minLength": 1, "format": "hostname"},
                "when": {"type": ["string", "null"], "format": "date-time"},
                "days": {"type": "integer", "enum": [1, 3], "description": "How many."},
                "unit": {"$ref": "#/$defs/Unit"},
                "near": {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "Distance."},
                "both": {"type": ["string", "integer"]},
                "list": {"type": "array"},
            },
            "required": ["city", "ghost"],
        });
        assert_eq!(
            gemini(&schema).unwrap(),
            json!({
                "type": "OBJECT",
                "required": ["city"],
                "properties": {
                    "city": {"type": "STRING"},
                    "when": {"type": "STRING", "format": "date-time", "nullable": true},
                    "days": {"type": "INTEGER", "description": "How many. One of: 1, 3."},
                    "unit": {"anyOf": [
                        {"type": "STRING", "enum": ["c"], "format": "enum"},
                        {"type": "STRING", "enum": ["f"], "format": "enum"},
                    ]},
                    "near": {"type": "NUMBER", "description": "Distance.", "nullable": true},
                    "both": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
                    "list": {"type": "ARRAY", "items": {"type": "STRING"}},
                },
            })
        );
    }

    #[test]
    fn recursive_schema_is_converted_to_its_outermost_level() {
        let schema = json!({
            "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
            "type": "object",
            "properties": {"head": {"$ref": "#/$defs/Node"}},
        });
        assert_eq!(
            gemini(&schema).unwrap(),
            json!({"type": "OBJECT", "properties": {"head": {"type": "OBJECT"}}})
        );
        assert_eq!(gemini(&json!({"type": "object"})), None);
    }

    /// Any JSON made of JSON Schema keywords, valid or not.
    fn words() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!("string")),
            Just(json!("object")),
            Just(json!("null")),
            Just(json!(["string", "null"])),
            Just(json!(true)),
            Just(json!(3)),
            Just(Value::Null),
            Just(json!("#/$defs/a")),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::btree_map(
                    prop_oneof![
                        Just("type"),
                        Just("properties"),
                        Just("items"),
                        Just("anyOf"),
                        Just("oneOf"),
                        Just("enum"),
                        Just("const"),
                        Just("$ref"),
                        Just("$defs"),
                        Just("required"),
                        Just("a"),
                        Just("format"),
                        Just("additionalProperties"),
                        Just("description"),
                    ],
                    inner,
                    0..5
                )
                .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        })
    }

    /// Every keyword of a schema in the subset, except properties.
    fn keywords(schema: &Value, found: &mut Vec<String>) {
        if let Value::Object(map) = schema {
            for (keyword, value) in map {
                found.push(keyword.clone());
                match keyword.as_str() {
                    "properties" => value
                        .as_object()
                        .unwrap()
                        .values()
                        .for_each(|p| keywords(p, found)),
                    "items" => keywords(value, found),
                    "anyOf" => value.as_array().unwrap().iter().for_each(|f| keywords(f, found)),
                    _ => {}
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_schema_breaks_a_conversion(schema in words()) {
            let mut found = Vec::new();
            if let Some(lowered) = gemini(&schema) {
                keywords(&lowered, &mut found);
            }
            for keyword in found {
                prop_assert!(
                    ["type", "format", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties",
                     "required", "anyOf", "minimum", "maximum", "pattern"].contains(&keyword.as_str()),
                    "{}", keyword
                );
            }
            let _ = super::super::ollama(&schema);
            let _ = super::super::Strict::of(&schema);
            let _ = super::super::closed(&schema);
        }
    }
}
