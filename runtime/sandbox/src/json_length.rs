//! Length of JSON text that is not needed itself.

use std::io;

use serde_json::{Map, Value};

/// Counts bytes.
struct Length(u64);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the number of bytes of a value as compact JSON.
pub(crate) fn json_length(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => match number.as_u64() {
            Some(number) => digits(number),
            None => {
                let mut length = Length(0);
                // Counting never fails.
                let _ = serde_json::to_writer(&mut length, number);
                length.0
            }
        },
        Value::String(text) => string(text),
        Value::Array(items) => enclosed(items.len(), items.iter().map(json_length).sum()),
        Value::Object(members) => object_length(members),
    }
}

/// Returns the number of bytes of an object as compact JSON.
pub(crate) fn object_length(members: &Map<String, Value>) -> u64 {
    let member = |(name, value): (&String, &Value)| string(name) + 1 + json_length(value);
    enclosed(members.len(), members.iter().map(member).sum())
}

/// Adds brackets and commas.
fn enclosed(count: usize, bytes: u64) -> u64 {
    bytes + 2 + count.saturating_sub(1) as u64
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

fn string(text: &str) -> u64 {
    let more = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | 8 | 9 | 10 | 12 | 13 => 1,
        0..=0x1f => 5,
        _ => 0,
    });
    text.len() as u64 + 2 + more.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_that_of_the_text() {
        let controls: String = (0..=0x7f_u8)
            .map(char::from)
            .chain("é\u{2028}𝄞".chars())
            .collect();
        for value in [
            serde_json::json!({ "a": [1, 2.5, null, "é\"\n"], "b": {}, "c": [], "\u{1}\"": [true, false] }),
            serde_json::json!([0, 9, 10, 99, 100, u64::MAX, -1, i64::MIN, 1e300, -0.0, 1.0]),
            serde_json::json!({}),
            controls.into(),
        ] {
            assert_eq!(json_length(&value), value.to_string().len() as u64, "{value}");
            if let Value::Object(members) = &value {
                assert_eq!(object_length(members), json_length(&value));
            }
        }
    }
}
