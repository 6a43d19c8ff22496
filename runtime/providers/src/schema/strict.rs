//! Conversion to the subset of OpenAI's constrained decoding
//! (<https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>).
//!
//! The subset requires every property, so an optional property becomes required and nullable, and a `null` that a model
//! writes for it is removed.

use serde_json::{Map, Value, json};
use toolcell_core::Schema;

use super::inline::{InlineError, inline};
use super::{takes_null, types};

/// Maximum properties of a schema, over all objects.
const MAX_PROPERTIES: usize = 5000;

/// Maximum nesting of objects and arrays.
const MAX_LEVELS: usize = 10;

/// Maximum values of all enumerations.
const MAX_ENUM_VALUES: usize = 1000;

/// Maximum characters of all names and values.
const MAX_CHARACTERS: usize = 120_000;

/// Supported string formats; others are dropped.
const FORMATS: &[&str] = &[
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Schema in the strict subset, with the reverse conversion.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Strict {
    lowered: Value,
    original: Value,
}

/// Reason why a schema has no strict form. The tool is then offered with its own schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotStrict {
    #[error("{0}")]
    References(String),
    #[error("`{0}` has no strict form")]
    Keyword(String),
    #[error("a part of the schema accepts any value")]
    Anything,
    #[error("an object of the schema accepts properties of any name")]
    Open,
    #[error("the schema exceeds the limits of strict schemas")]
    TooLarge,
}

impl Strict {
    /// Converts a schema.
    pub(crate) fn of(schema: &Value) -> Result<Self, NotStrict> {
        let original = inline(schema).map_err(|e: InlineError| NotStrict::References(e.to_string()))?;
        let mut lowering = Lowering::default();
        if original.get("type").and_then(Value::as_str) != Some("object") {
            return Err(NotStrict::Keyword("type".into()));
        }
        let lowered = lowering.node(&original, 0)?;
        Ok(Self { lowered, original })
    }

    /// The schema to send.
    pub(crate) fn schema(&self) -> &Value {
        &self.lowered
    }

    /// True if values of the strict form fit the schema itself, so that no conversion back is needed.
    pub(crate) fn is_exact(&self) -> bool {
        required_all(&self.original)
    }

    /// Removes each `null` that stands for an omitted property.
    pub(crate) fn restore(&self, value: &mut Value) {
        restore(&self.original, value);
    }
}

#[derive(Default)]
struct Lowering {
    properties: usize,
    values: usize,
    characters: usize,
}

impl Lowering {
    fn node(&mut self, node: &Value, level: usize) -> Result<Value, NotStrict> {
        let Value::Object(map) = node else {
            return Err(NotStrict::Anything);
        };
        if level > MAX_LEVELS {
            return Err(NotStrict::TooLarge);
        }
        let mut lowered = Map::new();
        for (keyword, value) in map {
            let value = match keyword.as_str() {
                "type" | "description" | "pattern" | "multipleOf" | "minimum" | "maximum"
                | "exclusiveMinimum" | "exclusiveMaximum" | "minItems" | "maxItems" => value.clone(),
                "enum" | "const" => {
                    self.values(value)?;
                    value.clone()
                }
                "format" if value.as_str().is_some_and(|f| FORMATS.contains(&f)) => value.clone(),
                "items" => self.node(value, level + 1)?,
                "anyOf" | "oneOf" => {
                    // Mutual exclusion of the forms is checked afterwards.
                    let forms = value.as_array().ok_or(NotStrict::Anything)?;
                    let forms: Result<Vec<Value>, NotStrict> =
                        forms.iter().map(|f| self.node(f, level)).collect();
                    lowered.insert("anyOf".into(), forms?.into());
                    continue;
                }
                "properties" | "required" | "additionalProperties" => continue,
                // Annotations, and constraints that are checked afterwards only.
                "title" | "default" | "examples" | "deprecated" | "readOnly" | "writeOnly" | "$comment"
                | "$schema" | "$id" | "format" | "minLength" | "maxLength" | "uniqueItems" => continue,
                other => return Err(NotStrict::Keyword(other.to_owned())),
            };
            lowered.insert(keyword.clone(), value);
        }
        let (named, _) = types(map);
        if named.contains(&"object") {
            self.object(map, &mut lowered, level)?;
        } else if map.contains_key("properties") {
            return Err(NotStrict::Keyword("properties".into()));
        }
        if named.contains(&"array") && !map.contains_key("items") {
            return Err(NotStrict::Anything);
        }
        let says_something = ["type", "enum", "const", "anyOf"]
            .iter()
            .any(|k| lowered.contains_key(*k));
        if says_something {
            Ok(Value::Object(lowered))
        } else {
            Err(NotStrict::Anything)
        }
    }

    fn object(
        &mut self,
        map: &Map<String, Value>,
        lowered: &mut Map<String, Value>,
        level: usize,
    ) -> Result<(), NotStrict> {
        if !matches!(map.get("additionalProperties"), None | Some(Value::Bool(false))) {
            return Err(NotStrict::Open);
        }
        let empty = Map::new();
        let properties = map.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let mut out = Map::new();
        for (name, property) in properties {
            self.properties += 1;
            self.characters += name.len();
            if self.properties > MAX_PROPERTIES || self.characters > MAX_CHARACTERS {
                return Err(NotStrict::TooLarge);
            }
            let mut lowered = self.node(property, level + 1)?;
            if !is_required(map, name) && !takes_null(&lowered) {
                lowered = nullable(lowered);
            }
            out.insert(name.clone(), lowered);
        }
        let names: Vec<&String> = out.keys().collect();
        lowered.insert("required".into(), json!(names));
        lowered.insert("additionalProperties".into(), false.into());
        lowered.insert("properties".into(), out.into());
        Ok(())
    }

    fn values(&mut self, values: &Value) -> Result<(), NotStrict> {
        let values = match values {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        self.values += values.len();
        for value in values {
            if value.is_object() || value.is_array() {
                return Err(NotStrict::Keyword("enum".into()));
            }
            self.characters += value.as_str().map_or(8, str::len);
        }
        if self.values > MAX_ENUM_VALUES || self.characters > MAX_CHARACTERS {
            return Err(NotStrict::TooLarge);
        }
        Ok(())
    }
}

fn is_required(object: &Map<String, Value>, name: &str) -> bool {
    object
        .get("required")
        .and_then(Value::as_array)
        .is_some_and(|names| names.iter().any(|n| n == name))
}

/// Makes a schema nullable.
fn nullable(schema: Value) -> Value {
    if let Value::Object(map) = &schema
        && let Some(Value::String(name)) = map.get("type")
        && !["enum", "const", "anyOf"].iter().any(|k| map.contains_key(*k))
    {
        let mut map = map.clone();
        map.insert("type".into(), json!([name, "null"]));
        return Value::Object(map);
    }
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// True if every property of every object is required.
fn required_all(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let own = map
                .get("properties")
                .and_then(Value::as_object)
                .is_none_or(|properties| properties.keys().all(|name| is_required(map, name)));
            own && map.values().all(required_all)
        }
        Value::Array(items) => items.iter().all(required_all),
        _ => true,
    }
}

fn restore(schema: &Value, value: &mut Value) {
    let Value::Object(map) = schema else { return };
    match value {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                object.retain(|name, value| {
                    !value.is_null() || is_required(map, name) || properties.get(name).is_none_or(takes_null)
                });
                for (name, property) in properties {
                    if let Some(value) = object.get_mut(name) {
                        restore(property, value);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = map.get("items") {
                items.iter_mut().for_each(|item| restore(schema, item));
            }
        }
        _ => return,
    }
    let forms = ["anyOf", "oneOf"]
        .iter()
        .filter_map(|k| map.get(*k)?.as_array())
        .flatten();
    for form in forms {
        let mut restored = value.clone();
        restore(form, &mut restored);
        if Schema::new(form.clone()).is_ok_and(|form| form.validate(&restored).is_ok()) {
            *value = restored;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn optional_properties_become_required_and_nullable() {
        let schema = json!({
            "$defs": {"Unit": {"type": "string", "enum": ["c", "f"]}},
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 1},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "unit": {"$ref": "#/$defs/Unit", "description": "The unit."},
                "note": {"type": ["string", "null"]},
            },
            "required": ["city"],
        });
        let strict = Strict::of(&schema).unwrap();
        assert_eq!(
            *strict.schema(),
            json!({
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": ["integer", "null"], "minimum": 1},
                    "unit": {"anyOf": [{"type": "string", "enum": ["c", "f"], "description": "The unit."}, {"type": "null"}]},
                    "note": {"type": ["string", "null"]},
                },
                "required": ["city", "days", "note", "unit"],
                "additionalProperties": false,
            })
        );
        assert!(!strict.is_exact());
        let mut arguments = json!({"city": "Rome", "days": null, "unit": null, "note": null});
        strict.restore(&mut arguments);
        assert_eq!(arguments, json!({"city": "Rome", "note": null}));
    }

    #[test]
    fn schema_without_strict_form_is_refused() {
        let with = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for (property, reason) in [
            (json!({}), NotStrict::Anything),
            (json!(true), NotStrict::Anything),
            (json!({"type": "array"}), NotStrict::Anything),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                NotStrict::Open,
            ),
            (
                json!({"type": "string", "not": {"const": "a"}}),
                NotStrict::Keyword("not".into()),
            ),
            (
                json!({"allOf": [{"type": "string"}]}),
                NotStrict::Keyword("allOf".into()),
            ),
        ] {
            assert_eq!(Strict::of(&with(property.clone())), Err(reason), "{property}");
        }
        assert!(Strict::of(&json!({"anyOf": []})).is_err());
        assert!(Strict::of(&json!({"type": "object"})).is_ok());
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let nested = |levels: usize| {
            let inner = (1..levels).fold(
                json!({"type": "string"}),
                |inner, _| json!({"type": "array", "items": inner}),
            );
            json!({"type": "object", "properties": {"a": inner}, "required": ["a"]})
        };
        assert!(Strict::of(&nested(MAX_LEVELS)).is_ok());
        assert_eq!(Strict::of(&nested(MAX_LEVELS + 1)), Err(NotStrict::TooLarge));
    }

    /// A schema and a value that fits it.
    fn pair() -> impl Strategy<Value = (Value, Value)> {
        let leaf = prop_oneof![
            "[a-c]{0,3}".prop_map(|s| (json!({"type": "string"}), json!(s))),
            (-5i64..5).prop_map(|n| (json!({"type": "integer"}), json!(n))),
            any::<bool>().prop_map(|b| (json!({"type": "boolean"}), json!(b))),
            Just((json!({"type": ["string", "null"]}), Value::Null)),
            Just((json!({"type": "string", "enum": ["x", "y"]}), json!("y"))),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                // Each property is required or optional, and an optional one is present or not.
                proptest::collection::btree_map("[a-e]", (inner.clone(), any::<bool>(), any::<bool>()), 0..4).prop_map(
                    |fields| {
                        let mut properties = Map::new();
                        let mut required = Vec::new();
                        let mut value = Map::new();
                        for (name, ((schema, field), is_required, is_there)) in fields {
                            properties.insert(name.clone(), schema);
                            if is_required {
                                required.push(name.clone());
                            }
                            if is_required || is_there {
                                value.insert(name, field);
                            }
                        }
                        let schema = json!({"type": "object", "properties": properties, "required": required,
                            "additionalProperties": false});
                        (schema, Value::Object(value))
                    }
                ),
                proptest::collection::vec(inner.clone(), 1..3).prop_map(|items| {
                    // All items have the schema of the first one.
                    let (schema, item) = items[0].clone();
                    (json!({"type": "array", "items": schema}), json!(vec![item; items.len()]))
                }),
                inner.prop_map(|(schema, value)| {
                    (json!({"anyOf": [{"type": "object", "properties": {"zz": {"const": 1}}, "required": ["zz"],
                        "additionalProperties": false}, schema]}), value)
                }),
            ]
        })
    }

    /// Value as written by a model under the strict form: `null` for every omitted property.
    fn as_model(schema: &Value, value: &Value) -> Value {
        if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
            return as_model(&forms[1], value);
        }
        match value {
            Value::Object(object) => schema["properties"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, property)| {
                    let written = object
                        .get(name)
                        .map_or(Value::Null, |value| as_model(property, value));
                    (name.clone(), written)
                })
                .collect(),
            Value::Array(items) => items
                .iter()
                .map(|item| as_model(&schema["items"], item))
                .collect(),
            other => other.clone(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn values_survive_the_strict_form((schema, value) in pair()) {
            let root = json!({"type": "object", "properties": {"root": schema}, "required": ["root"],
                "additionalProperties": false});
            let value = json!({"root": value});
            let strict = Strict::of(&root).unwrap();
            let mut written = as_model(&root, &value);
            let checked = Schema::new(strict.schema().clone()).unwrap();
            prop_assert_eq!(checked.validate(&written), Ok(()));
            strict.restore(&mut written);
            // A `null` that the schema itself accepts may remain.
            prop_assert_eq!(Schema::new(root).unwrap().validate(&written), Ok(()));
            prop_assert_eq!(without_nulls(&written), without_nulls(&value));
        }
    }

    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k.clone(), without_nulls(v)))
                .collect(),
            Value::Array(items) => items.iter().map(without_nulls).collect(),
            other => other.clone(),
        }
    }
}
