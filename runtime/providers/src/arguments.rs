//! Arguments of calls that come as JSON inside of JSON and not as text.

use serde_json::Value;
use toolcell_core::json::inexact_number;

/// Arguments as a text, from the JSON `text` that they stood in. Where that has a number that was changed when it was
/// read and that may be among them, the number stands for all of the arguments: whoever reads them refuses it by name, and
/// nothing is called with another number than the model wrote.
pub(crate) fn written(arguments: &Value, text: &str) -> String {
    match inexact_number(text) {
        Some(number) if has_fraction(arguments) => number.to_owned(),
        _ => arguments.to_string(),
    }
}

/// Whether some number is not a whole one of 64 bits, as changed numbers are.
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
    fn a_changed_number_is_refused_by_its_name() {
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
    fn numbers_that_are_kept_are_written_as_they_were() {
        for text in [r#"{"n":18446744073709551615}"#, r#"{"n":[0.5,-1]}"#] {
            let arguments: Value = serde_json::from_str(text).unwrap();
            assert_eq!(written(&arguments, text), text);
        }
        // The changed one is elsewhere.
        let whole: Value = serde_json::from_str(r#"{"n":1}"#).unwrap();
        assert_eq!(
            written(&whole, r#"{"args":{"n":1},"score":1e-400}"#),
            r#"{"n":1}"#
        );
    }
}
