//! Length of the context. Ollama allocates memory for all of it, and loads the model again when it changes: so it grows in
//! powers of two, and never shrinks while the provider lives.

use serde_json::Value;

use crate::http::Dialect;

/// Shortest length, in tokens: instructions, tools and a short conversation.
pub(super) const SHORTEST: u64 = 16_384;

/// Longest length that is chosen without a setting, in tokens, because of the memory that it needs.
const LONGEST: u64 = 131_072;

/// Length of a request from which the model's limit is asked for, in tokens. Every model of Ollama that calls tools supports
/// as much.
pub(super) const LOOKUP: u64 = 4_096;

/// Tokens kept for the answer if the request has no limit.
const ANSWER: u64 = 4_096;

/// Tokens of a picture.
const PICTURE: u64 = 1_500;

/// Estimated tokens of a request: one for each four bytes of text, as in English prose.
pub(super) fn tokens(body: &Value) -> u64 {
    fn bytes(value: &Value) -> u64 {
        match value {
            Value::String(text) => text.len() as u64,
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(map) => map
                .iter()
                .map(|(name, value)| match (name.as_str(), value) {
                    ("images", Value::Array(images)) => images.len() as u64 * PICTURE * 4,
                    _ => name.len() as u64 + bytes(value),
                })
                .sum(),
            _ => 1,
        }
    }
    (bytes(&body["messages"]) + bytes(&body["tools"])) / 4
}

/// Length for a request: at least a third more than the estimate, because code and other languages have more tokens.
pub(super) fn fitting(tokens: u64, max_output: Option<u64>, dialect: Dialect) -> u64 {
    let needed = tokens
        .saturating_add(tokens / 3)
        .saturating_add(max_output.unwrap_or(ANSWER));
    let grown = needed.max(dialect.context.unwrap_or(SHORTEST)).max(SHORTEST);
    grown
        .checked_next_power_of_two()
        .unwrap_or(u64::MAX)
        .min(longest(dialect))
}

/// The next length; `None` if the current one is the longest.
pub(super) fn longer(dialect: Dialect) -> Option<u64> {
    let current = dialect.context?;
    let longer = current.saturating_mul(2).min(longest(dialect));
    (longer > current).then_some(longer)
}

fn longest(dialect: Dialect) -> u64 {
    dialect
        .model_context
        .flatten()
        .map_or(LONGEST, |model| model.min(LONGEST))
}

/// Checks that a request fits. An older server would cut it silently.
pub(super) fn check(tokens: u64, context: u64) -> Result<(), String> {
    if tokens <= context {
        return Ok(());
    }
    Err(format!(
        "the conversation has some {tokens} tokens, and the context has {context} (`num_ctx`)"
    ))
}

/// Length that the model supports, of `/api/show`.
pub(super) fn of_model(answer: &Value) -> Option<u64> {
    let info = answer.get("model_info")?.as_object()?;
    let mut lengths = info.iter().filter(|(name, _)| name.ends_with(".context_length"));
    lengths
        .find_map(|(_, value)| value.as_u64())
        .filter(|length| *length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dialect(context: Option<u64>, model: Option<u64>) -> Dialect {
        let mut dialect = Dialect::new(false);
        dialect.context = context;
        dialect.model_context = Some(model);
        dialect
    }

    #[test]
    fn context_grows_in_powers_of_two_up_to_the_model() {
        let unknown = dialect(None, None);
        assert_eq!(fitting(0, None, unknown), SHORTEST);
        assert_eq!(fitting(9_216, None, unknown), 16_384);
        assert_eq!(fitting(9_217, None, unknown), 32_768);
        assert_eq!(fitting(9_216, Some(20_000), unknown), 32_768);
        assert_eq!(fitting(u64::MAX, None, unknown), LONGEST);
        assert_eq!(
            fitting(0, None, dialect(Some(65_536), None)),
            65_536,
            "it never shrinks"
        );
        assert_eq!(fitting(0, None, dialect(None, Some(8_192))), 8_192);
        assert_eq!(fitting(60_000, None, dialect(None, Some(40_960))), 40_960);
        assert_eq!(longer(dialect(Some(16_384), None)), Some(32_768));
        assert_eq!(longer(dialect(Some(16_384), Some(20_000))), Some(20_000));
        assert_eq!(longer(dialect(Some(20_000), Some(20_000))), None);
    }

    #[test]
    fn request_beyond_the_context_is_refused() {
        assert_eq!(check(100, 100), Ok(()));
        assert!(check(101, 100).unwrap_err().contains("num_ctx"));
    }

    #[test]
    fn pictures_are_counted_by_number() {
        let picture = "x".repeat(100_000);
        let body = json!({"messages": [{"content": "abcd", "images": [picture]}], "format": picture});
        assert!(
            (PICTURE..PICTURE + 10).contains(&tokens(&body)),
            "{}",
            tokens(&body)
        );
    }
}
