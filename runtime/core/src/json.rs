//! Arguments as JSON (RFC 8259), read strictly.
//!
//! [`parse_object`] refuses what two readers could understand differently: duplicate names (a policy that sees the
//! first and a guest that sees the last), numbers that would be others once they are read ([`inexact_number`]), and text
//! that is deeper or longer than any honest argument.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Longest text of arguments, in bytes. Longer data belongs into a file.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// Deepest nesting of arguments, in objects and arrays.
pub const MAX_ARGUMENT_DEPTH: usize = 64;

/// Bytes of a number that an error repeats.
pub(crate) const MAX_SHOWN_NUMBER: usize = 40;

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
    /// A number that would be another one once it is read.
    #[error("the number {0} cannot be kept as it is; write it as a string, or with fewer digits")]
    InexactNumber(String),
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
    match inexact_number(text) {
        None => Ok(value),
        Some(number) => {
            let end = number.len().min(MAX_SHOWN_NUMBER);
            Err(JsonError::InexactNumber(number[..end].to_owned()))
        }
    }
}

/// The first number of a JSON text that [`Value`] does not keep: one that is whole and has more digits than it holds, one
/// so small that it would become 0 or lose its digits, and `-0`. Fractions are rounded to the nearest `f64` as everywhere.
/// The text must be JSON.
pub fn inexact_number(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let len = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = &text[at..at + len];
                if !is_kept(number) {
                    return Some(number);
                }
                at += len;
            }
            _ => at += 1,
        }
    }
    None
}

/// The place behind a string that begins at `at`.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn is_kept(number: &str) -> bool {
    if number == "-0" {
        return false;
    }
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let (Ok(read), Some(written)) = (number.parse::<f64>(), Decimal::of(number)) else {
        return false;
    };
    if written.digits.is_empty() {
        return true;
    }
    // A fraction is rounded. What is whole, and what is so small that an `f64` has few digits for it, must come out as it
    // was written.
    (written.exponent < 0 && read.is_normal())
        || Decimal::of(&format!("{read:e}")).is_some_and(|read| read == written)
}

/// A decimal number: digits that neither begin nor end with 0, times a power of ten.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(number: &str) -> Option<Self> {
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            // Beyond this every number is 0 or too large.
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (number, 0),
        };
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let without = digits.trim_end_matches('0');
        let (zeros, places) = (digits.len() - without.len(), fraction.len());
        let exponent = i64::from(exponent)
            .checked_add(i64::try_from(zeros).ok()?)?
            .checked_sub(i64::try_from(places).ok()?)?;
        Some(Self {
            is_negative,
            digits: without.to_owned(),
            exponent: if without.is_empty() { 0 } else { exponent },
        })
    }
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
    fn a_number_that_would_be_another_one_is_refused() {
        for number in [
            "1e-400",
            "-1e-400",
            "0.0000001e-320",
            "4.9e-324",
            "1e-9999999999999999999",
            "18446744073709551616",
            "-9223372036854775809",
            "9007199254740993.0",
            "90071992547409931e2",
            "123456789012345678901234567890",
            "-0",
        ] {
            for text in [
                format!("{{\"a\":{number}}}"),
                format!("{{\"a\":[\"1\\\"\",{number} ]}}"),
            ] {
                let error = parse_object(&text).unwrap_err().to_string();
                assert!(
                    error.contains(&format!("the number {number} cannot be kept")),
                    "{error}"
                );
            }
        }
        let long = format!("[{}]", "9".repeat(300));
        assert!(parse_value(&long).unwrap_err().to_string().len() < 150);
    }

    #[test]
    fn a_number_that_is_kept_is_accepted() {
        for (number, kept) in [
            ("0", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9007199254740993", "9007199254740993"),
            ("9007199254740992.0", "9007199254740992.0"),
            ("2.2250738585072014e-308", "2.2250738585072014e-308"),
            ("5e-324", "5e-324"),
            ("1e22", "1e+22"),
            ("1e23", "1e+23"),
            ("10000000000000000000000", "1e+22"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("-0.0", "-0.0"),
            ("0e99999", "0.0"),
            // Rounded as everywhere.
            ("0.1", "0.1"),
            ("3.14159265358979323846264338327950288", "3.141592653589793"),
            ("0.10000000000000001", "0.1"),
        ] {
            let value = parse_value(number).unwrap();
            assert_eq!(value.to_string(), kept, "{number}");
        }
        let text = r#"{"1e-400":"18446744073709551616 \\\" -0"}"#;
        assert!(parse_object(text).is_ok(), "text is no number");
    }

    #[test]
    fn depth_counts_objects_and_arrays() {
        for (value, depth) in [(json!(1), 0), (json!([]), 1), (json!({"a": [1, {"b": 2}]}), 3)] {
            assert_eq!(depth_of(&value), depth, "{value}");
        }
    }
}
