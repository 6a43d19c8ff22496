//! Strict parsing of JSON arguments (RFC 8259).
//!
//! [`parse_object`] rejects ambiguous input: duplicate names (a policy might check the first and a guest use the last),
//! numbers that lose precision when parsed ([`inexact_number`]), and excessive depth or length.

mod memory;

use std::sync::Arc;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

pub use self::memory::{memory_of, memory_of_object, memory_of_text};

/// Maximum size of arguments, in bytes. Larger data belongs in a file.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// Maximum memory of arguments once they are parsed, in bytes. Many small objects take a hundred times as much as their text, and
/// a call needs its arguments several times.
pub const MAX_ARGUMENT_MEMORY: u64 = 16 << 20;

/// Maximum nesting depth of arguments, in objects and arrays.
pub const MAX_ARGUMENT_DEPTH: usize = 64;

/// Maximum number of bytes of a number shown in an error.
pub(crate) const MAX_SHOWN_NUMBER: usize = 40;

/// Error of parsing JSON.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text exceeds [`MAX_ARGUMENT_BYTES`].
    #[error("JSON of {0} bytes exceeds the limit of {MAX_ARGUMENT_BYTES} bytes")]
    TooLong(usize),
    /// The value exceeds [`MAX_ARGUMENT_MEMORY`].
    #[error(
        "JSON with so many values that they take {0} bytes of memory exceeds the limit of {MAX_ARGUMENT_MEMORY} bytes; send a text in place of many small values"
    )]
    TooManyValues(u64),
    /// Invalid JSON, excessive nesting, or a duplicate name in an object.
    #[error("{}", in_words(.0))]
    Syntax(Arc<serde_json::Error>),
    /// A number that would lose precision.
    #[error(
        "the number {0} cannot be represented exactly; write it with fewer digits, or as a string if one is accepted"
    )]
    InexactNumber(String),
    /// Valid JSON, but not an object.
    #[error("expected a JSON object, found {0}")]
    NotAnObject(&'static str),
}

/// Returns the error in terms of JSON instead of the parser's.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("expected ident") {
        Some(place) => format!("expected a value; text needs double quotes{place}"),
        None => text,
    }
}

/// Parses a JSON object. An empty text is an empty object, because models send one for tools without parameters.
///
/// # Errors
/// [`JsonError`], with line and column if the text is invalid JSON.
pub fn parse_object(text: &str) -> Result<Map<String, Value>, JsonError> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match parse_value(text)? {
        Value::Object(map) => Ok(map),
        other => Err(JsonError::NotAnObject(kind_of(&other))),
    }
}

/// Parses any JSON value as strictly as [`parse_object`].
///
/// # Errors
/// [`JsonError`], with line and column if the text is invalid JSON.
pub fn parse_value(text: &str) -> Result<Value, JsonError> {
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(JsonError::TooLong(text.len()));
    }
    let memory = memory_of_text(text);
    if memory > MAX_ARGUMENT_MEMORY {
        return Err(JsonError::TooManyValues(memory));
    }
    parse_nested(text, MAX_ARGUMENT_DEPTH)
}

/// Parses a JSON value of at most `depth` nested objects and arrays as strictly as [`parse_value`]. The caller limits the
/// length of the text.
///
/// # Errors
/// [`JsonError`], with line and column if the text is invalid JSON.
pub fn parse_nested(text: &str, depth: usize) -> Result<Value, JsonError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { depth }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| JsonError::Syntax(Arc::new(error)))?;
    match inexact_number(text) {
        None => Ok(value),
        Some(number) => {
            let end = number.len().min(MAX_SHOWN_NUMBER);
            Err(JsonError::InexactNumber(number[..end].to_owned()))
        }
    }
}

/// Returns the first number of a JSON text that [`Value`] cannot represent exactly: integers with too many digits,
/// numbers so small that they become 0 or subnormal, and `-0`. Fractions below 2^53 are rounded to the nearest `f64` as usual. The
/// text must be valid JSON.
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

/// Returns the index after the string that begins at `at`.
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

/// From here on, 2^53, an `f64` has no room for a fraction.
const FIRST_ROUNDED: f64 = 9_007_199_254_740_992.0;

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
    // A fraction is rounded. Integers, what has one that is rounded, and numbers so small that an `f64` has few digits for them, must
    // round-trip.
    (written.exponent < 0 && read.is_normal() && read.abs() < FIRST_ROUNDED)
        || Decimal::of(&format!("{read:e}")).is_some_and(|read| read == written)
}

/// A decimal number: digits without leading and trailing zeros, times a power of ten.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(number: &str) -> Option<Self> {
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            // Beyond this exponent every number is 0 or too large.
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

/// Returns the kind of a value for messages: `an array`, `null`, …
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

/// Returns the nesting depth of a value: 0 for a scalar, 1 for `[]`. Does not recurse, so no value overflows the stack.
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

/// Deserializes a [`Value`] without duplicate names, to at most `depth` levels.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| {
            E::custom(format_args!(
                "nesting exceeds the limit of {MAX_ARGUMENT_DEPTH} levels"
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
            .ok_or_else(|| E::custom("number out of range for JSON"))
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
                    "duplicate name `{}`",
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
    fn arguments_have_a_limit_of_memory() {
        let of = |objects: usize| format!("{{\"a\":[{}0]}}", r#"{"":0},"#.repeat(objects));
        let memory = |objects| memory_of_text(&of(objects));
        let counts: Vec<usize> = (0..100_000).collect();
        let fits = counts.partition_point(|count| memory(*count) <= MAX_ARGUMENT_MEMORY) - 1;
        assert!(parse_object(&of(fits)).is_ok());
        let refused = parse_object(&of(fits + 1)).unwrap_err();
        assert!(matches!(refused, JsonError::TooManyValues(_)), "{refused}");
        // A text of the maximum length takes no more than itself.
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_ARGUMENT_BYTES - 8));
        assert_eq!(text.len(), MAX_ARGUMENT_BYTES);
        assert!(parse_object(&text).is_ok());
    }

    #[test]
    fn object_is_parsed_without_changes() {
        let map = parse_object(r#"{"a": 1, "b": [true, null, -2, 0.5, "x"]}"#).unwrap();
        assert_eq!(
            Value::Object(map),
            json!({"a": 1, "b": [true, null, -2, 0.5, "x"]})
        );
        assert_eq!(parse_object(" \n").unwrap(), Map::new());
    }

    #[test]
    fn duplicate_name_is_rejected_at_every_level() {
        for text in [
            r#"{"path":"/ok","path":"/etc/passwd"}"#,
            r#"{"a":[{"b":1,"b":1}]}"#,
        ] {
            let error = parse_object(text).unwrap_err().to_string();
            assert!(error.contains("duplicate name"), "{error}");
        }
    }

    #[test]
    fn nesting_beyond_limit_is_rejected() {
        assert!(parse_object(&nested(MAX_ARGUMENT_DEPTH)).is_ok());
        let error = parse_object(&nested(MAX_ARGUMENT_DEPTH + 1))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("nesting exceeds the limit of 64 levels"),
            "{error}"
        );
        assert!(parse_object(&nested(100_000)).is_err());
    }

    #[test]
    fn length_beyond_limit_is_rejected() {
        let of_len = |n: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(n - 8));
        assert!(parse_object(&of_len(MAX_ARGUMENT_BYTES)).is_ok());
        let error = parse_object(&of_len(MAX_ARGUMENT_BYTES + 1)).unwrap_err();
        assert!(
            matches!(error, JsonError::TooLong(size) if size == MAX_ARGUMENT_BYTES + 1),
            "{error}"
        );
    }

    #[test]
    fn text_other_than_an_object_is_rejected_with_a_reason() {
        for (text, reason) in [
            ("[1]", "found an array"),
            ("null", "found null"),
            ("{\"a\":1} x", "trailing characters"),
            ("{\"a\":1e999}", "number out of range"),
            ("{\"a\":NaN}", "expected value"),
            (
                "{\"a\":no}",
                "expected a value; text needs double quotes at line 1 column",
            ),
            ("{\"a\":\"\\ud800\"}", "hex escape"),
            ("{'a':1}", "key must be a string"),
            ("{\"a\":", "EOF"),
        ] {
            let error = parse_object(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn inexact_number_is_rejected() {
        for number in [
            "1e-400",
            "-1e-400",
            "0.0000001e-320",
            "4.9e-324",
            "1e-9999999999999999999",
            "18446744073709551616",
            "-9223372036854775809",
            "9007199254740993.0",
            "9007199254740992.5",
            "12345678901234567.5",
            "-12345678901234567.5",
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
                    error.contains(&format!("the number {number} cannot be represented")),
                    "{error}"
                );
            }
        }
        let long = format!("[{}]", "9".repeat(300));
        assert!(parse_value(&long).unwrap_err().to_string().len() < 150);
    }

    #[test]
    fn exact_number_is_accepted() {
        for (number, kept) in [
            ("0", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9007199254740993", "9007199254740993"),
            ("9007199254740992.0", "9007199254740992.0"),
            ("9007199254740991.25", "9007199254740991.0"),
            ("2.2250738585072014e-308", "2.2250738585072014e-308"),
            ("5e-324", "5e-324"),
            ("1e22", "1e+22"),
            ("1e23", "1e+23"),
            ("10000000000000000000000", "1e+22"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("-0.0", "-0.0"),
            ("0e99999", "0.0"),
            // Rounded as usual.
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
