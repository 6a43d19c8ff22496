//! Answers that have to fit a schema.

use serde_json::Value;
use toolcell_core::{Schema, ToolError, json};

/// Characters of a code fence of Markdown.
const FENCE: &str = "```";

/// Returns the JSON text of an answer and its value. An answer may be one code fence, without other text.
///
/// # Errors
/// The reason for the model and the user, if the answer is no JSON value or does not fit.
pub(super) fn read<'a>(answer: &'a str, schema: &Schema) -> Result<(&'a str, Value), String> {
    let text = answer.trim();
    let text = in_fence(text).unwrap_or(text);
    let value = json::parse_value(text).map_err(|error| match has_text_around(text) {
        true => "there is text around the JSON value".to_owned(),
        false => error.to_string(),
    })?;
    match schema.check_arguments(&value) {
        Ok(()) => Ok((text, value)),
        Err(ToolError::InvalidArguments { message }) => Err(message),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the text in a code fence, if that is the whole text: "```json", lines, "```".
fn in_fence(text: &str) -> Option<&str> {
    let inner = text.strip_prefix(FENCE)?.strip_suffix(FENCE)?;
    let (language, inner) = inner.split_once('\n')?;
    let is_word = language.trim().bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_one = !inner.lines().any(|line| line.trim_start().starts_with(FENCE));
    (is_word && is_one && inner.ends_with('\n')).then(|| inner.trim())
}

/// True if an object or a list stands in a text that is no JSON.
fn has_text_around(text: &str) -> bool {
    let Some(start) = text.find(['{', '[']) else {
        return false;
    };
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<serde::de::IgnoredAny>();
    let is_value = values.next().is_some_and(|value| value.is_ok());
    is_value && (start > 0 || !text[start + values.byte_offset()..].trim().is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_text(answer: &str) -> Result<String, String> {
        let schema = Schema::new(json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        }))
        .unwrap();
        read(answer, &schema).map(|(text, value)| {
            assert_eq!(value, json::parse_value(text).unwrap());
            text.to_owned()
        })
    }

    #[test]
    fn json_in_one_code_fence_is_an_answer() {
        for answer in [
            "{\"n\": 1}",
            " \n{\"n\": 1}\n",
            "```json\n{\"n\": 1}\n```",
            "\n```\n{\"n\": 1}\n```\n\n",
            "``` JSON \r\n{\"n\": 1}\r\n```",
        ] {
            assert_eq!(read_text(answer).as_deref(), Ok("{\"n\": 1}"), "{answer}");
        }
        // A fence within a text of JSON is no end.
        let within = "```json\n{\"n\": 1, \"s\": \"a```b\"}\n```";
        assert!(read_text(within).is_ok());
    }

    #[test]
    fn other_answers_are_refused_with_their_reason() {
        for (answer, reason) in [
            ("Here it is: {\"n\": 1}", "text around the JSON value"),
            ("{\"n\": 1}\nDone.", "text around the JSON value"),
            ("Sure:\n```json\n{\"n\": 1}\n```", "text around the JSON value"),
            ("```json\n{\"n\": 1}\n```\nDone.", "text around the JSON value"),
            (
                "```json\n{\"n\": 1}\n```\n```json\n{\"n\": 2}\n```",
                "text around",
            ),
            ("```json {\"n\": 1} ```", "text around the JSON value"),
            ("{\"n\": 1", "EOF"),
            ("[1, 2", "EOF"),
            ("{n: 1}", "key must be a string"),
            ("", "EOF"),
            ("Sorry, I cannot.", "expected value"),
            ("```json\n{\"n\": \"x\"}\n```", "n"),
        ] {
            let error = read_text(answer).unwrap_err();
            assert!(error.contains(reason), "{answer}: {error}");
        }
    }
}
