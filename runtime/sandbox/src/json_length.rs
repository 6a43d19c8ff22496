//! Length of JSON text that is not needed itself.

use std::io;

use serde::Serialize;

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
pub(crate) fn json_length(value: &impl Serialize) -> u64 {
    let mut length = Length(0);
    // Counting never fails, and a value of JSON has no keys that are no text.
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_that_of_the_text() {
        let value = serde_json::json!({ "a": [1, 2.5, null, "é\"\n"], "b": {} });
        assert_eq!(json_length(&value), value.to_string().len() as u64);
    }
}
