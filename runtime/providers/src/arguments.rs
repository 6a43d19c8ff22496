//! Arguments of calls that a provider sends as nested JSON instead of a string.

use serde_json::Value;
use toolcell_core::json::inexact_number;

/// Serialises `arguments`, which were parsed from `text`. If `text` contains a number that changed when it was parsed
/// and that may be part of the arguments, the number replaces all of the arguments: the call is then refused with that
/// number named, and no tool is called with a different number than the model wrote.
pub(crate) fn written(arguments: &Value, text: &str) -> String {
    match inexact_number(text) {
        Some(number) if has_fraction(arguments) => number.to_owned(),
        _ => arguments.to_string(),
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
            let error = parse_object(&written(&arguments, text)).unwrap_err().to_string();
            assert!(error.contains(number), "{error}");
        }
    }

    #[test]
    fn unchanged_numbers_are_kept() {
        for text in [r#"{"n":18446744073709551615}"#, r#"{"n":[0.5,-1]}"#] {
            let arguments: Value = serde_json::from_str(text).unwrap();
            assert_eq!(written(&arguments, text), text);
        }
        // The changed number is not part of the arguments.
        let whole: Value = serde_json::from_str(r#"{"n":1}"#).unwrap();
        assert_eq!(
            written(&whole, r#"{"args":{"n":1},"score":1e-400}"#),
            r#"{"n":1}"#
        );
    }
}
