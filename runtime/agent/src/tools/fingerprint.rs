//! Fingerprint that identifies repeated calls: same tool, same arguments in any order of their names, and same result.

use serde_json::Value;
use toolcell_core::Content;

/// Fingerprint of a call with its result.
pub(crate) fn fingerprint(tool: &str, arguments: &Value, content: &[Content]) -> u64 {
    let mut hash = Fnv::new();
    hash.part(tool.as_bytes());
    hash.part(canonical(arguments).as_bytes());
    for part in content {
        match part {
            Content::Text { text } => hash.part(text.as_bytes()),
            Content::Blob(blob) => hash.part(&blob.data),
            Content::Link(link) => hash.part(link.uri.as_bytes()),
        }
    }
    hash.0
}

/// A value as JSON with the names of every object sorted, so that equal values have equal texts.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(name, _)| *name);
            out.push('{');
            for (i, (name, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// FNV-1a, 64 bits. Stored numbers must be the same on every machine and in every version.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Hashes one part with its length, so that adjacent parts cannot be confused.
    fn part(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_of_names_does_not_change_the_fingerprint() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":{"c":[2,"x"],"d":null}}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":{"d":null,"c":[2,"x"]},"a":1}"#).unwrap();
        assert_eq!(canonical(&one), r#"{"a":1,"b":{"c":[2,"x"],"d":null}}"#);
        assert_eq!(fingerprint("t", &one, &[]), fingerprint("t", &two, &[]));
    }

    #[test]
    fn tool_arguments_and_result_change_the_fingerprint() {
        let base = fingerprint("t", &json!({"a": 1}), &[Content::text("r")]);
        assert_ne!(base, fingerprint("u", &json!({"a": 1}), &[Content::text("r")]));
        assert_ne!(base, fingerprint("t", &json!({"a": 2}), &[Content::text("r")]));
        assert_ne!(base, fingerprint("t", &json!({"a": 1}), &[Content::text("s")]));
        assert_ne!(
            fingerprint("t", &json!({}), &[Content::text("ab"), Content::text("c")]),
            fingerprint("t", &json!({}), &[Content::text("a"), Content::text("bc")])
        );
    }
}
