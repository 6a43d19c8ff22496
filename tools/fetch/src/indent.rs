//! Indents JSON without changing its content: the order of names and the digits of numbers are kept.

/// Returns the same JSON over several lines; `None` if it is invalid.
pub(crate) fn indent(json: &str) -> Option<String> {
    toolcell_sdk::serde_json::from_str::<toolcell_sdk::serde::de::IgnoredAny>(json).ok()?;
    let mut out = String::with_capacity(json.len() * 3 / 2);
    let mut depth = 0_usize;
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at);
                out.push_str(&json[at..end]);
                at = end;
                continue;
            }
            open @ (b'{' | b'[') => {
                out.push(char::from(open));
                let close = at
                    + 1
                    + bytes[at + 1..]
                        .iter()
                        .take_while(|byte| byte.is_ascii_whitespace())
                        .count();
                if let Some(end @ (b'}' | b']')) = bytes.get(close) {
                    out.push(char::from(*end));
                    at = close + 1;
                    continue;
                }
                depth += 1;
                new_line(&mut out, depth);
            }
            close @ (b'}' | b']') => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(char::from(close));
            }
            b',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            b':' => out.push_str(": "),
            byte if byte.is_ascii_whitespace() => {}
            // Outside strings, valid JSON is ASCII.
            byte => out.push(char::from(byte)),
        }
        at += 1;
    }
    Some(out)
}

/// Position after the string that starts at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    // Deep nesting must not multiply the size.
    for _ in 0..depth.min(20) {
        out.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_indented() {
        assert_eq!(
            indent(r#"{"b":[1, 2.50],"a":{ } ,"c":"x\"{y","d":[]}"#).unwrap(),
            "{\n  \"b\": [\n    1,\n    2.50\n  ],\n  \"a\": {},\n  \"c\": \"x\\\"{y\",\n  \"d\": []\n}"
        );
        assert_eq!(indent("12345678901234567890").unwrap(), "12345678901234567890");
        assert_eq!(indent("{"), None);
    }
}
