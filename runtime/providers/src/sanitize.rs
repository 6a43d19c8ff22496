//! Repairs of model output so that its provider accepts it in the history.
//!
//! Providers validate the history of a request. An invalid name or invalid arguments from a model must not make every
//! later request of the session fail, so they are repaired in the request. The conversation itself keeps the original.

use serde_json::{Map, Value, json};
use toolcell_core::ToolName;
use toolcell_core::json::{memory_of_text, parse_object};

/// Returns a call name that every provider accepts. Names of offered tools are unchanged, because [`ToolName`] is
/// stricter than every provider, so that the repair never has to be reversed.
pub(crate) fn name(name: &str) -> String {
    if ToolName::new(name).is_ok() {
        return name.to_owned();
    }
    let mut repaired: String = name
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
    if !repaired.starts_with(|c: char| c.is_ascii_alphabetic()) {
        repaired.insert_str(0, "x_");
        repaired.truncate(ToolName::MAX_LEN);
    }
    repaired
}

/// Maximum memory of the arguments of all past calls of a request once they are parsed, in bytes: twice what one call may take.
/// A conversation of honest calls has a tenth of it; many small objects take a hundred times as much as their text.
const MAX_PAST_MEMORY: u64 = 32 << 20;

/// Arguments of the past calls of one request, as the objects that some services want.
pub(crate) struct PastArguments {
    memory_left: u64,
}

impl PastArguments {
    pub(crate) fn new() -> Self {
        Self {
            memory_left: MAX_PAST_MEMORY,
        }
    }

    /// Returns the arguments of the next call. Those for which no memory is left are one text in an object. The calls before keep
    /// theirs, so that the beginning of a request stays the same for caches.
    pub(crate) fn object_of(&mut self, text: &str) -> Map<String, Value> {
        match self.memory_left.checked_sub(memory_of_text(text)) {
            Some(left) => {
                self.memory_left = left;
                arguments(text)
            }
            None => Map::from_iter([("arguments_as_text".to_owned(), json!(text))]),
        }
    }
}

/// Returns the arguments of a call as a JSON object. Any other text is wrapped in an object.
pub(crate) fn arguments(text: &str) -> Map<String, Value> {
    parse_object(text).unwrap_or_else(|_| Map::from_iter([("malformed_arguments".to_owned(), json!(text))]))
}

/// Returns the arguments of a call as JSON text; the model's own bytes if they are an object, so that prompt caches stay
/// valid.
pub(crate) fn arguments_text(text: &str) -> String {
    if text.trim().is_empty() {
        return "{}".into();
    }
    match parse_object(text) {
        Ok(_) => text.to_owned(),
        Err(_) => Value::Object(arguments(text)).to_string(),
    }
}

/// Returns an identifier of at most `max` bytes with only `a-z`, `A-Z`, `0-9`, `_` and `-`. The repair is
/// deterministic, so that call and result still match.
pub(crate) fn id(id: &str, max: usize) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.len() <= max && id.chars().all(fits) {
        return id.to_owned();
    }
    // FNV-1a distinguishes identifiers that differ only in removed or replaced characters.
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
    fn only_invalid_names_are_repaired() {
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
    fn arguments_that_are_no_object_are_wrapped_in_one() {
        assert_eq!(arguments_text(r#"{ "a":1}"#), r#"{ "a":1}"#);
        assert_eq!(arguments_text(" "), "{}");
        assert_eq!(arguments_text(r#"{"a":"#), r#"{"malformed_arguments":"{\"a\":"}"#);
        assert_eq!(
            arguments("[1]"),
            *json!({"malformed_arguments": "[1]"}).as_object().unwrap()
        );
    }

    #[test]
    fn past_arguments_have_a_limit_of_memory() {
        let counts: Vec<usize> = (0..30_000).collect();
        let objects = |count: usize| format!(r#"{{"a":[{}]}}"#, vec![r#"{"":0}"#; count].join(","));
        // The largest one that takes no more than this.
        let most =
            |memory: u64| objects(counts.partition_point(|n| memory_of_text(&objects(*n)) <= memory) - 1);
        let (third, small) = (most(MAX_PAST_MEMORY / 3), most(MAX_PAST_MEMORY / 100));
        let mut past = PastArguments::new();
        for (text, is_object) in [
            (&third, true),
            (&third, true),
            (&small, true),
            (&third, false),
            (&small, true),
        ] {
            let sent = past.object_of(text);
            assert_eq!(sent.contains_key("a"), is_object);
            let as_text = (!is_object).then(|| json!(text));
            assert_eq!(sent.get("arguments_as_text"), as_text.as_ref());
        }
    }

    #[test]
    fn identifier_repair_is_deterministic() {
        assert_eq!(id("call_abc-1", 64), "call_abc-1");
        assert_eq!(id("a|b", 64), id("a|b", 64));
        assert_ne!(id("a|b", 64), id("a/b", 64));
        assert_eq!(id(&"x".repeat(64), 64), "x".repeat(64));
        assert!(id(&"x".repeat(65), 64).len() <= 64);
        assert!(!id("", 64).is_empty());
    }
}
