//! JSON Schemas (2020-12) of parameters and results: the schemas of schemars in a plain form that every model provider
//! supports.
//!
//! - Types are inlined; only recursive ones use a `$ref`.
//! - An optional property does not accept `null`.
//! - Integers have their range as `minimum` and `maximum`, instead of a non-standard `format`.
//! - Objects of the arguments accept no additional properties.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::arguments::absent;
use crate::{Parameter, docs};

/// Collector of the parameters of a tool, for the macro.
pub struct Parameters {
    generator: SchemaGenerator,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl Parameters {
    /// Creates an empty collector.
    #[expect(clippy::new_without_default, reason = "written by the macro alone")]
    pub fn new() -> Self {
        Self {
            generator: generator(SchemaSettings::draft2020_12().for_deserialize()),
            properties: Map::new(),
            required: Vec::new(),
        }
    }

    /// Adds a parameter. It is required unless its type is optional, such as `Option`.
    pub fn add<T: Parameter>(&mut self, name: &str, description: &str) {
        if absent::<T>().is_none() {
            self.required.push(name.into());
        }
        self.insert::<T>(name, description, None);
    }

    /// Adds a parameter with a default.
    pub fn add_with_default<T: Parameter + Serialize>(&mut self, name: &str, description: &str, default: &T) {
        self.insert::<T>(name, description, serde_json::to_value(default).ok());
    }

    /// Gives a format to the strings of a parameter.
    pub fn mark_format(&mut self, name: &str, format: &str) {
        if let Some(schema) = self.properties.get_mut(name) {
            mark_texts(schema, format);
        }
    }

    /// Schema of all parameters.
    pub fn finish(mut self) -> Value {
        let mut schema = json!({
            "type": "object",
            "properties": self.properties,
            "additionalProperties": false,
        });
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        let definitions = self.generator.take_definitions(false);
        if !definitions.is_empty() {
            schema["$defs"] = definitions.into();
        }
        simplify(&mut schema, true);
        schema
    }

    /// Schema of one type that has all parameters.
    pub fn all<T: Parameter>() -> Value {
        let mut generator = generator(SchemaSettings::draft2020_12().for_deserialize());
        let mut schema = generator.root_schema_for::<T>().to_value();
        if let Value::Object(schema) = &mut schema {
            // The description of the type; the tool has its own.
            schema.remove("title");
            schema.remove("description");
        }
        simplify(&mut schema, true);
        schema
    }

    fn insert<T: Parameter>(&mut self, name: &str, description: &str, default: Option<Value>) {
        let mut schema = match self.generator.subschema_for::<T>().to_value() {
            Value::Object(schema) => schema,
            // The schema `true`, which accepts any value.
            _ => Map::new(),
        };
        if !description.is_empty() {
            schema.insert("description".into(), description.into());
        }
        if let Some(default) = default {
            schema.insert("default".into(), default);
        }
        self.properties.insert(name.into(), schema.into());
    }
}

/// Gives a format to the strings of a field, for the macro.
pub fn with_format(format: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        let mut value = std::mem::take(schema).to_value();
        mark_texts(&mut value, format);
        if let Ok(marked) = Schema::try_from(value) {
            *schema = marked;
        }
    }
}

/// Gives a format to the strings that a schema describes: the value itself, the items of a list, the values of a map.
fn mark_texts(schema: &mut Value, format: &str) {
    let Value::Object(map) = schema else { return };
    let is_text = match map.get("type") {
        Some(Value::String(name)) => name == "string",
        Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
        _ => false,
    };
    if is_text {
        map.insert("format".into(), format.into());
    }
    for (keyword, value) in map.iter_mut() {
        match (keyword.as_str(), value) {
            ("items" | "additionalProperties", schema) => mark_texts(schema, format),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| mark_texts(schema, format));
            }
            _ => {}
        }
    }
}

/// Schema of a result.
pub(crate) fn of_output<T: Serialize + JsonSchema>() -> Option<Value> {
    let mut schema = generator(SchemaSettings::draft2020_12().for_serialize())
        .into_root_schema_for::<T>()
        .to_value();
    if let Value::Object(schema) = &mut schema {
        schema.remove("title");
    }
    simplify(&mut schema, false);
    Some(schema)
}

fn generator(mut settings: SchemaSettings) -> SchemaGenerator {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.into_generator()
}

/// Converts a schema and its subschemas to the plain form. `closed`: objects accept no additional properties.
fn simplify(schema: &mut Value, closed: bool) {
    let Value::Object(map) = schema else { return };
    if let Some(Value::String(description)) = map.get_mut("description") {
        *description = docs::reflow(description);
    }
    integer_range(map);
    optional_without_null(map);

    // `additionalProperties` does not apply to properties listed in one of these.
    let combined = ["allOf", "anyOf", "oneOf", "$ref"]
        .iter()
        .any(|keyword| map.contains_key(*keyword));
    let is_record = map.contains_key("properties");
    if closed && is_record && !combined && !map.contains_key("additionalProperties") {
        map.insert("additionalProperties".into(), false.into());
    }
    for (keyword, value) in map.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().for_each(|schema| simplify(schema, closed));
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas
                    .iter_mut()
                    .for_each(|schema| simplify(schema, closed && !is_record));
            }
            ("prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| simplify(schema, closed));
            }
            ("items" | "additionalProperties" | "not", schema) => simplify(schema, closed),
            _ => {}
        }
    }
}

/// Adds the range of an integer type. Limits that common JSON libraries cannot represent are omitted.
fn integer_range(map: &mut Map<String, Value>) {
    let (minimum, maximum) = match map.get("format").and_then(Value::as_str) {
        Some("int8") => (Some(i64::from(i8::MIN)), Some(i64::from(i8::MAX))),
        Some("int16") => (Some(i64::from(i16::MIN)), Some(i64::from(i16::MAX))),
        Some("int32") => (Some(i64::from(i32::MIN)), Some(i64::from(i32::MAX))),
        Some("uint8") => (Some(0), Some(i64::from(u8::MAX))),
        Some("uint16") => (Some(0), Some(i64::from(u16::MAX))),
        // `usize` has 32 bits in a component.
        Some("uint32" | "uint") => (Some(0), Some(i64::from(u32::MAX))),
        Some("uint64" | "uint128") => (Some(0), None),
        Some("int" | "int64" | "int128" | "float" | "double") => (None, None),
        _ => return,
    };
    map.remove("format");
    for (keyword, limit) in [("minimum", minimum), ("maximum", maximum)] {
        if let Some(limit) = limit
            && !map.contains_key(keyword)
        {
            map.insert(keyword.into(), limit.into());
        }
    }
}

/// Removes `null` from optional properties.
fn optional_without_null(map: &mut Map<String, Value>) {
    let required = map.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        required
            .as_array()
            .is_some_and(|names| names.iter().any(|required| required == name))
    };
    let Some(Value::Object(properties)) = map.get_mut("properties") else {
        return;
    };
    for (name, property) in properties.iter_mut() {
        if let Value::Object(property) = property
            && !is_required(name)
        {
            without_null(property);
        }
    }
}

fn without_null(schema: &mut Map<String, Value>) {
    if schema.get("default") == Some(&Value::Null) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if types.len() == 1 {
            schema["type"] = types.remove(0);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(cases)) = schema.get_mut("anyOf") {
        cases.retain(|case| case.get("type").and_then(Value::as_str) != Some("null"));
        if let [Value::Object(only)] = cases.as_mut_slice() {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            for (keyword, value) in only {
                // The description of the parameter takes precedence over that of the type.
                schema.entry(keyword).or_insert(value);
            }
        }
    }
}
