//! JSON values of events, with bounded memory.

use serde_json::Value;

/// Maximum number of values in an event. A value takes up to some hundred times the bytes of its text: without a limit, an
/// event of [`MAX_EVENT_BYTES`](super::MAX_EVENT_BYTES) would take more than a gigabyte.
pub(crate) const MAX_VALUES: usize = 200_000;

/// Reason why a text is not the value of an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("it has more than {MAX_VALUES} values")]
    TooMany,
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
}

/// Parses the value of an event.
pub(crate) fn parse(text: &str) -> Result<Value, ValueError> {
    if values_at_most(text.as_bytes()) > MAX_VALUES {
        return Err(ValueError::TooMany);
    }
    Ok(serde_json::from_str(text)?)
}

/// Returns the number of tokens at a path (JSON Pointer, RFC 6901), or `None` if there is none. A number beyond
/// 64 bits becomes the greatest that fits, so that a budget never takes a huge number for none.
pub(crate) fn count(value: &Value, pointer: &str) -> Option<u64> {
    let number = value.pointer(pointer)?;
    // The conversion of a float saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rounded = |float: f64| float as u64;
    let float = || number.as_f64().filter(|float| *float >= 0.0);
    number.as_u64().or_else(|| float().map(rounded))
}

/// Upper bound of the number of values in a JSON text: each but the first follows a comma or an opening bracket.
fn values_at_most(text: &[u8]) -> usize {
    let (mut values, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_their_maximum_are_refused() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
        assert!(parse(&list(MAX_VALUES - 1)).is_ok());
        assert!(matches!(parse(&list(MAX_VALUES + 1)), Err(ValueError::TooMany)));
        let objects = format!("{{\"x\":[{}0]}}", "{\"a\":0},".repeat(MAX_VALUES / 2));
        assert!(matches!(parse(&objects), Err(ValueError::TooMany)));
    }

    #[test]
    fn token_counts_are_the_nearest_that_fit() {
        let usage = parse(r#"{"a":{"b":7},"huge":1e30,"over":18446744073709551616,"half":2.5,"less":-3,"text":"9"}"#);
        let usage = usage.unwrap();
        let expected = [
            ("/a/b", Some(7)),
            ("/huge", Some(u64::MAX)),
            ("/over", Some(u64::MAX)),
            ("/half", Some(2)),
            ("/less", None),
            ("/text", None),
            ("/none", None),
        ];
        for (pointer, tokens) in expected {
            assert_eq!(count(&usage, pointer), tokens, "{pointer}");
        }
    }

    #[test]
    fn punctuation_in_texts_is_no_value() {
        let text = format!(r#"{{"a":"\"{}\\"}}"#, ",[{".repeat(MAX_VALUES));
        assert!(parse(&text).is_ok());
        assert_eq!(values_at_most(br#"{"a":[1,{"b":[]}],"c":"[,"}"#), 7);
    }

    #[test]
    fn text_that_is_no_json_is_refused() {
        for text in ["", "{", "[1,]", "\"\\"] {
            assert!(matches!(parse(text), Err(ValueError::Syntax(_))), "{text}");
        }
    }
}
