//! Conversion to the schema keywords that Ollama's templates show a model: `type`, `description`, `enum`, `items`,
//! `properties`, `required`, `anyOf`. The server drops others silently, so that constraints are expressed with these
//! where possible.

use serde_json::{Map, Value, json};

use super::inline::inline;

/// Converts the schema of a tool's arguments.
pub(crate) fn ollama(schema: &Value) -> Value {
    // A recursive schema keeps its references, which the server does not resolve.
    let inlined = inline(schema).unwrap_or_else(|_| schema.clone());
    node(&inlined)
}

fn node(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return json!({});
    };
    let mut out = Map::new();
    for (keyword, value) in map {
        match keyword.as_str() {
            "type" | "description" | "enum" | "required" => {
                out.insert(keyword.clone(), value.clone());
            }
            "const" => {
                out.insert("enum".into(), json!([value]));
            }
            "items" => {
                out.insert("items".into(), node(value));
            }
            "anyOf" | "oneOf" => {
                let forms: Vec<Value> = value.as_array().into_iter().flatten().map(node).collect();
                out.insert("anyOf".into(), forms.into());
            }
            "properties" => {
                let properties: Map<String, Value> = value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, property)| (name.clone(), node(property)))
                    .collect();
                out.insert("properties".into(), properties.into());
            }
            _ => {}
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_keywords_are_converted() {
        let schema = json!({
            "$defs": {"Unit": {"type": "string", "enum": ["c", "f"]}},
            "type": "object",
            "properties": {
                "unit": {"$ref": "#/$defs/Unit"},
                "kind": {"const": "now"},
                "size": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
            },
            "required": ["unit"],
            "additionalProperties": false,
        });
        assert_eq!(
            ollama(&schema),
            json!({
                "type": "object",
                "properties": {
                    "unit": {"type": "string", "enum": ["c", "f"]},
                    "kind": {"enum": ["now"]},
                    "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                },
                "required": ["unit"],
            })
        );
    }
}
