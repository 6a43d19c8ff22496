//! Arguments as JSON (RFC 8259), read strictly.
//!
//! [`parse_object`] refuses what two readers could understand differently: duplicate names (a policy that sees the
//! first and a guest that sees the last), numbers that no `f64` holds, and text that is deeper or longer than any honest
//! argument.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Longest text of arguments, in bytes. Longer data belongs into a file.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// Deepest nesting of arguments, in objects and arrays.
pub const MAX_ARGUMENT_DEPTH: usize = 64;

/// Why a text is not a JSON object that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Longer than [`MAX_ARGUMENT_BYTES`].
    #[error("{0} bytes of JSON are more than the {MAX_ARGUMENT_BYTES} that are accepted")]
    TooLong(usize),
    /// Not JSON, nested too deeply, or with a name that stands twice in one object.
    #[error("{0}")]
    Syntax(String),
    /// JSON, but no object.
    #[error("a JSON object is expected, not {0}")]
    NotAnObject(&'static str),
}

/// Reads a JSON object. An empty text is an empty object, because models write one for tools without parameters.
///
/// # Errors
/// [`JsonError`], with line and column where the text is no JSON.
pub fn parse_object(text: &str) -> Result<Map<String, Value>, JsonError> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match parse_value(text)? {
        Value::Object(map) => Ok(map),
        other => Err(JsonError::NotAnObject(kind_of(&other))),
    }
}

/// Reads any JSON value as strictly as [`parse_object`] does.
///
/// # Errors
/// [`JsonError`], with line and column where the text is no JSON.
pub fn parse_value(text: &str) -> Result<Value, JsonError> {
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(JsonError::TooLong(text.len()));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict {
        depth: MAX_ARGUMENT_DEPTH,
    }
    .deserialize(&mut reader)
    .and_then(|value| reader.end().map(|()| value))
    .map_err(|e| JsonError::Syntax(e.to_string()))?;
    Ok(value)
}

/// The kind of a value in words: `an array`, `null`, …
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// How deep a value nests: 0 for a scalar, 1 for `[]`. Does not recurse, so that no value overflows the stack.
pub fn depth_of(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => {
                deepest = deepest.max(depth + 1);
                open.extend(items.iter().map(|v| (v, depth + 1)));
            }
            Value::Object(map) => {
                deepest = deepest.max(depth + 1);
                open.extend(map.values().map(|v| (v, depth + 1)));
            }
            _ => {}
        }
    }
    deepest
}

/// Deserialises a [`Value`] with no duplicate names, to at most `depth` levels.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| {
            E::custom(format_args!(
                "nested deeper than the {MAX_ARGUMENT_DEPTH} levels that are accepted"
            ))
        })?;
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that JSON cannot hold"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(de::Error::custom(format_args!(
                    "the name `{}` stands twice",
                    name.escape_debug()
                )));
            }
            let value = map.next_value_seed(inner)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

/// Bytes as base64 text, for `#[serde(with)]`.
pub(crate) mod base64 {
    use ::base64::Engine as _;
    use ::base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(depth: usize) -> String {
        format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
    }

    #[test]
    fn an_object_is_read_as_it_stands() {
        let map = parse_object(r#"{"a": 1, "b": [true, null, -2, 0.5, "x"]}"#).unwrap();
        assert_eq!(
            Value::Object(map),
            json!({"a": 1, "b": [true, null, -2, 0.5, "x"]})
        );
        assert_eq!(parse_object(" \n").unwrap(), Map::new());
    }

    #[test]
    fn a_name_that_stands_twice_is_refused_at_every_level() {
        for text in [
            r#"{"path":"/ok","path":"/etc/passwd"}"#,
            r#"{"a":[{"b":1,"b":1}]}"#,
        ] {
            let error = parse_object(text).unwrap_err().to_string();
            assert!(error.contains("stands twice"), "{error}");
        }
    }

    #[test]
    fn nesting_is_accepted_up_to_its_limit_and_refused_beyond() {
        assert!(parse_object(&nested(MAX_ARGUMENT_DEPTH)).is_ok());
        let error = parse_object(&nested(MAX_ARGUMENT_DEPTH + 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("nested deeper than the 64 levels"), "{error}");
        assert!(parse_object(&nested(100_000)).is_err());
    }

    #[test]
    fn length_is_accepted_up_to_its_limit_and_refused_beyond() {
        let of_len = |n: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(n - 8));
        assert!(parse_object(&of_len(MAX_ARGUMENT_BYTES)).is_ok());
        assert_eq!(
            parse_object(&of_len(MAX_ARGUMENT_BYTES + 1)),
            Err(JsonError::TooLong(MAX_ARGUMENT_BYTES + 1))
        );
    }

    #[test]
    fn what_is_no_json_object_is_refused_with_a_reason() {
        for (text, reason) in [
            ("[1]", "not an array"),
            ("null", "not null"),
            ("{\"a\":1} x", "trailing characters"),
            ("{\"a\":1e999}", "number out of range"),
            ("{\"a\":NaN}", "expected value"),
            ("{\"a\":\"\\ud800\"}", "hex escape"),
            ("{'a':1}", "key must be a string"),
            ("{\"a\":", "EOF"),
        ] {
            let error = parse_object(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn depth_counts_objects_and_arrays() {
        for (value, depth) in [(json!(1), 0), (json!([]), 1), (json!({"a": [1, {"b": 2}]}), 3)] {
            assert_eq!(depth_of(&value), depth, "{value}");
        }
    }
}
