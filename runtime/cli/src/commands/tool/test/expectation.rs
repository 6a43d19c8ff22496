//! Comparison of a call with what its case expects.

use serde_json::Value;
use toolcell_core::{CallResult, Content};

use super::cases::Case;
use super::fixture::Ran;

/// Maximum length of a value in a message, in characters.
const MAX_SHOWN: usize = 300;

/// Returns every difference, in words; none means that the case passed.
pub(super) fn differences(case: &Case, ran: &Ran) -> Vec<String> {
    let mut found = Vec::new();
    let expected = &case.expected;
    let said = text_of(&ran.result);
    match (expected.error, &ran.result.error) {
        (None, Some(error)) => found.push(format!("it failed ({}): {error}", error.kind())),
        (Some(kind), None) => found.push(format!(
            "expected the error `{kind}`, and it answered {}",
            short(&said)
        )),
        (Some(kind), Some(error)) if error.kind() != kind => {
            found.push(format!(
                "expected the error `{kind}`, and it is `{}`: {error}",
                error.kind()
            ));
        }
        _ => {}
    }
    if let Some(wanted) = &expected.result
        && ran.result.error.is_none()
    {
        let answered = value_of(&ran.result, wanted);
        if !is_equal(&answered, wanted) {
            found.push(format!(
                "expected {}, and it answered {}",
                short(&wanted.to_string()),
                short(&answered.to_string())
            ));
        }
    }
    if let Some(pattern) = &expected.pattern {
        let message = ran.result.error.as_ref().map(ToString::to_string);
        let text = message.as_ref().unwrap_or(&said);
        if !pattern.is_match(text) {
            found.push(format!(
                "the pattern {:?} is not in {}",
                pattern.as_str(),
                short(text)
            ));
        }
    }
    found.extend(ran.wrong_files.iter().map(|file| short(file)));
    found.extend(
        ran.requested
            .unexpected
            .iter()
            .map(|request| format!("it sent what no planted answer fits: {}", short(request))),
    );
    found.extend((ran.requested.unused.iter()).map(|url| format!("it did not request {}", short(url))));
    found
}

/// The text of a result: all its parts, or its structured result.
pub(super) fn text_of(result: &CallResult) -> String {
    let part = |content: &Content| match content {
        Content::Text { text } => text.clone(),
        Content::Blob(blob) => format!("[{} of {} bytes]", blob.media_type, blob.data.len()),
        Content::Link(link) => link.uri.clone(),
    };
    let parts: Vec<String> = result.content.iter().map(part).collect();
    match &result.structured {
        Some(structured) if parts.is_empty() => structured.to_string(),
        _ => parts.join("\n"),
    }
}

/// The value that is compared: for an expected text the text, otherwise the structured result, or the text as JSON.
fn value_of(result: &CallResult, wanted: &Value) -> Value {
    let text = || text_of(result);
    if wanted.is_string() {
        return match &result.structured {
            Some(Value::String(structured)) => Value::String(structured.clone()),
            _ => Value::String(text()),
        };
    }
    match &result.structured {
        Some(structured) => structured.clone(),
        None => serde_json::from_str(&text()).unwrap_or_else(|_| Value::String(text())),
    }
}

/// True if two values are equal, where `1` and `1.0` are the same number.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64()
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Shortens a text for a message.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcell_core::ToolError;

    use super::*;
    use crate::commands::tool::test::cases::Expected;
    use crate::commands::tool::test::planted_http::Requested;

    fn ran(result: CallResult) -> Ran {
        Ran {
            result,
            lines: Vec::new(),
            requested: Requested::default(),
            wrong_files: Vec::new(),
        }
    }

    fn case(expected: Expected) -> Case {
        Case {
            name: "x".into(),
            tool: None,
            arguments: serde_json::Map::new(),
            expected,
            grants: Vec::new(),
            limits: Vec::new(),
            files: Default::default(),
            answers: Vec::new(),
        }
    }

    #[test]
    fn result_is_compared_as_value_or_as_text() {
        let structured = |value: Value| CallResult {
            structured: Some(value),
            ..CallResult::default()
        };
        for (result, wanted, passes) in [
            (CallResult::text("a"), json!("a"), true),
            (CallResult::text("a"), json!("b"), false),
            (CallResult::text("{\"n\": 1}"), json!({"n": 1}), true),
            (CallResult::text("{\"n\": 1}"), json!({"n": 1, "m": 2}), false),
            (structured(json!({"n": 1.0})), json!({"n": 1}), true),
            (structured(json!({"n": [1, 2]})), json!({"n": [1, 3]}), false),
            (structured(json!("a")), json!("a"), true),
            (CallResult::text("x"), json!({"n": 1}), false),
        ] {
            let expected = Expected {
                result: Some(wanted.clone()),
                ..Expected::default()
            };
            let found = differences(&case(expected), &ran(result.clone()));
            assert_eq!(found.is_empty(), passes, "{result:?} {wanted}: {found:?}");
        }
    }

    #[test]
    fn error_and_pattern_are_compared() {
        let failed = || CallResult::failed(ToolError::invalid("`n` is negative"));
        let pattern = |text: &str| Some(regex::Regex::new(text).unwrap());
        for (result, error, pattern, differing) in [
            (failed(), Some("invalid_arguments"), pattern("is neg"), 0),
            (failed(), Some("failed"), None, 1),
            (failed(), None, None, 1),
            (failed(), Some("invalid_arguments"), pattern("^positive"), 1),
            (CallResult::text("fine"), Some("failed"), None, 1),
            (CallResult::text("fine"), None, pattern("^f.ne$"), 0),
            (CallResult::text("fine"), None, pattern("bad"), 1),
        ] {
            let expected = Expected {
                error,
                pattern,
                ..Expected::default()
            };
            let found = differences(&case(expected), &ran(result.clone()));
            assert_eq!(found.len(), differing, "{result:?} {error:?}: {found:?}");
        }
    }

    #[test]
    fn requests_and_files_that_differ_are_named() {
        let mut ran = ran(CallResult::text("fine"));
        ran.requested.unexpected.push("GET https://b.example/".into());
        ran.requested.unused.push("https://a.example/".into());
        ran.wrong_files.push("a.txt does not exist".into());
        let found = differences(&case(Expected::default()), &ran);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
