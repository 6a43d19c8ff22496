//! Arguments that the schema of a tool places in headers as well (`x-mcp-header`, version 2026-07-28 over HTTP). Client and
//! server share the rules: a server refuses a call whose headers and body differ.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::message::between_backticks;

/// Property of a schema that places an argument in a header, with this prefix.
const IN_HEADER: &str = "x-mcp-header";
const PARAM: &str = "mcp-param-";

/// Beginning and end of a value in base64.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// Keywords whose value is a schema, or a list of schemas.
const SUBSCHEMAS: [&str; 14] = [
    "items",
    "prefixItems",
    "contains",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "then",
    "else",
];

/// Keywords whose value has a schema for each name.
const NAMED_SUBSCHEMAS: [&str; 4] = ["patternProperties", "dependentSchemas", "$defs", "definitions"];

/// An argument that is placed in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParamHeader {
    /// Names of the properties that lead to it.
    path: Vec<String>,
    pub(crate) name: HeaderName,
}

impl ParamHeader {
    /// Reads those of the schema of a tool.
    ///
    /// # Errors
    /// The reason, if one is not reached through `properties` alone, its name is none of a header or used twice, or its value
    /// cannot stand in a header. Such a tool cannot be called.
    pub(crate) fn all(schema: &Value) -> Result<Vec<Self>, String> {
        let mut found = Vec::new();
        if let Value::Object(schema) = schema {
            collect(schema, &mut Vec::new(), true, &mut found)?;
        }
        Ok(found)
    }

    /// Text of the header for these arguments; `None` if they do not have it.
    pub(crate) fn text(&self, arguments: &Map<String, Value>) -> Option<String> {
        let (first, rest) = self.path.split_first()?;
        let value = (rest.iter()).try_fold(arguments.get(first)?, |value, name| value.get(name))?;
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            _ => None,
        }
    }
}

fn collect(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    is_reached: bool,
    found: &mut Vec<ParamHeader>,
) -> Result<(), String> {
    if let Some(name) = schema.get(IN_HEADER) {
        let fail = |why: &str| {
            let place = between_backticks(&path.join("/"));
            Err(format!("its parameter `{place}` cannot stand in a header: {why}"))
        };
        if !is_reached || path.is_empty() {
            return fail("it is not reached through `properties` alone");
        }
        let name = name.as_str().filter(|name| !name.is_empty());
        let name = name.and_then(|name| HeaderName::try_from(format!("{PARAM}{name}")).ok());
        let Some(name) = name else {
            return fail("the header has no valid name");
        };
        if !is_of_header(schema.get("type")) {
            return fail("it is not a text, an integer or a boolean");
        }
        if found.iter().any(|other| other.name == name) {
            return fail("another one has the same header");
        }
        found.push(ParamHeader {
            path: path.clone(),
            name,
        });
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, schema) in properties {
                    path.push(name.clone());
                    if let Value::Object(schema) = schema {
                        collect(schema, path, is_reached, found)?;
                    }
                    path.pop();
                }
            }
            (named, Value::Object(schemas)) if NAMED_SUBSCHEMAS.contains(&named) => {
                for schema in schemas.values().filter_map(Value::as_object) {
                    collect(schema, path, false, found)?;
                }
            }
            (sub, Value::Object(schema)) if sub == "if" || SUBSCHEMAS.contains(&sub) => {
                collect(schema, path, false, found)?;
            }
            (sub, Value::Array(schemas)) if SUBSCHEMAS.contains(&sub) => {
                for schema in schemas.iter().filter_map(Value::as_object) {
                    collect(schema, path, false, found)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// True if a value of this type can stand in a header.
fn is_of_header(kind: Option<&Value>) -> bool {
    let is_primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    match kind {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().all(|kind| kind == "null" || is_primitive(kind)),
        Some(kind) => is_primitive(kind),
    }
}

/// Headers of the arguments of a call.
pub(crate) fn headers(placed: &[ParamHeader], arguments: &Map<String, Value>) -> HeaderMap {
    let values = placed
        .iter()
        .filter_map(|param| Some((param.name.clone(), header_value(&param.text(arguments)?)?)));
    values.collect()
}

/// Value of a header that the protocol copies from the body: in base64 unless it is plain.
pub(crate) fn header_value(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|byte| (32..127).contains(&byte))
        && text.trim() == text
        && !text.starts_with(ENCODED.0);
    match is_plain {
        true => HeaderValue::from_str(text).ok(),
        false => {
            let encoded = format!("{}{}{}", ENCODED.0, STANDARD.encode(text), ENCODED.1);
            HeaderValue::from_str(&encoded).ok()
        }
    }
}

/// True if the value of a header, which can be in base64, tells the same as the body.
pub(crate) fn is_same(value: &str, expected: &str) -> bool {
    let encoded = value.strip_prefix(ENCODED.0);
    match encoded.and_then(|value| value.strip_suffix(ENCODED.1)) {
        Some(encoded) => STANDARD
            .decode(encoded)
            .is_ok_and(|bytes| bytes == expected.as_bytes()),
        None => value == expected.trim(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_that_no_header_can_hold_are_refused() {
        let of = |properties: Value| ParamHeader::all(&json!({ "properties": properties })).map(drop);
        let one = |kind: Value, name: Value| {
            of(json!({"a": {"type": kind, "x-mcp-header": name}, "b": {"type": "object"}}))
        };
        let optional = json!(["string", "null"]);
        for kind in [json!("string"), json!("integer"), json!("boolean"), optional] {
            assert_eq!(one(kind, json!("Region")), Ok(()));
        }
        assert_eq!(of(json!({"a": {"x-mcp-header": "A"}})), Ok(()));
        for name in ["", "a b", "a:b", "Région", "a\tb"] {
            let refused = one(json!("string"), json!(name)).unwrap_err();
            assert!(refused.contains("no valid name"), "{name}");
        }
        assert!(one(json!("string"), json!(1)).is_err());
        let mixed = json!(["string", "object"]);
        for kind in [
            json!("number"),
            json!("object"),
            json!("array"),
            json!("null"),
            mixed,
        ] {
            let refused = one(kind.clone(), json!("A")).unwrap_err();
            assert!(refused.contains("is not a text"), "{kind}");
        }
        let twice = of(json!({
            "a": {"type": "string", "x-mcp-header": "My"},
            "b": {"properties": {"c": {"type": "string", "x-mcp-header": "my"}}},
        }));
        assert!(twice.unwrap_err().contains("another one"));
    }

    #[test]
    fn only_properties_lead_to_a_parameter_in_a_header() {
        let placed = json!({"type": "string", "x-mcp-header": "A"});
        for keyword in ["items", "not", "if", "else", "additionalProperties"] {
            let schema = json!({"properties": {"a": {keyword: placed}}});
            assert!(ParamHeader::all(&schema).is_err(), "{keyword}");
        }
        for schema in [
            json!({"oneOf": [{"properties": {"a": placed}}]}),
            json!({"$defs": {"x": placed}, "properties": {"a": {"$ref": "#/$defs/x"}}}),
            json!({"patternProperties": {"^a": placed}}),
            json!({"type": "object", "x-mcp-header": "A"}),
        ] {
            let refused = ParamHeader::all(&schema).unwrap_err();
            assert!(refused.contains("`properties` alone"), "{schema}: {refused}");
        }
        // A value, or a property of that name, places nothing.
        for schema in [
            json!({"properties": {"x-mcp-header": {"type": "object"}}}),
            json!({"properties": {"a": {"default": {"x-mcp-header": "b c"}, "enum": [placed]}}}),
        ] {
            assert_eq!(ParamHeader::all(&schema), Ok(vec![]), "{schema}");
        }
    }

    #[test]
    fn arguments_in_headers_are_written_as_the_protocol_wants() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "any": {"x-mcp-header": "Any"},
            "text": {"type": "string", "x-mcp-header": "Text"},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "of": {"properties": {"it": {"type": "boolean", "x-mcp-header": "It"}}},
            "plain": {"type": "string"},
        }});
        let arguments = json!({"region": "eu 1", "count": 4, "any": 1.5, "text": "é\n", "of": {"it": true}, "plain": "y"});
        let headers = headers(
            &ParamHeader::all(&schema).unwrap(),
            arguments.as_object().unwrap(),
        );
        let value = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(headers.len(), 4);
        assert_eq!(value("mcp-param-region"), Some("eu 1"));
        assert_eq!(value("mcp-param-count"), Some("4"));
        assert_eq!(value("mcp-param-text"), Some("=?base64?w6kK?="));
        assert_eq!(value("mcp-param-it"), Some("true"));
        assert!(is_same("=?base64?w6kK?=", "é\n") && is_same("eu 1", "eu 1 ") && !is_same("a", "b"));
        for text in [" x", "x ", "=?base64?eA==?="] {
            let value = header_value(text).unwrap();
            assert!(value.as_bytes().starts_with(b"=?base64?"), "{text}");
        }
    }
}
