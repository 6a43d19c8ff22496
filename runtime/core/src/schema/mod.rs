//! JSON Schemas (draft 2020-12) of arguments and results, from untrusted components.
//!
//! A schema is checked once, when its tool is loaded, and is immutable afterwards. It cannot make the host fetch
//! anything: only references inside the document are resolved.

use std::sync::Arc;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{ToolError, json};

mod mismatch;
mod patterns;
mod validators;
mod version;
mod work;

use patterns::Patterns;
pub use patterns::{MAX_PATTERN_SIZE, MAX_TOTAL_PATTERN_SIZE, PatternTotal};
pub use validators::MAX_KEPT;
use validators::Slot;
pub use version::{RULES, version_of};
pub use work::{MAX_CHAIN, MAX_CHECKS};

/// Maximum size of a schema, in bytes of JSON. The largest schemas of real tools have about 30 KiB; preparing a schema
/// of 8 MiB takes seconds.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// Maximum nesting depth of a schema.
pub const MAX_SCHEMA_DEPTH: usize = 64;

/// Maximum number of entries of one list or object in a schema, such as the values of an `enum` or the properties of an
/// object.
pub const MAX_SCHEMA_ENTRIES: usize = 2_000;

/// Maximum size of one compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 16 << 20;

/// Maximum size of what a pattern remembers of its matches, in bytes. The default of the engine is eight times as much.
const MAX_PATTERN_CACHE: usize = 256 << 10;

/// Memory that a validator takes for each value of its schema, beside twice that of the JSON, in bytes (measured: 214 for `{}`).
const MEMORY_OF_NODE: u64 = 256;

/// Maximum number of mismatches reported at once: enough to repair a call in one attempt, short enough for a model to
/// read. All properties that are missing in one object are one mismatch.
pub const MAX_MISMATCHES: usize = 5;

/// Maximum number of possible mismatches for which details are reported. The validator collects all errors before the
/// first one can be read: half a million numbers in place of strings are half a million errors.
pub const MAX_DETAILED: u32 = 20_000;

/// A checked schema, ready to validate.
pub struct Schema {
    value: Value,
    /// Its validator is built by the first validation.
    validator: Slot,
    patterns: Patterns,
}

/// Error of an invalid or unsupported schema.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema exceeds [`MAX_SCHEMA_BYTES`].
    #[error("a size of {0} bytes exceeds the limit of {MAX_SCHEMA_BYTES} bytes")]
    TooLong(usize),
    /// The nesting exceeds [`MAX_SCHEMA_DEPTH`].
    #[error("a nesting of {0} levels exceeds the limit of {MAX_SCHEMA_DEPTH}")]
    TooDeep(usize),
    /// A list or object exceeds [`MAX_SCHEMA_ENTRIES`].
    #[error("a list or object of {0} entries exceeds the limit of {MAX_SCHEMA_ENTRIES}")]
    TooMany(usize),
    /// The patterns exceed [`MAX_PATTERN_SIZE`] in total.
    #[error("a total pattern size of {0} exceeds the limit of {MAX_PATTERN_SIZE}; use fewer repetitions")]
    PatternsTooLarge(usize),
    /// The patterns of this schema and of those before it exceed [`MAX_TOTAL_PATTERN_SIZE`].
    #[error(
        "with those of the schemas before it, a total pattern size of {0} exceeds the limit of {MAX_TOTAL_PATTERN_SIZE}; use fewer repetitions"
    )]
    TotalTooLarge(usize),
    /// The text is not JSON.
    #[error("invalid JSON")]
    Json(#[source] Arc<serde_json::Error>),
    /// A number would lose precision.
    #[error("the number {0} cannot be represented exactly")]
    InexactNumber(String),
    /// The root is not an object schema, which every provider requires for arguments.
    #[error("the root is not of type `object`")]
    RootNotObject,
    /// A reference points outside the document.
    #[error("the reference `{0}` points outside the schema")]
    RemoteReference(String),
    /// A nested schema has its own `$id`, which would change the meaning of references below it.
    #[error("a nested schema has its own `$id`, `{0}`")]
    NestedId(String),
    /// Invalid according to JSON Schema 2020-12, or a dangling reference.
    #[error(transparent)]
    Invalid(Arc<ValidationError<'static>>),
}

/// One mismatch between a value and a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Location as a JSON Pointer (RFC 6901); empty for the whole value.
    pub path: String,
    /// Reason of the mismatch.
    pub reason: String,
}

impl Mismatch {
    /// Formats several mismatches on one line.
    pub fn list(mismatches: &[Self]) -> String {
        let reasons: Vec<String> = mismatches.iter().map(Self::to_string).collect();
        reasons.join("; ")
    }
}

impl Schema {
    /// Parses and checks the schema of a tool's arguments: its root must be of type `object`.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn for_arguments(text: &str) -> Result<Self, SchemaError> {
        Self::for_arguments_within(text, &mut PatternTotal::default())
    }

    /// As [`Schema::for_arguments`], for one of several schemas of the same origin, whose patterns count together.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn for_arguments_within(text: &str, total: &mut PatternTotal) -> Result<Self, SchemaError> {
        let schema = Self::parse_within(text, total)?;
        if schema.value.get("type").and_then(Value::as_str) == Some("object") {
            Ok(schema)
        } else {
            Err(SchemaError::RootNotObject)
        }
    }

    /// Parses and checks any schema.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        Self::parse_within(text, &mut PatternTotal::default())
    }

    /// As [`Schema::parse`], for one of several schemas of the same origin, whose patterns count together.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn parse_within(text: &str, total: &mut PatternTotal) -> Result<Self, SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError::TooLong(text.len()));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| SchemaError::Json(Arc::new(error)))?;
        if let Some(number) = json::inexact_number(text) {
            let shown: String = number.chars().take(json::MAX_SHOWN_NUMBER).collect();
            return Err(SchemaError::InexactNumber(shown));
        }
        Self::new_within(value, total)
    }

    /// Checks a schema given as a JSON value.
    ///
    /// # Errors
    /// [`SchemaError`] with the reason.
    pub fn new(value: Value) -> Result<Self, SchemaError> {
        Self::new_within(value, &mut PatternTotal::default())
    }

    fn new_within(value: Value, total: &mut PatternTotal) -> Result<Self, SchemaError> {
        let depth = json::depth_of(&value);
        if depth > MAX_SCHEMA_DEPTH {
            return Err(SchemaError::TooDeep(depth));
        }
        let entries = most_entries(&value);
        if entries > MAX_SCHEMA_ENTRIES {
            return Err(SchemaError::TooMany(entries));
        }
        if let Some(reference) = remote_reference(&value) {
            return Err(SchemaError::RemoteReference(reference));
        }
        if let Some(id) = nested_id(&value) {
            return Err(SchemaError::NestedId(id));
        }
        let patterns = Patterns::of(&value);
        if patterns.size() > MAX_PATTERN_SIZE {
            return Err(SchemaError::PatternsTooLarge(patterns.size()));
        }
        total.add(&patterns)?;
        // Most schemas are never used: nothing is kept for them.
        build(&value).map_err(|error| SchemaError::Invalid(Arc::new(error)))?;
        Ok(Self::of_checked(value, patterns))
    }

    /// Parses a schema that [`Schema::parse`] or [`Schema::for_arguments`] has accepted under the same [`RULES`]. Every value is a
    /// mismatch for a schema that they do not accept.
    ///
    /// # Errors
    /// [`SchemaError::Json`] for a text that is not JSON.
    pub fn parse_checked(text: &str) -> Result<Self, SchemaError> {
        let value: Value = serde_json::from_str(text).map_err(|error| SchemaError::Json(Arc::new(error)))?;
        let patterns = Patterns::of(&value);
        Ok(Self::of_checked(value, patterns))
    }

    fn of_checked(value: Value, patterns: Patterns) -> Self {
        let bytes = 2 * json::memory_of(&value) + values_in(&value) * MEMORY_OF_NODE;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            validator: Slot::new(bytes.saturating_add(patterns.memory())),
            patterns,
            value,
        }
    }

    /// Returns the schema as JSON.
    pub fn as_value(&self) -> &Value {
        &self.value
    }

    /// Validates the arguments of a call against this schema.
    ///
    /// # Errors
    /// [`ToolError::InvalidArguments`] with every mismatch that [`Schema::validate`] returns.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        self.validate(arguments)
            .map_err(|mismatches| ToolError::invalid(Mismatch::list(&mismatches)))
    }

    /// Validates a value.
    ///
    /// # Errors
    /// The first [`MAX_MISMATCHES`] mismatches; or a single one without details, beyond [`MAX_DETAILED`]; or one that
    /// states that validation would be too much work, beyond [`MAX_CHECKS`] or [`MAX_CHAIN`].
    pub fn validate(&self, value: &Value) -> Result<(), Vec<Mismatch>> {
        let whole = |reason: &str| {
            Err(vec![Mismatch {
                path: String::new(),
                reason: reason.into(),
            }])
        };
        let Ok(possible) = work::bounded(&self.value, &self.patterns, value) else {
            return whole(
                "validation against the schema would take too long; send less, or nest it less deeply",
            );
        };
        let Ok(validator) = self.validator.get_or_build(|| build(&self.value)) else {
            return whole("the schema itself is invalid");
        };
        // Most values are valid, and it takes a fraction of the time to find out only that.
        if validator.is_valid(value) {
            return Ok(());
        }
        if possible > MAX_DETAILED {
            return whole("the value does not match the schema and is too large to say where; send less");
        }
        let errors: Vec<ValidationError<'_>> = validator.iter_errors(value).collect();
        let mismatches = mismatch::of_all(&errors, &self.value, MAX_MISMATCHES);
        if mismatches.is_empty() {
            return whole("the value does not match the schema");
        }
        Err(mismatches)
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "at {}: {}", self.path, self.reason)
        }
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schema({})", self.value)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// Builds the validator of a schema, which includes checking the schema against the meta-schema of its draft.
fn build(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    // The plain regex engine: it runs in linear time, and rejects look-around and back-references.
    jsonschema::draft202012::options()
        .with_pattern_options(
            PatternOptions::regex()
                .size_limit(MAX_PATTERN_BYTES)
                .dfa_size_limit(MAX_PATTERN_CACHE),
        )
        .build(schema)
}

/// Returns the number of values in a schema.
fn values_in(schema: &Value) -> u64 {
    let (mut count, mut open) = (0, vec![schema]);
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.values()),
            _ => {}
        }
    }
    count
}

/// Returns the number of entries of the longest list or object.
fn most_entries(schema: &Value) -> usize {
    let mut most = 0;
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => {
                most = most.max(items.len());
                open.extend(items);
            }
            Value::Object(map) => {
                most = most.max(map.len());
                open.extend(map.values());
            }
            _ => {}
        }
    }
    most
}

/// Returns a `$ref` or `$dynamicRef` that does not start with `#`, anywhere in the document.
fn remote_reference(schema: &Value) -> Option<String> {
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => {
                for keyword in ["$ref", "$dynamicRef"] {
                    if let Some(Value::String(target)) = map.get(keyword)
                        && !target.starts_with('#')
                    {
                        return Some(target.clone());
                    }
                }
                open.extend(map.values());
            }
            _ => {}
        }
    }
    None
}

/// Returns an `$id` anywhere but at the root.
fn nested_id(schema: &Value) -> Option<String> {
    let mut open: Vec<&Value> = schema
        .as_object()
        .into_iter()
        .flat_map(|map| map.values())
        .collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => {
                if let Some(Value::String(id)) = map.get("$id") {
                    return Some(id.clone());
                }
                open.extend(map.values());
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_chain;
    use serde_json::json;
    use std::error::Error as _;

    #[test]
    fn checked_schema_validates_as_the_one_that_was_checked() {
        let text = r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^x+$"}}}"#;
        let (schema, checked) = (Schema::parse(text).unwrap(), Schema::parse_checked(text).unwrap());
        assert_eq!(schema, checked);
        assert_eq!(*schema.as_value(), serde_json::from_str::<Value>(text).unwrap());
        for value in [
            json!({}),
            json!({"a": "xx"}),
            json!({"a": "y"}),
            json!({"a": 1}),
            json!([]),
        ] {
            assert_eq!(checked.validate(&value), schema.validate(&value), "{value}");
        }
        assert!(Schema::parse_checked("{").is_err());
        // Such a schema is never accepted, and so no cache has it.
        let invalid = Schema::parse_checked(r#"{"type":"objekt"}"#).unwrap();
        assert_eq!(reasons(&invalid, &json!({})), ["the schema itself is invalid"]);
    }

    #[test]
    fn size_of_a_validator_counts_values_and_patterns() {
        let bytes = |value: Value| Schema::new(value).unwrap().validator.bytes();
        let empty = bytes(json!({"anyOf": [{}]}));
        assert!(bytes(json!({"anyOf": vec![json!({}); 1_001]})) > empty + 256_000);
        // A tenth of the memory of all that are kept; `.` has as many states as characters have forms in UTF-8.
        let (ascii, any) = ("^([a-z]{1000}){60}$", "^.{4000}$");
        for pattern in [ascii, any] {
            let bytes = bytes(json!({ "pattern": pattern }));
            assert!(
                (MAX_KEPT / 12..MAX_KEPT / 8).contains(&bytes),
                "{pattern}: {bytes}"
            );
        }
    }

    #[test]
    fn version_of_rules_changes_with_any_of_their_texts() {
        assert_eq!(version_of(&[b"ab", b"c"]), version_of(&[b"ab", b"c"]));
        assert_ne!(version_of(&[b"ab"]), version_of(&[b"ac"]));
        assert_ne!(version_of(&[]), version_of(&[b"\0"]));
    }

    fn reasons(schema: &Schema, value: &Value) -> Vec<String> {
        schema
            .validate(value)
            .unwrap_err()
            .iter()
            .map(Mismatch::to_string)
            .collect()
    }

    #[test]
    fn mismatch_is_reported_with_path_and_reason() {
        let schema = Schema::for_arguments(
            r#"{"type":"object","properties":{"n":{"type":"integer","minimum":0}},"required":["n"],"additionalProperties":false}"#,
        )
        .unwrap();
        assert_eq!(schema.validate(&json!({"n": 3})), Ok(()));
        assert_eq!(
            reasons(&schema, &json!({"n": -1})),
            ["at /n: -1 is less than the minimum of 0"]
        );
        assert_eq!(reasons(&schema, &json!({})), ["`n` is a required property"]);
    }

    #[test]
    fn mismatches_are_reported_up_to_their_limit() {
        let schema = Schema::parse(r#"{"type":"array","items":{"type":"string"}}"#).unwrap();
        assert_eq!(
            reasons(&schema, &json!([1, 2, 3, 4, 5, 6, 7])).len(),
            MAX_MISMATCHES
        );
    }

    #[test]
    fn references_outside_the_document_are_rejected() {
        assert!(
            Schema::parse(r##"{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}}}"##)
                .is_ok()
        );
        for outside in ["file:///etc/passwd", "http://169.254.169.254/", "other.json"] {
            let text = json!({"type": "object", "properties": {"x": {"$ref": outside}}}).to_string();
            let error = Schema::parse(&text).unwrap_err();
            assert!(
                matches!(&error, SchemaError::RemoteReference(to) if to == outside),
                "{error}"
            );
        }
    }

    #[test]
    fn schema_beyond_length_or_depth_is_rejected() {
        let of_len = |n: usize| {
            let empty = r#"{"description":""}"#.len();
            json!({"description": "x".repeat(n - empty)}).to_string()
        };
        assert!(Schema::parse(&of_len(MAX_SCHEMA_BYTES)).is_ok());
        let error = Schema::parse(&of_len(MAX_SCHEMA_BYTES + 1)).unwrap_err();
        assert!(
            matches!(error, SchemaError::TooLong(size) if size == MAX_SCHEMA_BYTES + 1),
            "{error}"
        );
        let of_depth = |n: usize| (1..n).fold(json!({}), |inner, _| json!({"items": inner}));
        assert!(Schema::new(of_depth(MAX_SCHEMA_DEPTH)).is_ok());
        let error = Schema::new(of_depth(MAX_SCHEMA_DEPTH + 1)).unwrap_err();
        assert!(
            matches!(error, SchemaError::TooDeep(levels) if levels == MAX_SCHEMA_DEPTH + 1),
            "{error}"
        );
    }

    #[test]
    fn list_in_schema_beyond_limit_is_rejected() {
        let values = |n: usize| json!({"enum": (0..n).collect::<Vec<_>>()});
        let properties = |n: usize| {
            let all: serde_json::Map<String, Value> = (0..n).map(|i| (i.to_string(), json!({}))).collect();
            json!({ "properties": all })
        };
        for of in [values, properties] as [fn(usize) -> Value; 2] {
            assert!(Schema::new(of(MAX_SCHEMA_ENTRIES)).is_ok());
            let error = Schema::new(of(MAX_SCHEMA_ENTRIES + 1)).unwrap_err();
            assert!(
                matches!(error, SchemaError::TooMany(n) if n == MAX_SCHEMA_ENTRIES + 1),
                "{error}"
            );
        }
    }

    #[test]
    fn mismatch_details_are_reported_up_to_a_size() {
        let schema = Schema::parse(r#"{"type":"array","items":{"type":"string"}}"#).unwrap();
        // One check for the list and one for each item.
        let numbers = |n: u32| Value::Array((1..n).map(Value::from).collect());
        assert_eq!(reasons(&schema, &numbers(MAX_DETAILED)).len(), MAX_MISMATCHES);
        let beyond = reasons(&schema, &numbers(MAX_DETAILED + 1));
        assert!(
            beyond.len() == 1 && beyond[0].contains("too large to say where"),
            "{beyond:?}"
        );
        let words = Value::Array(vec![json!("x"); MAX_DETAILED as usize + 1]);
        assert_eq!(schema.validate(&words), Ok(()));
    }

    #[test]
    fn schema_with_endless_work_costs_one_mismatch_and_no_time() {
        let schema = Schema::for_arguments(
            r##"{"type":"object","properties":{"a":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}"##,
        )
        .unwrap();
        let value = (0..60).fold(json!({}), |inner, _| json!({"a": inner}));
        let reasons = reasons(&schema, &value);
        assert!(reasons[0].contains("too long"), "{reasons:?}");
    }

    #[test]
    fn nested_schema_with_its_own_id_is_rejected() {
        let nested = json!({"$defs": {"a": {"$id": "http://example.com/a"}}});
        let error = Schema::new(nested).unwrap_err();
        assert!(
            matches!(&error, SchemaError::NestedId(id) if id == "http://example.com/a"),
            "{error}"
        );
        assert!(Schema::new(json!({"$id": "http://example.com/root"})).is_ok());
    }

    #[test]
    fn invalid_schema_is_rejected() {
        for (text, is) in [
            ("{", "invalid JSON"),
            (r#"{"type":"objekt"}"#, "objekt"),
            (r#"{"type":"string"}"#, "root is not of type `object`"),
            (
                r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}"##,
                "none",
            ),
            (
                r#"{"type":"object","properties":{"a":{"pattern":"(a)\\1"}}}"#,
                "regex",
            ),
        ] {
            let error = Schema::for_arguments(text).unwrap_err().to_string();
            assert!(error.contains(is), "{text}: {error}");
        }
    }

    #[test]
    fn schema_error_keeps_its_source() {
        let error = Schema::parse("{").unwrap_err();
        let source = error.source().unwrap().downcast_ref::<Arc<serde_json::Error>>();
        assert_eq!(source.unwrap().column(), 1);
        assert_eq!(
            error_chain(&error),
            "invalid JSON: EOF while parsing an object at line 1 column 1"
        );
        let SchemaError::Invalid(source) = Schema::parse(r#"{"type":"objekt"}"#).unwrap_err() else {
            panic!("the type is unknown");
        };
        assert_eq!(source.instance_path().to_string(), "/type");
    }

    #[test]
    fn references_and_identifiers_are_found_inside_of_lists() {
        for (schema, reason) in [
            (
                r#"{"anyOf":[{"$ref":"https://example.com/s"}]}"#,
                "https://example.com/s",
            ),
            (r#"{"anyOf":[{"$dynamicRef":"other"}]}"#, "other"),
            (
                r#"{"anyOf":[{"$id":"https://example.com/i"}]}"#,
                "https://example.com/i",
            ),
        ] {
            let found = match Schema::parse(schema).unwrap_err() {
                SchemaError::RemoteReference(found) | SchemaError::NestedId(found) => found,
                other => panic!("{schema}: {other}"),
            };
            assert_eq!(found, reason);
        }
    }

    #[test]
    fn every_mismatch_of_arguments_is_reported() {
        let schema = Schema::for_arguments(
            r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}"#,
        )
        .unwrap();
        assert_eq!(schema.check_arguments(&json!({"a": 1, "b": 2})), Ok(()));
        let error = schema.check_arguments(&json!({"a": "x", "b": "y"})).unwrap_err();
        assert_eq!(error.kind(), "invalid_arguments");
        let text = error.to_string();
        assert!(
            text.contains("/a") && text.contains("; ") && text.contains("/b"),
            "{text}"
        );
    }

    #[test]
    fn schemas_are_equal_where_their_documents_are() {
        let schema = |text| Schema::parse(text).unwrap();
        assert_eq!(schema(r#"{"type":"string"}"#), schema(r#"{ "type": "string" }"#));
        assert_ne!(schema(r#"{"type":"string"}"#), schema(r#"{"type":"number"}"#));
    }
}
