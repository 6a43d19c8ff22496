//! What a model wrote, in a form that its provider takes back.
//!
//! A provider checks the history that it is sent. A name or arguments that a model made up must not make every later
//! request of the session fail, so they are repaired for the wire. The conversation itself keeps them as they were.

use serde_json::{Map, Value, json};
use toolcell_core::ToolName;
use toolcell_core::json::parse_object;

/// The name of a call as every wire accepts it. A name of a tool that was offered is always left as it is, because
/// [`ToolName`] is narrower than every wire, so this never has to be undone.
pub(crate) fn name(name: &str) -> String {
    if ToolName::new(name).is_ok() {
        return name.to_owned();
    }
    let mut mended: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .take(ToolName::MAX_LEN)
        .collect();
    if !mended.starts_with(|c: char| c.is_ascii_alphabetic()) {
        mended.insert_str(0, "x_");
        mended.truncate(ToolName::MAX_LEN);
    }
    mended
}

/// The arguments of a call as a JSON object. What is none becomes an object that shows the text.
pub(crate) fn arguments(text: &str) -> Map<String, Value> {
    parse_object(text).unwrap_or_else(|_| Map::from_iter([("malformed_arguments".to_owned(), json!(text))]))
}

/// The arguments of a call as JSON text; the model's own bytes where they are an object, so that caches of the prompt
/// hold.
pub(crate) fn arguments_text(text: &str) -> String {
    if text.trim().is_empty() {
        return "{}".into();
    }
    match parse_object(text) {
        Ok(_) => text.to_owned(),
        Err(_) => Value::Object(arguments(text)).to_string(),
    }
}

/// An identifier of at most `max` bytes with only `a-z`, `A-Z`, `0-9`, `_` and `-`. Identifiers of other providers are
/// mended the same way each time, so that call and result still fit each other.
pub(crate) fn id(id: &str, max: usize) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.len() <= max && id.chars().all(fits) {
        return id.to_owned();
    }
    // FNV-1a keeps two identifiers apart that only differ in what is cut off or replaced.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let start: String = id
        .chars()
        .filter(|c| fits(*c))
        .take(max.saturating_sub(17))
        .collect();
    format!("{start}_{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_tool_is_left_and_any_other_is_mended() {
        for (written, sent) in [
            ("read_file", "read_file"),
            ("functions.read_file", "functions_read_file"),
            ("читать", "x_______"),
            ("", "x_"),
            ("1", "x_1"),
        ] {
            assert_eq!(name(written), sent);
            assert!(ToolName::new(name(written)).is_ok());
        }
        assert!(ToolName::new(name(&"9".repeat(100))).is_ok());
    }

    #[test]
    fn arguments_that_are_no_object_are_sent_as_one_that_shows_them() {
        assert_eq!(arguments_text(r#"{ "a":1}"#), r#"{ "a":1}"#);
        assert_eq!(arguments_text(" "), "{}");
        assert_eq!(arguments_text(r#"{"a":"#), r#"{"malformed_arguments":"{\"a\":"}"#);
        assert_eq!(
            arguments("[1]"),
            *json!({"malformed_arguments": "[1]"}).as_object().unwrap()
        );
    }

    #[test]
    fn an_identifier_that_a_wire_refuses_is_mended_the_same_way_each_time() {
        assert_eq!(id("call_abc-1", 64), "call_abc-1");
        assert_eq!(id("a|b", 64), id("a|b", 64));
        assert_ne!(id("a|b", 64), id("a/b", 64));
        assert_eq!(id(&"x".repeat(64), 64), "x".repeat(64));
        assert!(id(&"x".repeat(65), 64).len() <= 64);
        assert!(!id("", 64).is_empty());
    }
}
