//! Arguments of calls that a provider sends as nested JSON instead of a string.

use std::cell::OnceCell;

use serde_json::Value;
use toolcell_core::json::inexact_number;

/// Text of an event with nested arguments of calls.
pub(crate) struct Source<'a> {
    text: &'a str,
    /// Number that changed when the text was parsed. The whole text is searched once, however many calls are in it.
    changed: OnceCell<Option<&'a str>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            changed: OnceCell::new(),
        }
    }

    /// Serialises `arguments`, which were parsed from the text. If the text contains a number that changed when it was
    /// parsed and that may be part of the arguments, the number replaces all of the arguments: the call is then refused
    /// with that number named, and no tool is called with a different number than the model wrote.
    pub(crate) fn written(&self, arguments: &Value) -> String {
        let changed = || *self.changed.get_or_init(|| inexact_number(self.text));
        match has_fraction(arguments).then(changed).flatten() {
            Some(number) => number.to_owned(),
            None => arguments.to_string(),
        }
    }
}

/// True if a number is not a 64-bit integer, as changed numbers are.
fn has_fraction(value: &Value) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Number(number) if number.is_f64() => return true,
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.values()),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcell_core::json::parse_object;

    #[test]
    fn changed_number_is_refused_by_name() {
        for (text, number) in [
            (r#"{"n":18446744073709551616}"#, "18446744073709551616"),
            (r#"{"n":[{"m":1e-400}]}"#, "1e-400"),
            (r#"{"n":-0}"#, "-0"),
        ] {
            let arguments: Value = serde_json::from_str(text).unwrap();
            let error = parse_object(&Source::new(text).written(&arguments))
                .unwrap_err()
                .to_string();
            assert!(error.contains(number), "{error}");
        }
    }

    #[test]
    fn unchanged_numbers_are_kept() {
        for text in [r#"{"n":18446744073709551615}"#, r#"{"n":[0.5,-1]}"#] {
            let arguments: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Source::new(text).written(&arguments), text);
        }
        // The changed number is not part of the arguments.
        let whole: Value = serde_json::from_str(r#"{"n":1}"#).unwrap();
        assert_eq!(
            Source::new(r#"{"args":{"n":1},"score":1e-400}"#).written(&whole),
            r#"{"n":1}"#
        );
    }

    /// Search for each call would take hours.
    #[test]
    fn text_is_searched_once_for_all_its_calls() {
        let text = format!(r#"{{"n":0.5,"text":"{}"}}"#, "a".repeat(8 << 20));
        let arguments: Value = serde_json::from_str(r#"{"n":0.5}"#).unwrap();
        let source = Source::new(&text);
        for _ in 0..20_000 {
            assert_eq!(source.written(&arguments), r#"{"n":0.5}"#);
        }
    }
}
